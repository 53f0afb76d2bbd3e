"""The section that shows two runs beside each other: what differs in words, and their losses in one chart."""

from trainguard.core.units import show_percentage_points
from trainguard.render import numbers
from trainguard.render.blocks import Block, Figures
from trainguard.render.numbers import shown_name
from trainguard.report.comparison import losses
from trainguard.report.document import Change, Report
from trainguard.report.html.training.charts import Curve, figure


def change_words(change: Change, currency: str | None) -> tuple[str, str, str]:
    """Write both values of a change, and how much more or less the first one is."""
    here, there = (_shown(value, change, currency) for value in (change.here, change.there))
    return here, there, _difference(change)


def _shown(value: float | None, change: Change, currency: str | None) -> str:
    if change.unit == "money":
        return numbers.money(value, currency)
    write = {"share": numbers.share, "seconds": numbers.seconds, "number": numbers.number}[change.unit]
    return write(value)


def _difference(change: Change) -> str:
    if change.here is None or change.there is None:
        return numbers.NOTHING
    by = change.here - change.there
    sign = "+" if by > 0.0 else "\N{MINUS SIGN}" if by < 0.0 else ""
    if change.unit == "share":
        return f"{sign}{show_percentage_points(100.0 * abs(by))}"
    return f"{sign}{numbers.share(abs(by / change.there))}" if change.there else numbers.NOTHING


def compared_losses(report: Report) -> list[Block]:
    there = {
        f"{each.name} {each.mode}": each for each in ([] if report.comparison is None else report.comparison.losses)
    }
    charts = []
    for name, own in losses(report).items():
        other = there.get(f"{own.name} {own.mode}")
        if other is None:
            continue
        drawn = [Curve("this run", own.steps, own.mean, at=own.at), Curve("the other run", other.steps, other.mean)]
        charts.append(figure(shown_name(name), drawn, alt=f"{name} of both runs over steps"))
    return [Figures(charts)] if charts else []
