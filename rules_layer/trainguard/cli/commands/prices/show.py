"""``trainguard prices show``: instance types of a price table."""

import datetime

from msgspec.structs import asdict

from trainguard.cli.output.blocks import Block, Column, Grid, Line
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.names import similar
from trainguard.core.errors import UnknownNameError
from trainguard.pricing.table import InstanceRow, PriceTable

_COLUMNS = (
    Column("type"),
    Column("an hour", right=True),
    Column("accelerators", drops=1),
    Column("date"),
    Column("source", folds=True, drops=2),
)


def shown(table: PriceTable, beginning: str, today: datetime.date) -> CommandResult:
    """Return the types of a table that begin so; raises UnknownNameError where none does."""
    chosen = {name: row for name, row in table.instances.items() if name.startswith(beginning.lower())}
    if not chosen:
        place = f"the price table of {table.region}"
        raise UnknownNameError("instance type", beginning, place, similar(beginning, table.instances))
    # Whether a price is at most a year old today; None where there is none.
    recent = {name: None if row.per_hour is None else row.is_recent(today) for name, row in chosen.items()}
    old, unknown = (list(recent.values()).count(state) for state in (False, None))
    blocks: list[Block] = [
        Grid(_COLUMNS, [_cells(name, row) for name, row in chosen.items()]),
        Line(f"{table.currency} of one instance on demand in {table.region}.", style="dim"),
    ]
    if old or unknown:
        text = f"{old} over a year old or undated, {unknown} not known"
        blocks.append(Line(f"Prices: {text}; `trainguard prices update` reads the account's price list.", style="dim"))
    instances = [{"instance_type": name, **asdict(row), "recent": recent[name]} for name, row in chosen.items()]
    document = {"region": table.region, "currency": table.currency, "instances": instances}
    return CommandResult(document=document, blocks=blocks)


def _cells(name: str, row: InstanceRow) -> list[str]:
    price = "no price known" if row.per_hour is None else f"{row.per_hour:g}"
    accelerators = "not known" if row.accelerators is None else str(row.accelerators)
    return [name, price, accelerators, str(row.date or ""), row.source or ""]
