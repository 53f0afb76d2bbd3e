"""Charts with two axes, of a fixed shape: histograms of durations, and lines over windows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from trainguard.render.details import Durations
from trainguard.render.numbers import seconds, share, shown_name
from trainguard.render.plots.scale import Scale, of_durations, tick_labels, up_from_zero
from trainguard.render.plots.strips import Limit, parts_of_whole
from trainguard.render.plots.svg import Attribute, element, number, text, title

MOST_COLUMNS = 56
_LEAST = 1e-9


# A histogram: N + 1 edges of N bins, and how many are in each.
Bins = tuple[Sequence[float], Sequence[int]]


def join_bins(lower: Sequence[float], upper: Sequence[float], counts: Sequence[int]) -> Bins:
    """Return columns of equal ratio, each over as many stored bins as the others; empty ones are included.

    ``lower`` and ``upper`` are ascending, positive, and of about one ratio. Raises ValueError without a bin, or for
    unequal lengths.
    """
    if not (len(lower) == len(upper) == len(counts) and len(lower)):
        raise ValueError(f"{len(lower)} lower and {len(upper)} upper edges do not fit {len(counts)} counts")
    begin, end = max(lower[0], _LEAST), max(upper[-1], lower[0], _LEAST)
    ratios = sorted(math.log(max(high, _LEAST) / max(low, _LEAST)) for low, high in zip(lower, upper, strict=True))
    span, native = math.log(end / begin), ratios[len(ratios) // 2]
    if span <= 0.0 or native <= 0.0:
        return (begin * 0.995, end * 1.005), (sum(counts),)
    width = native * math.ceil(span / native / MOST_COLUMNS)
    columns = max(math.ceil(span / width - 1e-6), 1)
    joined = [0] * columns
    for low, high, held in zip(lower, upper, counts, strict=True):
        middle = (math.log(max(low, _LEAST)) + math.log(max(high, _LEAST))) / 2.0 - math.log(begin)
        joined[min(max(int(middle / width), 0), columns - 1)] += held
    return [begin * math.exp(width * index) for index in range(columns + 1)], joined


WIDTH, HEIGHT = 400.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 22.0, 36.0
SERIES_COLOURS = 8
DOTS_UP_TO = 40
LONGEST_LABEL = 7
# Lowest bar: a single slow step among thousands can be seen.
LEAST_HEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """Both scales of a chart, and where on the drawing a value is."""

    across: Scale
    up: Scale

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * self.across.at(value) / 100.0

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.up.at(value) / 100.0


def histogram(bins: Bins, *, alt: str, across: str, up: str, lines: Sequence[Limit] = ()) -> Markup:
    """Draw a histogram of positive values, logarithmic where they differ by much; ``across`` and ``up`` have units."""
    edges, counts = bins
    ends = [edges[0], edges[-1], *(line.value for line in lines)]
    frame = ChartFrame(of_durations(min(ends), max(ends)), up_from_zero(max(counts, default=0)))
    parts = axes(frame, across, up)
    for (lower, upper), held in zip(pairwise(edges), counts, strict=True):
        if held:
            left, right = frame.x(lower), frame.x(upper)
            width, top = max(right - left - 0.5, 0.8), min(frame.y(held), frame.y(0.0) - LEAST_HEIGHT)
            parts.append(element("rect", x=left, y=top, width=width, height=frame.y(0.0) - top, class_="bin"))
    for row, line in enumerate(sorted(lines, key=lambda each: each.value)):
        parts.extend(vertical(frame, line, row))
    return chart(parts, alt)


def lines_over(points: Mapping[str, Sequence[float]], *, step: float, alt: str, across: str, up: Scale) -> Markup:
    """Draw one line a name over equal steps; of more than eight lines, some have one colour."""
    longest = max((len(values) for values in points.values()), default=0)
    frame = ChartFrame(up_from_zero(max(longest, 1) * step), up)
    parts = axes(frame, across, "%")
    for index, (name, values) in enumerate(points.items()):
        places = [(frame.x((at + 1) * step), frame.y(value)) for at, value in enumerate(values)]
        parts.extend(line_through(places, name, f"s{index % SERIES_COLOURS + 1}", dots=len(places) < DOTS_UP_TO))
    return chart(parts, alt)


def line_through(places: Sequence[tuple[float, float]], name: str, colour: str, *, dots: bool) -> Iterator[Markup]:
    """Draw a line through places on the drawing, with a dot at each."""
    points = " ".join(f"{number(x)},{number(y)}" for x, y in places)
    yield element("polyline", title(name), points=points, class_=f"series {colour}")
    for x, y in places if dots else ():
        yield element("circle", cx=x, cy=y, r=1.8, class_=f"series {colour} dot")


def chart(parts: Sequence[Markup], alt: str, **data: Attribute) -> Markup:
    box = f"0 0 {number(WIDTH)} {number(HEIGHT)}"
    return element("svg", title(alt), *parts, viewBox=box, class_="chart", role="img", **data)


def axes(frame: ChartFrame, across: str, up: str) -> list[Markup]:
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
    linear = tick_labels(scale.ticks)
    if scale.logarithmic or max(map(len, linear), default=0) > LONGEST_LABEL:
        return [f"{tick:,g}" for tick in scale.ticks]
    return linear


def vertical(frame: ChartFrame, line: Limit, row: int) -> list[Markup]:
    """Draw a vertical line, with its name in one of the rows at the top where it has one."""
    x, top = frame.x(line.value), TOP - 8.0 + 12.0 * row
    anchor, shift = ("end", -4.0) if x > WIDTH * 0.6 else ("start", 4.0)
    drawn = element("line", x1=x, x2=x, y1=top - 6.0, y2=frame.y(frame.up.low), class_=line.kind)
    if not line.label:
        return [drawn]
    return [drawn, text(line.label, x=x + shift, y=top + 3.0, text_anchor=anchor, class_="limit-label halo")]


RADIUS = 34.0
COLOURS = 8


# A part of a whole: its name, its share from 0 to 1, the same in its unit, and its colour from 1 to 8.
Part = tuple[str, float, str, int]


def donut(parts: Sequence[Part], *, alt: str) -> Markup:
    """Draw the parts of a whole, and a table of them; shares add up to 1 at most."""
    rings, rows, begin = [], [], 0.0
    row = Markup(
        '<tr><th scope="row">{}{}</th><td class="bar-cell">{}</td>'
        '<td class="number">{}</td><td class="number">{}</td></tr>'
    )
    for label, part, value, colour in parts:
        length, name = 100.0 * min(max(part, 0.0), 1.0), f"{label}: {share(part)}"
        if length > 0.0:
            ring = element(
                "circle",
                title(name),
                cx=50.0,
                cy=50.0,
                r=RADIUS,
                pathLength=100,
                stroke_dasharray=f"{number(length)} {number(100.0 - length)}",
                stroke_dashoffset=number(25.0 - begin),
                class_=f"ring s{colour}",
            )
            rings.append(ring)
        begin += length
        square = element("rect", x=1, y=1, width=10, height=10, rx=2, class_=f"part s{colour}")
        swatch = element("svg", square, class_="swatch", width=12, height=12, aria_hidden="true")
        bar = parts_of_whole([("", part, f"s{colour}")], alt=name)
        rows.append(row.format(swatch, shown_name(label, 60), bar, share(part), value))
    back = element("circle", cx=50.0, cy=50.0, r=RADIUS, class_="ring none")
    picture = element("svg", title(alt), back, *rings, viewBox="0 0 100 100", class_="donut", role="img")
    return Markup('<div class="whole">{}<table class="shares"><tbody>{}</tbody></table></div>').format(
        picture, Markup("").join(rows)
    )


Marked = tuple[float | None, str, str]


def duration_chart(durations: Durations, marks: Sequence[Marked], *, alt: str, up: str) -> Markup:
    """Return the chart of a histogram in microseconds; raises ValueError when it is empty."""
    longest_us = durations.upper_us[-1] if durations.upper_us else 0.0
    units = ((1e3, "\N{MICRO SIGN}s", 1.0), (1e6, "ms", 1e3), (math.inf, "s", 1e6))
    unit, unit_us = next((unit, unit_us) for below_us, unit, unit_us in units if longest_us < below_us)
    bins = join_bins(
        [each / unit_us for each in durations.lower_us],
        [each / unit_us for each in durations.upper_us],
        durations.counts,
    )
    lines = [
        Limit(value * 1e6 / unit_us, f"{label} {seconds(value)}", kind)
        for value, label, kind in marks
        if value is not None
    ]
    return histogram(bins, alt=alt, across=unit, up=up, lines=lines)
