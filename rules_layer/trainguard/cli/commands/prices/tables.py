"""``trainguard prices``: instance types of a price table, and the price list of the account's Region as a table."""

import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import asdict

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.price_list import OPERATION, SERVICE, currency_of, endpoint_region, list_products
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.rendering import Block, Grid, Line, Shown, TerminalColumn
from trainguard.cli.output.rendering import table as grid
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.deployment import session_in
from trainguard.core.errors import RequestError, UnknownNameError
from trainguard.core.units import similar
from trainguard.local.settings import prices_from
from trainguard.pricing.price_list import OFFERS, TRAINING, changes, read_offer, updated
from trainguard.pricing.table import InstanceRow, PriceTable, packaged_prices, write_prices

_CELLS: Mapping[TerminalColumn, Callable[[tuple[str, InstanceRow]], Shown]] = {
    TerminalColumn("type"): lambda named: named[0],
    TerminalColumn("an hour", right=True): lambda named: (
        "no price known" if named[1].per_hour is None else f"{named[1].per_hour:g}"
    ),
    TerminalColumn("accelerators", drops=1): lambda named: str(named[1].accelerators or "not known"),
    TerminalColumn("date"): lambda named: str(named[1].date or ""),
    TerminalColumn("source", folds=True, drops=2): lambda named: named[1].source or "",
}


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
        grid(chosen.items(), _CELLS),
        Line(f"{table.currency} of one instance on demand in {table.region}.", style="dim"),
    ]
    if old or unknown:
        text = f"{old} over a year old or undated, {unknown} not known"
        blocks.append(Line(f"Prices: {text}; `trainguard prices update` reads the account's price list.", style="dim"))
    instances = [{"instance_type": name, **asdict(row), "recent": recent[name]} for name, row in chosen.items()]
    document = {"region": table.region, "currency": table.currency, "instances": instances}
    return CommandResult(document=document, blocks=blocks)


def updated_file(out: Path, region: str | None, profile: str | None, *, day: datetime.date) -> CommandResult:
    """Read the prices of a Region and write them; None stands for this machine's configuration."""
    prepare(out.parent)
    before = prices_from(out) if out.exists() else None
    with translated("AWS", "session"):
        session, region = session_in(region, profile)
    clients = Clients(session=session, region=endpoint_region(region))
    listed, unused = _listed(clients, region, day)
    old, packaged = before or packaged_prices(), packaged_prices()
    table = updated(old, packaged, listed, region=region, currency=currency_of(region))
    write_files(out.parent, {out.name: write_prices(table)})
    found = changes(old, table, listed)
    changed = [(name, old.hourly(name), table.hourly(name) or 0.0) for name in found["dearer"] + found["cheaper"]]
    compared_with = "the packaged table" if before is None else f"the {out} that was there"
    blocks: list[Block] = []
    if changed:
        columns = (TerminalColumn("type"), TerminalColumn("before", right=True), TerminalColumn("now", right=True))
        rows = [[name, f"{was:g}", f"{now:g}"] for name, was, now in changed]
        blocks.append(Grid(columns, rows))
    blocks.append(
        Line(
            f"Against {compared_with}: {len(changed)} other prices, {len(found['new'])} new, {len(found['same'])} "
            f"as before; {len(found['kept'])} types that the price list does not have keep the price they had."
        )
    )
    if unused:
        text = ", ".join(f"{amount:,} {why}" for why, amount in unused.items())
        blocks.append(Line(f"Not used: {text}."))
    blocks.append(Line(f"{len(listed)} prices in {table.currency} of {table.region}, {day}: {out}", whole=True))
    document = {
        "file": str(out),
        "region": table.region,
        "currency": table.currency,
        "date": day,
        "priced": len(listed),
        "compared_with": compared_with,
        "changed": [{"instance_type": name, "before": was, "after": now} for name, was, now in changed],
        "new": found["new"],
        "kept": found["kept"],
        "unused": unused,
    }
    return CommandResult(document=document, blocks=blocks)


def _listed(clients: Clients, region: str, day: datetime.date) -> tuple[dict[str, InstanceRow], Counter[str]]:
    """Return the rows of all offers, and what was not used by reason; raises RequestError for an empty offer."""
    with translated(SERVICE, OPERATION):
        client = clients.pricing
    rows: dict[str, InstanceRow] = {}
    unused: Counter[str] = Counter()
    empty = []
    for offer in OFFERS:
        found, reasons = read_offer(offer, currency_of(region), list_products(client, offer, region), day)
        rows |= found
        unused.update(reasons)
        empty += [] if found else [offer.service]
    if empty:
        raise RequestError(
            f"the price list has no price of {' and '.join(empty)} in Region {region}; nothing was written",
            "Is the Region's name right, and does it have SageMaker?" if TRAINING.service in empty else "Try it again.",
        )
    return rows, unused
