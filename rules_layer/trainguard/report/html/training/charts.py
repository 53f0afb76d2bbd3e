"""Charts of training: lines over steps, bars, and curves; a chart has one line for each name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from trainguard.core.units import listed
from trainguard.render.blocks import Block, Figure, Figures, Key, Note
from trainguard.render.numbers import number as shown_number
from trainguard.render.numbers import shown_name
from trainguard.render.plots.charts import (
    DOTS_UP_TO,
    LEFT,
    RIGHT,
    SERIES_COLOURS,
    TOP,
    WIDTH,
    ChartFrame,
    axes,
    chart,
    line_through,
    vertical,
)
from trainguard.render.plots.scale import PERCENT, Scale, between, of_durations, up_from_zero
from trainguard.render.plots.strips import Limit
from trainguard.render.plots.svg import element, number, title
from trainguard.report.comparison import losses
from trainguard.report.document import Report
from trainguard.report.training.digest import ScalarSeries, quantity_of
from trainguard.report.training.document import FirstFire, TrainingReport
from trainguard.report.training.heat_map import HeatMap
from trainguard.report.training.predictions import ConfusionMatrix

MARK_UP = 5.0
NAMED_LINES = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over places, in order of places; None interrupts the line. ``low`` and ``high`` are a band around it.

    ``marks`` are places at which a value was NaN or infinite; ``at`` are the times of the places, epoch seconds.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    marks: Sequence[float] = field(default_factory=tuple)
    at: Sequence[float] = ()


def colour_of(index: int) -> str:
    """Return the class of the line at a place; of more than eight, some have one colour."""
    return f"s{index % SERIES_COLOURS + 1}"


def curves(
    shown: Sequence[Curve], *, alt: str, across: str, up: str, lines: Sequence[Limit] = (), scale: Scale | None = None
) -> Markup:
    """Draw curves, and vertical lines at places; logarithmic where positive values differ by much.

    ``alt`` is for those who do not see the chart; ``scale`` None takes one that fits.
    """
    places = [x for each in shown for x in each.x] or [0.0]
    if scale is None:
        values = [y for each in shown for ys in (each.y, each.low, each.high) for y in ys if y is not None]
        scale = of_durations(min(values), max(values)) if values else up_from_zero(1.0)
    frame = ChartFrame(between(min(places), max(places)), scale)
    parts = axes(frame, across, up)
    for index, each in enumerate(shown):
        parts.extend(_band(frame, each, colour_of(index)))
    for index, each in enumerate(shown):
        drawn = _line(frame, each, colour_of(index))
        parts.append(element("g", *drawn, data_x=_values(each.x), data_y=_values(each.y), data_at=_values(each.at)))
    row = 0
    for line in lines:
        named = bool(line.label) and row < NAMED_LINES
        parts.extend(vertical(frame, line if named else Limit(line.value, "", line.kind), row if named else 0))
        row += named
    pointer = element("line", x1=0, x2=0, y1=TOP, y2=frame.y(frame.up.low), class_="pointer")
    ends = {"data_from": repr(frame.across.low), "data_to": repr(frame.across.high)}
    return chart([*parts, pointer], alt, data_across=across, data_left=LEFT, data_right=WIDTH - RIGHT, **ends)


def figure(
    caption: str,
    drawn: Sequence[Curve],
    *,
    alt: str,
    across: str = "step",
    up: str = "",
    scale: Scale | None = None,
) -> Figure:
    legend = [Key(f"line {colour_of(index)}", curve.name) for index, curve in enumerate(drawn)]
    return Figure(caption, curves(drawn, alt=alt, across=across, up=up, scale=scale), legend)


def bars(
    edges: Sequence[float], heights: Sequence[float], *, alt: str, across: str, up: str, curve: Curve | None = None
) -> Markup:
    """Draw bars between edges (one more than heights), and over them a curve."""
    tallest = max([*heights, *([] if curve is None else [y for y in curve.y if y is not None])], default=0.0)
    frame = ChartFrame(between(edges[0], edges[-1]), up_from_zero(tallest))
    parts = axes(frame, across, up)
    for (lower, upper), height in zip(pairwise(edges), heights, strict=True):
        if height > 0.0:
            left, top = frame.x(lower), frame.y(height)
            width = max(frame.x(upper) - left - 0.5, 0.8)
            name = title(f"{shown_number(lower)} to {shown_number(upper)}: {shown_number(height)}")
            parts.append(element("rect", name, x=left, y=top, width=width, height=frame.y(0.0) - top, class_="bin"))
    if curve is not None:
        parts.extend(_line(frame, curve, "s2"))
    return chart(parts, alt)


def _line(frame: ChartFrame, held: Curve, colour: str) -> Iterator[Markup]:
    piece: list[tuple[float, float]] = []
    for x, y in [*zip(held.x, held.y, strict=True), (math.inf, None)]:
        if y is not None:
            piece.append((frame.x(x), frame.y(y)))
            continue
        if piece:
            dots = len(piece) < 2 or len(held.x) < DOTS_UP_TO
            yield from line_through(piece, held.name, colour, dots=dots)
        piece = []
    for x in held.marks:
        name = title(f"{held.name}: NaN or infinite at {shown_number(x)}")
        yield element("circle", name, cx=frame.x(x), cy=frame.y(frame.up.low) - MARK_UP, r=3.5, class_="mark hollow")


def _values(values: Sequence[float | None]) -> str:
    return " ".join("-" if each is None else f"{each:.12g}" for each in values)


def _band(frame: ChartFrame, held: Curve, colour: str) -> Iterator[Markup]:
    """Draw from the lowest to the highest value of points that stand for several."""
    pairs = [
        (frame.x(x), frame.y(low), frame.y(high))
        for x, low, high in zip(held.x, held.low, held.high, strict=False)
        if low is not None and high is not None
    ]
    if any(high != low for _, low, high in pairs):
        there = [f"{number(x)},{number(high)}" for x, _, high in pairs]
        back = [f"{number(x)},{number(low)}" for x, low, _ in reversed(pairs)]
        yield element("polygon", points=" ".join([*there, *back]), class_=f"area {colour}")


MOST_CHARTS = 12


def series_blocks(training: TrainingReport) -> list[Block]:
    """Return a chart for each loss and metric, with a line for each of its modes or sets of data."""
    groups: dict[str, list[ScalarSeries]] = {}
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


def _chart(name: str, held: Sequence[ScalarSeries], fires: Sequence[FirstFire]) -> Figure:
    drawn = [
        Curve(
            label_of(each, held),
            each.steps,
            each.mean,
            each.low,
            each.high,
            [step for step, bad in zip(each.steps, each.undefined, strict=True) if bad],
            each.at,
        )
        for each in held
    ]
    alt = ", ".join(_in_words(each, curve) for each, curve in zip(held, drawn, strict=True))
    keys = [Key(f"line {colour_of(index)}", shown_name(curve.name, 28)) for index, curve in enumerate(drawn)]
    if any(curve.marks for curve in drawn):
        keys.append(Key("mark hollow", "NaN or infinite"))
    lines = _lines(fires, held[0].steps[0], max(one.steps[-1] for one in held))
    rules = sum(bool(line.label) for line in lines)
    if rules > NAMED_LINES:
        keys.append(Key("limit", f"named are the first {NAMED_LINES} of {rules} rules that fired"))
    markup = curves(drawn, alt=f"{name} over steps: {alt}", across="step", up="", lines=lines)
    return Figure(shown_name(name), markup, keys)


def _lines(fires: Sequence[FirstFire], first: int, last: int) -> list[Limit]:
    lines: list[Limit] = []
    for each in fires:
        inside = [step for step in each.episodes if first <= step <= last]
        name = each.rule.rpartition("/")[2]
        lines.extend(Limit(float(step), "" if place else name) for place, step in enumerate(inside))
    return lines


def label_of(series: ScalarSeries, group: Sequence[ScalarSeries]) -> str:
    """Return the mode, the name, or both: what distinguishes a series from others of its chart."""
    names, modes = {each.name for each in group}, {each.mode for each in group}
    if len(names) == 1 and len(modes) >= 1:
        return series.mode.lower() if series.mode != "GLOBAL" else series.name
    return series.name if len(modes) == 1 else f"{series.name} ({series.mode.lower()})"


def _in_words(series: ScalarSeries, curve: Curve) -> str:
    found = [value for value in series.mean if value is not None]
    if not found:
        return f"{curve.name} without a finite value"
    return f"{curve.name} from {shown_number(found[0])} to {shown_number(found[-1])}"


FEATURES_SHOWN = 30
CLASSES_SHOWN = 20
LINES_SHOWN = 8


def largest_classes(matrix: ConfusionMatrix) -> list[int]:
    samples = [sum(row) for row in matrix.counts]
    return sorted(sorted(range(len(samples)), key=lambda place: -samples[place])[:CLASSES_SHOWN])


def largest_features(features: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the features with their shares, in their order; of very many those that matter most."""
    least = sorted(features.values(), reverse=True)[:FEATURES_SHOWN][-1]
    return [(name, share) for name, share in features.items() if share >= least][:FEATURES_SHOWN]


def rows_over_steps(held: HeatMap, names: Sequence[str], caption: str, *, percent: bool = False) -> list[Block]:
    """Draw eight rows a chart: one colour each; nothing without a step."""
    if not held.steps:
        return []
    factor, unit = (100.0, "%") if percent else (1.0, "error")
    figures = []
    for begin in range(0, len(names), LINES_SHOWN):
        drawn = [
            Curve(name, held.steps, [None if each is None else factor * each for each in values])
            for name, values in list(zip(names, held.values, strict=False))[begin : begin + LINES_SHOWN]
        ]
        alt = f"{caption}, over steps, for {', '.join(curve.name for curve in drawn)}"
        figures.append(figure(caption, drawn, alt=alt, up=unit, scale=PERCENT if percent else None))
    return [Figures(figures)]


def roc_figures(training: TrainingReport) -> list[Block]:
    held = training.predictions.roc
    if held is None:
        return []
    drawn = [Curve("model", held.false_positive, held.true_positive), Curve("chance", [0.0, 1.0], [0.0, 1.0])]
    alt = f"True over false positive rate; the area below the curve is {held.auc:.3f}"
    caption, scale = f"Area under the curve {held.auc:.3f} at step {held.step:,}", up_from_zero(1.0)
    chart = figure(caption, drawn, alt=alt, across="false positive rate", up="true positive rate", scale=scale)
    return [Figures([chart])]


def residual_figures(training: TrainingReport) -> list[Block]:
    held = training.predictions.residuals
    if held is None:
        return []
    width = held.edges[1] - held.edges[0]
    curve = None
    if held.sigma > 0.0 and width > 0.0:
        x = np.asarray(held.x)
        tall = sum(held.hist) * width / (held.sigma * np.sqrt(2.0 * np.pi))
        normal = tall * np.exp(-0.5 * ((x - held.mu) / held.sigma) ** 2)
        curve = Curve("normal distribution", held.x, normal.tolist())
    alt = f"Prediction minus label: mean {shown_number(held.mu)}, deviation {shown_number(held.sigma)}"
    markup = bars(held.edges, held.hist, alt=alt, across="prediction minus label", up="samples", curve=curve)
    keys = [Key("bin", "samples"), Key("line s2", "normal distribution of the same mean and deviation")]
    return [Figures([Figure(f"{alt}, at step {held.step:,}", markup, keys)])]


def compared_losses(report: Report) -> list[Block]:
    """Return a chart for each loss of both runs."""
    there = {} if report.comparison is None else {(each.name, each.mode): each for each in report.comparison.losses}
    figures = []
    for name, own in losses(report).items():
        other = there.get((own.name, own.mode))
        if other is not None:
            drawn = [Curve("this run", own.steps, own.mean, at=own.at), Curve("the other run", other.steps, other.mean)]
            figures.append(figure(shown_name(name), drawn, alt=f"{name} of both runs over steps"))
    return [Figures(figures)] if figures else []
