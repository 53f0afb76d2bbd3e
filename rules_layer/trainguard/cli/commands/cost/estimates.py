"""``trainguard cost``: what a job of some size would cost to watch, line by line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from trainguard.cli.output.rendering import Block, Cell, Grid, Line, Shown, TerminalColumn, TerminalFacts, heading
from trainguard.cli.output.rendering import table as table_of
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import PriceTableError
from trainguard.local.settings import read_given
from trainguard.running_costs.operating import estimate
from trainguard.running_costs.unit_prices import PACKAGED_NAME, CostLine, packaged_unit_prices, read_unit_prices, total
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
_LINES: Mapping[TerminalColumn, Callable[[CostLine], Shown]] = {
    TerminalColumn("service"): lambda line: line.service,
    TerminalColumn("what", folds=True): lambda line: line.what,
    TerminalColumn("how many", right=True): lambda line: (
        f"{line.amount:,.0f}" if line.amount >= 100 else f"{line.amount:.3g}"
    ),
    TerminalColumn("cost", right=True): lambda line: money(line.cost),
}
_PRICE_COLUMNS = (
    TerminalColumn("unit"),
    TerminalColumn("price", right=True),
    TerminalColumn("as of"),
    TerminalColumn("source", folds=True),
)


def cost_result(workload: Workload, region: str, unit_prices: Path | None) -> CommandResult:
    """Return the estimate; ``unit_prices`` is a file in place of the packaged table. Raises PriceTableError."""
    name, table = PACKAGED_NAME, packaged_unit_prices()
    if unit_prices is not None:
        name = str(unit_prices)
        table = read_unit_prices(name, read_given(unit_prices, PriceTableError))
    prices = table.of_region(name, region)
    found = estimate(workload, prices, table.free_a_month)
    origin, alert = table.origin(region), total(found.fire)
    lines: dict[str, Sequence[CostLine]] = {field: getattr(found, field) for field in _SECTIONS}
    idle = f"{money(found.an_idle_month)}; beyond an unused free tier {money(found.an_idle_month_beyond_free)}"
    whole, own = found.with_profile, {"hour": found.an_hour, "job": found.the_job, "month": found.a_month}
    names = {"hour": "an hour of the job", "job": f"the job, {workload.hours:g} h", "month": "a month of such jobs"}
    facts = TerminalFacts(
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
        blocks += [heading(title), table_of(lines[field], _LINES)]
    sources, values = table.sources(region), msgspec.structs.asdict(prices)
    rows = [
        (unit, f"{values[unit]:.10f}".rstrip("0").rstrip("."), each.date, each.source) for unit, each in sources.items()
    ]
    blocks += [heading("Unit prices"), Grid(_PRICE_COLUMNS, rows)]
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
