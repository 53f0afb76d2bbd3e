"""Strips: plots one row high in a table's cell; those of one column have the scale that its head shows.

Places are in percent, so that text is never scaled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trainguard.render.numbers import number
from trainguard.render.plots.scale import Scale, tick_labels
from trainguard.render.plots.svg import at, element, text, title

HEIGHT = 30
MIDDLE = HEIGHT / 2
TICKS_HEIGHT = 16
LIMITS_HEIGHT = 14
# Percent of the width: what is more than nothing can be seen.
GAP_LEAST = 0.35


@dataclass(frozen=True, slots=True)
class Limit:
    """A line at a value, such as a threshold; its label stands at the head, ``kind`` is its class."""

    value: float
    label: str
    kind: str = "limit"


def head(scale: Scale, unit: str = "", limits: Sequence[Limit] = ()) -> Markup:
    """Return the axis for a column's head: ticks, and above them the thresholds; minor ticks need not be shown."""
    named = [limit for limit in limits if limit.label]
    height = TICKS_HEIGHT + (LIMITS_HEIGHT if named else 0)
    parts = []
    last = len(scale.ticks) - 1
    for index, (tick, label) in enumerate(zip(scale.ticks, tick_labels(scale.ticks), strict=True)):
        place = scale.at(tick)
        kind = "tick minor" if index and (last - index) % 2 else "tick"
        written = label + unit if index == last else label
        parts.append(text(written, x=at(place), y=height - 4, text_anchor=_anchor(place), class_=kind))
    for limit in named:
        place = scale.at(limit.value)
        parts.append(text(limit.label, x=at(place), y=11, text_anchor=_anchor(place), class_="limit-label"))
    return element("svg", *parts, class_="strip-head", width="100%", height=height, aria_hidden="true")


def box(
    values: Sequence[float | None],
    scale: Scale,
    *,
    alt: str,
    tone: str = "plain",
    limits: Sequence[Limit] = (),
    marks: Sequence[float | None] = (),
) -> Markup:
    """Draw lower end, p25, p50, p75 and upper end, beside them ``marks`` for the newest values; None is left out."""
    lower, p25, p50, p75, upper = values
    parts = _limits(scale, limits)
    if lower is not None and upper is not None:
        low, high = scale.at(lower), scale.at(upper)
        parts.append(element("line", x1=at(low), x2=at(high), y1=MIDDLE, y2=MIDDLE, class_="whisker"))
        parts.extend(
            element("line", x1=at(x), x2=at(x), y1=MIDDLE - 4, y2=MIDDLE + 4, class_="whisker") for x in (low, high)
        )
    if p25 is not None and p75 is not None:
        parts.append(_bar(scale.at(p25), scale.at(p75), 8, HEIGHT - 16, f"box {tone}"))
    if p50 is not None:
        parts.append(element("line", x1=at(scale.at(p50)), x2=at(scale.at(p50)), y1=8, y2=HEIGHT - 8, class_="median"))
    for index, mark in enumerate(marks):
        if mark is not None:
            kind = "mark" if index == 0 else "mark hollow"
            parts.append(element("circle", cx=at(scale.at(mark)), cy=MIDDLE, r=3.5, class_=kind))
    return _strip(parts, alt)


def bar(value: float | None, scale: Scale, *, alt: str, tone: str = "plain", limits: Sequence[Limit] = ()) -> Markup:
    parts = [] if value is None or value <= scale.low else [_bar(0.0, scale.at(value), 8, HEIGHT - 16, f"bar {tone}")]
    return _strip([*parts, *_limits(scale, limits)], alt)


def pair(first: float | None, second: float | None, scale: Scale, *, alt: str) -> Markup:
    parts = []
    for value, top, tone in ((first, 6, "hot"), (second, 15, "plain")):
        if value is not None and value > scale.low:
            parts.append(_bar(0.0, scale.at(value), top, 8, f"bar {tone}"))
    return _strip(parts, alt)


def spread(values: Sequence[float], scale: Scale, *, alt: str, tone: str = "plain") -> Markup:
    """Draw the range of five values (min, p50, p95, p99, max), thicker up to the 95th percentile."""
    least, middle, high, _, largest = values
    ends = scale.at(least), scale.at(largest)
    parts = [
        element("line", x1=at(ends[0]), x2=at(ends[1]), y1=MIDDLE, y2=MIDDLE, class_="whisker"),
        _bar(scale.at(least), scale.at(high), 10, HEIGHT - 20, f"box {tone}"),
        element("line", x1=at(scale.at(middle)), x2=at(scale.at(middle)), y1=8, y2=HEIGHT - 8, class_="median"),
        element("circle", cx=at(ends[1]), cy=MIDDLE, r=2.5, class_="mark"),
    ]
    return _strip(parts, alt)


def ridge(counts: Sequence[float], *, alt: str, tone: str = "plain", mean: float | None = None) -> Markup:
    """Draw a histogram of equal bins over the whole width, its highest bin as high as the strip; ``mean`` 0 to 100."""
    most = max(counts, default=0) or 1
    width = 100.0 / max(len(counts), 1)
    parts = []
    for index, held in enumerate(counts):
        if held:
            height = max((HEIGHT - 3) * held / most, 1.0)
            x, y = at(index * width), HEIGHT - height
            parts.append(element("rect", x=x, y=y, width=at(width), height=height, class_=f"bin {tone}"))
    if mean is not None:
        parts.append(element("line", x1=at(mean), x2=at(mean), y1=0, y2=HEIGHT, class_="mean"))
    return _strip(parts, alt)


def parts_of_whole(shares: Sequence[tuple[str, float, str]], *, alt: str, whole: float = 1.0) -> Markup:
    """Draw one bar that is cut into parts; a name stands in its part where it fits, and with its share in the title.

    ``shares`` are name, share of the width from 0 to 1, and tone; ``whole`` is the share of all parts together. A part
    without a name has ``alt`` as its title.
    """
    parts, begin = [], 0.0
    for label, part, tone in shares:
        end = min(begin + 100.0 * max(part, 0.0), 100.0)
        name = f"{label}: {number(100.0 * part / whole if whole else 0.0)} %" if label else alt
        cell = [title(name), _bar(begin, end, 0, 28, f"part {tone}")]
        if end - begin >= 1.6 * len(label):
            cell.append(text(label, x=at((begin + end) / 2.0), y=18, text_anchor="middle", class_=f"part-label {tone}"))
        parts.append(element("g", *cell))
        begin = end
    return element("svg", *parts, class_="parts", width="100%", height=28, role="img", aria_label=alt)


def _strip(parts: Sequence[Markup], alt: str) -> Markup:
    return element("svg", title(alt), *parts, class_="strip", width="100%", height=HEIGHT, role="img")


def _bar(begin: float, end: float, top: float, height: float, tone: str) -> Markup:
    width = max(end - begin, GAP_LEAST)
    return element("rect", x=at(begin), width=at(width), y=top, height=height, class_=tone)


def _limits(scale: Scale, limits: Sequence[Limit]) -> list[Markup]:
    places = [at(scale.at(limit.value)) for limit in limits]
    return [element("line", x1=place, x2=place, y1=0, y2=HEIGHT, class_="limit") for place in places]


def _anchor(place: float) -> str:
    return "start" if place < 8.0 else "end" if place > 92.0 else "middle"
