"""Charts with two axes, of a fixed shape: histograms of durations, and lines over windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from trainguard.report.html.plots.bins import Bins
from trainguard.report.html.plots.scale import Scale, of_durations, tick_labels, up_from_zero
from trainguard.report.html.plots.svg import element, number, text, title

WIDTH, HEIGHT = 400.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 22.0, 36.0
SERIES_COLOURS = 8
LONGEST_LABEL = 7
LEAST_HEIGHT = 1.5
"""Lowest bar of a histogram: a single slow step among thousands can be seen."""


@dataclass(frozen=True, slots=True)
class Line:
    """A vertical line at a value, named at the top unless its label is empty; ``kind`` is its class."""

    value: float
    label: str
    kind: str = "limit"


@dataclass(frozen=True, slots=True)
class Frame:
    """Both scales of a chart, and where on the drawing a value is."""

    across: Scale
    up: Scale

    def x(self, value: float) -> float:
        """Return where a value is from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * self.across.at(value) / 100.0

    def y(self, value: float) -> float:
        """Return where a value is from the top."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.up.at(value) / 100.0


def histogram(bins: Bins, *, said: str, across: str, up: str, lines: Sequence[Line] = ()) -> Markup:
    """Draw a histogram of positive values, on a logarithmic scale where they differ by much.

    Parameters
    ----------
    bins : Bins
        At least one bin.
    said : str
        What the chart shows, for those who do not see it.
    across, up : str
        Labels of the axes, with units.
    lines : sequence of Line
        Values to mark, at most three.
    """
    highest = max([bins.edges[-1], *(line.value for line in lines)])
    lowest = min([bins.edges[0], *(line.value for line in lines)])
    frame = Frame(of_durations(lowest, highest), up_from_zero(max(bins.counts, default=0)))
    parts = axes(frame, across, up)
    for (lower, upper), held in zip(pairwise(bins.edges), bins.counts, strict=True):
        if held:
            left, right = frame.x(lower), frame.x(upper)
            width, top = max(right - left - 0.5, 0.8), min(frame.y(held), frame.y(0.0) - LEAST_HEIGHT)
            parts.append(element("rect", x=left, y=top, width=width, height=frame.y(0.0) - top, class_="bin"))
    for row, line in enumerate(sorted(lines, key=lambda each: each.value)):
        parts.extend(vertical(frame, line, row))
    return chart(parts, said)


def lines_over(points: Mapping[str, Sequence[float]], *, step: float, said: str, across: str, up: Scale) -> Markup:
    """Draw one line a name over equal steps; of more than eight lines, some have one colour."""
    longest = max((len(values) for values in points.values()), default=0)
    frame = Frame(up_from_zero(max(longest, 1) * step), up)
    parts = axes(frame, across, "%")
    for index, (name, values) in enumerate(points.items()):
        colour = f"series s{index % SERIES_COLOURS + 1}"
        places = [(frame.x((at + 1) * step), frame.y(value)) for at, value in enumerate(values)]
        path = " ".join(f"{number(x)},{number(y)}" for x, y in places)
        drawn = element("polyline", title(name), points=path, class_=colour)
        dots = (
            [element("circle", cx=x, cy=y, r=1.8, class_=f"{colour} dot") for x, y in places]
            if len(places) < 40
            else []
        )
        parts.extend([drawn, *dots])
    return chart(parts, said)


def chart(parts: Sequence[Markup], said: str) -> Markup:
    """Return a chart of its parts; ``said`` is what it shows."""
    box = f"0 0 {number(WIDTH)} {number(HEIGHT)}"
    return element("svg", title(said), *parts, viewBox=box, class_="chart", role="img")


def axes(frame: Frame, across: str, up: str) -> list[Markup]:
    """Draw both axes with ticks, and their labels."""
    base, right = frame.y(frame.up.low), WIDTH - RIGHT
    parts = []
    for tick, label in zip(frame.up.ticks, _labels(frame.up), strict=True):
        y = frame.y(tick)
        parts.append(element("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(text(label, x=LEFT - 6, y=y + 4, text_anchor="end", class_="tick"))
    for tick, label in zip(frame.across.ticks, _labels(frame.across), strict=True):
        parts.append(text(label, x=frame.x(tick), y=base + 15, text_anchor="middle", class_="tick"))
        parts.append(element("line", x1=frame.x(tick), x2=frame.x(tick), y1=base, y2=base + 4, class_="axis"))
    parts.append(element("line", x1=LEFT, x2=right, y1=base, y2=base, class_="axis"))
    parts.append(text(across, x=(LEFT + right) / 2.0, y=HEIGHT - 4, text_anchor="middle", class_="axis-label"))
    parts.append(text(up, x=4.0, y=12.0, text_anchor="start", class_="axis-label"))
    return parts


def _labels(scale: Scale) -> list[str]:
    """Write ticks in few characters: those of a scale of tiny or huge numbers with an exponent."""
    linear = tick_labels(scale.ticks)
    if scale.logarithmic or max(map(len, linear), default=0) > LONGEST_LABEL:
        return [f"{tick:,g}" for tick in scale.ticks]
    return linear


def vertical(frame: Frame, line: Line, row: int) -> list[Markup]:
    """Draw a vertical line, with its name in one of the rows at the top where it has one."""
    x, top = frame.x(line.value), TOP - 8.0 + 12.0 * row
    anchor, shift = ("end", -4.0) if x > WIDTH * 0.6 else ("start", 4.0)
    drawn = element("line", x1=x, x2=x, y1=top - 6.0, y2=frame.y(frame.up.low), class_=line.kind)
    return (
        [drawn]
        if not line.label
        else [drawn, text(line.label, x=x + shift, y=top + 3.0, text_anchor=anchor, class_="limit-label halo")]
    )
