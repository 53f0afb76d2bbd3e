"""``trainguard cost``: what a job of some size would cost to watch, line by line."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Heading, Line
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult
from trainguard.core.errors import PriceTableError
from trainguard.running_costs.cost_lines import CostLine, total
from trainguard.running_costs.operating import Estimate, estimate
from trainguard.running_costs.unit_prices import PACKAGED_NAME, UnitPriceTable, packaged_unit_prices, read_unit_prices
from trainguard.running_costs.workload import Workload

_SECTIONS = {
    "hourly": "An hour of the job",
    "at_start": "The job's beginning adds, once",
    "at_end": "The report at the job's end, once",
    "fire": "One alert, with its report",
    "idle": "A month of the deployment without any job",
    "busy": "A month in which jobs run adds to that, however many",
    "profile": "The profile itself in S3, for each hour of the job",
}


class LineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a bill."""

    service: str
    what: str
    amount: float
    price: float
    cost: float


class CostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of watching a job; ``idle_month`` is at list price, ``profile`` the job's own in S3."""

    schema_version: str = SCHEMA_VERSION
    workload: Workload
    currency: str
    origin: str
    hour: float
    job: float
    month: float
    idle_month: float
    idle_month_beyond_free: float
    fire: float
    profile: float
    lines: dict[str, list[LineEntry]]


def cost_result(workload: Workload, region: str, unit_prices: Path | None) -> CommandResult:
    """Return the estimate; ``unit_prices`` is a file in place of the packaged table. Raises PriceTableError."""
    name, table = _table(unit_prices)
    found = estimate(workload, table.of_region(name, region), table.free_a_month)
    document = _document(found, table, region)
    idle = f"{money(document.idle_month)}; beyond an unused free tier {money(document.idle_month_beyond_free)}"
    facts = Facts(
        [
            ("an hour of the job", Cell(money(document.hour), "bold")),
            (f"the job, {workload.hours:g} h", Cell(money(document.job), "bold")),
            ("a month of such jobs", Cell(money(document.month), "bold")),
            ("an idle month", idle),
            ("each alert", money(document.fire)),
            ("the job's profile in S3", f"{money(document.profile)}, as with any profiler; in none of the above"),
        ]
    )
    blocks: list[Block] = [facts]
    for field, title in _SECTIONS.items():
        blocks += [Heading(title), _grid(getattr(found, field))]
    blocks.append(Line(f"{table.currency}. A model: {document.origin}.", style="dim"))
    return CommandResult(document=document, blocks=blocks)


def money(amount: float) -> str:
    """Return an amount to the cent, or to three digits where it is smaller."""
    return f"{amount:,.2f}" if amount >= 1.0 else f"{float(f'{amount:.3g}'):.8f}".rstrip("0").rstrip(".")


def _table(file: Path | None) -> tuple[str, UnitPriceTable]:
    if file is None:
        return PACKAGED_NAME, packaged_unit_prices()
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise PriceTableError(str(file), fault.strerror or str(fault)) from fault
    return str(file), read_unit_prices(str(file), body)


def _document(found: Estimate, table: UnitPriceTable, region: str) -> CostDocument:
    return CostDocument(
        workload=found.workload,
        currency=table.currency,
        origin=table.origin(region),
        hour=found.an_hour,
        job=found.the_job,
        month=found.a_month,
        idle_month=found.an_idle_month,
        idle_month_beyond_free=found.an_idle_month_beyond_free,
        fire=total(found.fire),
        profile=found.the_profile,
        lines={field: [_entry(line) for line in getattr(found, field)] for field in _SECTIONS},
    )


def _entry(line: CostLine) -> LineEntry:
    return LineEntry(service=line.service, what=line.what, amount=line.amount, price=line.price, cost=line.cost)


def _grid(lines: Sequence[CostLine]) -> Grid:
    columns = (
        Column("service"),
        Column("what", folds=True),
        Column("how many", right=True),
        Column("cost", right=True),
    )
    return Grid(columns, [(line.service, line.what, shown_amount(line.amount), money(line.cost)) for line in lines])


def shown_amount(amount: float) -> str:
    """Return an amount, whole where it is large."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
