"""A whole and its parts: a ring, and beside it a row a part with a bar and numbers, as rings alone are hard to read."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import share
from trainguard.report.html.plots.strips import parts_of_whole
from trainguard.report.html.plots.svg import element, number, title

RADIUS = 34.0
COLOURS = 8


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole: its name, its share from 0 to 1, the same in its unit, and its colour from 1 to 8."""

    label: str
    share: float
    value: str
    colour: int


def donut(parts: Sequence[Part], *, said: str) -> Markup:
    """Draw the parts of a whole; shares add up to 1 at most."""
    drawn, begin = [], 0.0
    for part in parts:
        length = 100.0 * min(max(part.share, 0.0), 1.0)
        if length > 0.0:
            ring = element(
                "circle",
                title(f"{part.label}: {share(part.share)}"),
                cx=50.0,
                cy=50.0,
                r=RADIUS,
                pathLength=100,
                stroke_dasharray=f"{number(length)} {number(100.0 - length)}",
                stroke_dashoffset=number(25.0 - begin),
                class_=f"ring s{part.colour}",
            )
            drawn.append(ring)
        begin += length
    back = element("circle", cx=50.0, cy=50.0, r=RADIUS, class_="ring none")
    picture = element("svg", title(said), back, *drawn, viewBox="0 0 100 100", class_="donut", role="img")
    row = Markup(
        '<tr><th scope="row">{}{}</th><td class="bar-cell">{}</td>'
        '<td class="number">{}</td><td class="number">{}</td></tr>'
    )
    rows = [
        row.format(_swatch(each), shown_name(each.label, 60), _bar(each), share(each.share), each.value)
        for each in parts
    ]
    return Markup('<div class="whole">{}<table class="shares"><tbody>{}</tbody></table></div>').format(
        picture, Markup("").join(rows)
    )


def _swatch(part: Part) -> Markup:
    square = element("rect", x=1, y=1, width=10, height=10, rx=2, class_=f"part s{part.colour}")
    return element("svg", square, class_="swatch", width=12, height=12, aria_hidden="true")


def _bar(part: Part) -> Markup:
    return parts_of_whole([("", part.share, f"s{part.colour}")], said=f"{part.label}: {share(part.share)}")
