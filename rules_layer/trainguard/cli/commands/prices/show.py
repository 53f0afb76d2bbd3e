"""``trainguard prices show``: instance types of a price table."""

import datetime

import msgspec

from trainguard.cli.output.blocks import Block, Column, Grid, Line
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult
from trainguard.core.errors import UnknownNameError
from trainguard.pricing.table import Accelerators, InstanceRow, PriceTable

_COLUMNS = (
    Column("type"),
    Column("an hour", right=True),
    Column("accelerators", drops=1),
    Column("date"),
    Column("source", folds=True, drops=2),
)


class InstanceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type; ``recent`` says whether its price is at most a year old today, None where there is none."""

    instance_type: str
    per_hour: float | None
    source: str | None
    date: datetime.date | None
    recent: bool | None
    accelerators: Accelerators | None


class PricesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Instance types of a price table."""

    schema_version: str = SCHEMA_VERSION
    region: str
    currency: str
    instances: list[InstanceEntry]


def shown(table: PriceTable, beginning: str, today: datetime.date) -> CommandResult:
    """Return the types of a table that begin so; raises UnknownNameError where none does."""
    chosen = {name: row for name, row in table.instances.items() if name.startswith(beginning.lower())}
    if not chosen:
        family = beginning.lower().partition(".")
        alike = [name for name in table.instances if family[0] and family[0] in name][:5]
        raise UnknownNameError("instance type", beginning, f"the price table of {table.region}", alike)
    entries = [_entry(name, row, today) for name, row in chosen.items()]
    old = sum(entry.recent is False for entry in entries)
    unknown = sum(entry.per_hour is None for entry in entries)
    blocks: list[Block] = [
        Grid(_COLUMNS, [_cells(entry) for entry in entries]),
        Line(f"{table.currency} of one instance on demand in {table.region}.", style="dim"),
    ]
    if old or unknown:
        text = f"{old} over a year old or undated, {unknown} not known"
        blocks.append(Line(f"Prices: {text}; `trainguard prices update` reads the account's price list.", style="dim"))
    document = PricesDocument(region=table.region, currency=table.currency, instances=entries)
    return CommandResult(document=document, blocks=blocks)


def _entry(name: str, row: InstanceRow, today: datetime.date) -> InstanceEntry:
    return InstanceEntry(
        instance_type=name,
        per_hour=row.per_hour,
        source=row.source,
        date=row.date,
        recent=None if row.per_hour is None else row.is_recent(today),
        accelerators=row.accelerators,
    )


def _cells(entry: InstanceEntry) -> list[str]:
    price = "no price known" if entry.per_hour is None else f"{entry.per_hour:g}"
    accelerators = "not known" if entry.accelerators is None else str(entry.accelerators)
    return [entry.instance_type, price, accelerators, str(entry.date or ""), entry.source or ""]
