"""Losses and metrics over steps, with the steps at which rules fired."""

from collections.abc import Sequence

from trainguard.report.html.blocks import Block, Figure, Figures, Key, Note
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import number
from trainguard.report.html.plots.charts import Line
from trainguard.report.html.training.charts import NAMED_LINES, Curve, colour_of, curves, short
from trainguard.report.training.document import FirstFire, TrainingReport
from trainguard.report.training.series import Series, quantity_of
from trainguard.rules.units import listed

MOST_CHARTS = 12


def series_blocks(training: TrainingReport) -> list[Block]:
    """Return a chart for each loss and metric, with a line for each of its modes or sets of data."""
    groups: dict[str, list[Series]] = {}
    for each in sorted(training.series, key=lambda held: held.kind != "loss"):
        groups.setdefault(quantity_of(each.name), []).append(each)
    if not groups:
        return []
    figures = [_chart(name, held, training.fires) for name, held in list(groups.items())[:MOST_CHARTS]]
    shown: list[Block] = [Figures(figures)]
    if len(groups) > MOST_CHARTS:
        shown.append(
            Note(f"{len(groups) - MOST_CHARTS} more are in report.json: {listed(list(groups)[MOST_CHARTS:])}.")
        )
    if any(each.width > 1 for each in training.series):
        shown.append(Note("Where a point stands for several steps, the line is their mean, and the band their range."))
    return shown


def _chart(name: str, held: Sequence[Series], fires: Sequence[FirstFire]) -> Figure:
    drawn = [
        Curve(
            label_of(each, held),
            each.steps,
            each.mean,
            each.low,
            each.high,
            [step for step, bad in zip(each.steps, each.undefined, strict=True) if bad],
        )
        for each in held
    ]
    said = ", ".join(_in_words(each, curve) for each, curve in zip(held, drawn, strict=True))
    keys = [Key(f"line {colour_of(index)}", short(curve.name)) for index, curve in enumerate(drawn)]
    if any(curve.marks for curve in drawn):
        keys.append(Key("mark hollow", "NaN or infinite"))
    lines = _lines(fires, held[0].steps[0], max(one.steps[-1] for one in held))
    rules = sum(bool(line.label) for line in lines)
    if rules > NAMED_LINES:
        keys.append(Key("limit", f"named are the first {NAMED_LINES} of {rules} rules that fired"))
    markup = curves(drawn, said=f"{name} over steps: {said}", across="step", up="", lines=lines)
    return Figure(shown_name(name), markup, keys)


def _lines(fires: Sequence[FirstFire], first: int, last: int) -> list[Line]:
    """Return a line for each step at which a rule began to fire; the first of a rule has its name."""
    lines: list[Line] = []
    for each in fires:
        inside = [step for step in each.episodes if first <= step <= last]
        name = each.rule.rpartition("/")[2]
        lines.extend(Line(float(step), "" if place else name) for place, step in enumerate(inside))
    return lines


def label_of(series: Series, group: Sequence[Series]) -> str:
    """Return what tells a series from others of its chart: its mode, its name, or both."""
    names, modes = {each.name for each in group}, {each.mode for each in group}
    if len(names) == 1 and len(modes) >= 1:
        return series.mode.lower() if series.mode != "GLOBAL" else series.name
    return series.name if len(modes) == 1 else f"{series.name} ({series.mode.lower()})"


def _in_words(series: Series, curve: Curve) -> str:
    found = [value for value in series.mean if value is not None]
    if not found:
        return f"{curve.name} without a finite value"
    return f"{curve.name} from {number(found[0])} to {number(found[-1])}"
