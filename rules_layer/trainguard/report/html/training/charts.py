"""Charts of training: lines over steps, bars, and curves; a chart has one line for each name."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import number as shown_number
from trainguard.report.html.plots.charts import (
    SERIES_COLOURS,
    Frame,
    Line,
    axes,
    chart,
    vertical,
)
from trainguard.report.html.plots.scale import Scale, between, of_durations, up_from_zero
from trainguard.report.html.plots.svg import element, number, title

DOTS_UP_TO = 40
MARK_UP = 5.0
NAMED_LINES = 4
"""Vertical lines whose names fit above a chart."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over places, in order of places; None interrupts the line. ``low`` and ``high`` are a band around it.

    ``marks`` are places at which a value was NaN or infinite.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    marks: Sequence[float] = field(default_factory=tuple)


def colour_of(index: int) -> str:
    """Return the class of the line at a place; of more than eight, some have one colour."""
    return f"s{index % SERIES_COLOURS + 1}"


def curves(
    shown: Sequence[Curve], *, said: str, across: str, up: str, lines: Sequence[Line] = (), scale: Scale | None = None
) -> Markup:
    """Draw curves, and vertical lines at places; on a logarithmic scale where positive values differ by much.

    Parameters
    ----------
    shown : sequence of Curve
    said : str
        What the chart shows, for those who do not see it.
    across, up : str
        Labels of the axes.
    lines : sequence of Line
        All are drawn; of those with names, the first few are named.
    scale : Scale or None
        Upwards; None takes one that fits.
    """
    places = [x for each in shown for x in each.x] or [0.0]
    frame = Frame(between(min(places), max(places)), _scale_of(shown) if scale is None else scale)
    parts = axes(frame, across, up)
    for index, each in enumerate(shown):
        parts.extend(_band(frame, each, colour_of(index)))
    for index, each in enumerate(shown):
        parts.extend(_line(frame, each, colour_of(index)))
    row = 0
    for line in lines:
        named = bool(line.label) and row < NAMED_LINES
        parts.extend(vertical(frame, line if named else Line(line.value, "", line.kind), row if named else 0))
        row += named
    return chart(parts, said)


def bars(
    edges: Sequence[float], heights: Sequence[float], *, said: str, across: str, up: str, curve: Curve | None = None
) -> Markup:
    """Draw bars between edges (one more than heights), and over them a curve."""
    tallest = max([*heights, *([] if curve is None else [y for y in curve.y if y is not None])], default=0.0)
    frame = Frame(between(edges[0], edges[-1]), up_from_zero(tallest))
    parts = axes(frame, across, up)
    for (lower, upper), height in zip(pairwise(edges), heights, strict=True):
        if height > 0.0:
            left, top = frame.x(lower), frame.y(height)
            width = max(frame.x(upper) - left - 0.5, 0.8)
            name = title(f"{shown_number(lower)} to {shown_number(upper)}: {shown_number(height)}")
            parts.append(element("rect", name, x=left, y=top, width=width, height=frame.y(0.0) - top, class_="bin"))
    if curve is not None:
        parts.extend(_line(frame, curve, "s2"))
    return chart(parts, said)


def _scale_of(shown: Sequence[Curve]) -> Scale:
    values = [y for each in shown for ys in (each.y, each.low, each.high) for y in ys if y is not None]
    if not values:
        return up_from_zero(1.0)
    return of_durations(min(values), max(values))


def _line(frame: Frame, held: Curve, colour: str) -> Iterator[Markup]:
    """Draw a curve in as many pieces as it is interrupted, and a sign for what is no finite number."""
    piece: list[tuple[float, float]] = []
    for x, y in [*zip(held.x, held.y, strict=True), (math.inf, None)]:
        if y is not None:
            piece.append((frame.x(x), frame.y(y)))
            continue
        if piece:
            points = " ".join(f"{number(x)},{number(y)}" for x, y in piece)
            yield element("polyline", title(held.name), points=points, class_=f"series {colour}")
            if len(piece) < 2 or len(held.x) < DOTS_UP_TO:
                for cx, cy in piece:
                    yield element("circle", cx=cx, cy=cy, r=1.8, class_=f"series {colour} dot")
        piece = []
    for x in held.marks:
        name = title(f"{held.name}: NaN or infinite at {shown_number(x)}")
        yield element("circle", name, cx=frame.x(x), cy=frame.y(frame.up.low) - MARK_UP, r=3.5, class_="mark hollow")


def _band(frame: Frame, held: Curve, colour: str) -> Iterator[Markup]:
    """Draw from the lowest to the highest value, where points stand for several."""
    pairs = [
        (frame.x(x), frame.y(low), frame.y(high))
        for x, low, high in zip(held.x, held.low, held.high, strict=False)
        if low is not None and high is not None
    ]
    if any(high != low for _, low, high in pairs):
        there = [f"{number(x)},{number(high)}" for x, _, high in pairs]
        back = [f"{number(x)},{number(low)}" for x, low, _ in reversed(pairs)]
        yield element("polygon", points=" ".join([*there, *back]), class_=f"area {colour}")


def short(name: str) -> str:
    """Return a name as it fits beside a line."""
    return shown_name(name, 28)
