"""``trainguard cost``: what a job of some size would cost to watch, line by line."""

from dataclasses import asdict
from pathlib import Path

import msgspec

from trainguard.cli.output.rendering import Block, Cell, Column, Facts, Grid, Heading, Line
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import PriceTableError
from trainguard.local.settings import read_given
from trainguard.running_costs.operating import estimate
from trainguard.running_costs.unit_prices import (
    PACKAGED_NAME,
    CostLine,
    UnitPriceTable,
    packaged_unit_prices,
    read_unit_prices,
    total,
)
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
_COLUMNS = (Column("service"), Column("what", folds=True), Column("how many", right=True), Column("cost", right=True))
_PRICE_COLUMNS = (Column("unit"), Column("price", right=True), Column("as of"), Column("source", folds=True))


def cost_result(workload: Workload, region: str, unit_prices: Path | None) -> CommandResult:
    """Return the estimate; ``unit_prices`` is a file in place of the packaged table. Raises PriceTableError."""
    name, table = _table(unit_prices)
    prices = table.of_region(name, region)
    found = estimate(workload, prices, table.free_a_month)
    origin, alert = table.origin(region), total(found.fire)
    lines: dict[str, list[CostLine]] = {field: list(getattr(found, field)) for field in _SECTIONS}
    idle = f"{money(found.an_idle_month)}; beyond an unused free tier {money(found.an_idle_month_beyond_free)}"
    whole, own = found.with_profile, {"hour": found.an_hour, "job": found.the_job, "month": found.a_month}
    names = {"hour": "an hour of the job", "job": f"the job, {workload.hours:g} h", "month": "a month of such jobs"}
    facts = Facts(
        [
            *(
                (name, Cell(f"{money(whole[span])}, {money(own[span])} without the profile", "bold"))
                for span, name in names.items()
            ),
            ("an idle month", idle),
            ("each alert", money(alert)),
        ]
    )
    blocks: list[Block] = [facts]
    for field, title in _SECTIONS.items():
        rows = [(line.service, line.what, _shown_amount(line.amount), money(line.cost)) for line in lines[field]]
        blocks += [Heading(title), Grid(_COLUMNS, rows)]
    sources, values = table.sources(region), msgspec.structs.asdict(prices)
    rows = [
        (unit, f"{values[unit]:.10f}".rstrip("0").rstrip("."), each.date, each.source) for unit, each in sources.items()
    ]
    blocks += [Heading("Unit prices"), Grid(_PRICE_COLUMNS, rows)]
    blocks.append(Line(f"{table.currency}. A model: {origin}.", style="dim"))
    document = {
        "workload": found.workload,
        "currency": table.currency,
        "origin": origin,
        **whole,
        "without_profile": own,
        "idle_month": found.an_idle_month,
        "idle_month_beyond_free": found.an_idle_month_beyond_free,
        "fire": alert,
        "profile": found.the_profile,
        "lines": {field: [asdict(line) | {"cost": line.cost} for line in listed] for field, listed in lines.items()},
        "unit_prices": {
            unit: {"price": values[unit], "date": each.date, "source": each.source} for unit, each in sources.items()
        },
    }
    return CommandResult(document=document, blocks=blocks)


def money(amount: float) -> str:
    """Return an amount to the cent, or to three digits where it is smaller."""
    return f"{amount:,.2f}" if amount >= 1.0 else f"{float(f'{amount:.3g}'):.8f}".rstrip("0").rstrip(".")


def _table(file: Path | None) -> tuple[str, UnitPriceTable]:
    if file is None:
        return PACKAGED_NAME, packaged_unit_prices()
    return str(file), read_unit_prices(str(file), read_given(file, PriceTableError))


def _shown_amount(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
