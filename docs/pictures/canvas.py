"""Boxes and arrows as SVG: readable in light and dark, without a library, the same bytes every time."""

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1b2430; }
.small { font-size: 11.5px; fill: #4a5868; }
.ground { fill: #ffffff; }
.box { fill: #f2f6f8; stroke: #5b7083; stroke-width: 1.3; }
.function { fill: #dff3ee; stroke: #0b7a66; }
.store { fill: #e6ecfb; stroke: #3c5bb5; }
.people { fill: #fdf0d9; stroke: #a5690a; }
.outside { fill: #ffffff; stroke: #5b7083; stroke-dasharray: 4 3; }
.room { fill: none; stroke: #a9b7c3; stroke-dasharray: 2 4; }
.line { fill: none; stroke: #44566a; stroke-width: 1.4; }
.later { stroke-dasharray: 5 4; }
.head { fill: #44566a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e3e9ef; }
  .small { fill: #aab8c5; }
  .ground { fill: #171c22; }
  .box { fill: #232c35; stroke: #8fa3b5; }
  .function { fill: #113a33; stroke: #4cc2aa; }
  .store { fill: #1d2b52; stroke: #8fa8f0; }
  .people { fill: #44320f; stroke: #e0ae57; }
  .outside { fill: #171c22; stroke: #8fa3b5; }
  .room { stroke: #51606e; }
  .line { stroke: #a3b4c4; }
  .head { fill: #a3b4c4; }
}
"""
_LINE = 16

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text; ``kind`` is its colour's class."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    kind: str

    def at(self, side: str, share: float = 0.5) -> Point:
        """Return the point on a side (``left``, ``right``, ``top``, ``bottom``) at a share of its length."""
        if side in {"left", "right"}:
            return self.x + (self.width if side == "right" else 0), self.y + self.height * share
        return self.x + self.width * share, self.y + (self.height if side == "bottom" else 0)


@dataclass(slots=True)
class Canvas:
    """A picture with a title, for those who do not see it a description, and its parts."""

    title: str
    description: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, text: str, kind: str = "box") -> Box:
        """Add a box; the first line of its text is its name, the others are small."""
        lines = tuple(text.split("\n"))
        box = Box(x, y, width, height, lines, kind)
        classes = "box" if kind == "box" else f"box {kind}"
        self.parts.append(f'<rect class="{classes}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        first = y + height / 2 - _LINE * (len(lines) - 1) / 2 + 4.5
        for index, line in enumerate(lines):
            self._text(x + width / 2, first + _LINE * index, line, small=index > 0)
        return box

    def room(self, x: float, y: float, width: float, height: float, text: str) -> None:
        """Add a dashed frame around what belongs together, with a name at its upper left."""
        frame = f'<rect class="room" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10"/>'
        self.parts.append(frame)
        self._text(x + 10, y + 17, text, small=True, anchor="start")

    def arrow(self, *points: Point, text: str = "", at: Point | None = None, later: bool = False) -> None:
        """Add an arrow through points; its text stands at ``at``, else above the middle of its first part."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        classes = "line later" if later else "line"
        self.parts.append(f'<path class="{classes}" d="M {path}" marker-end="url(#head)"/>')
        if text:
            (x0, y0), (x1, y1) = points[0], points[1]
            x, y = at or ((x0 + x1) / 2, (y0 + y1) / 2 - 6)
            for index, line in enumerate(text.split("\n")):
                self._text(x, y + 14 * index, line, small=True)

    def words(self, x: float, y: float, text: str) -> None:
        """Add small text that begins at a point."""
        for index, line in enumerate(text.split("\n")):
            self._text(x, y + 15 * index, line, small=True, anchor="start")

    def _text(self, x: float, y: float, text: str, *, small: bool, anchor: str = "middle") -> None:
        self.texts.append(text)
        classes = ' class="small"' if small else ""
        self.parts.append(f'<text{classes} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def svg(self) -> str:
        """Return the picture."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="head" d="M 0 0 L 8 4 L 0 8 z"/></marker>'
        )
        root = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img"'
            f' width="{self.width}" height="{self.height}" aria-labelledby="title description">'
        )
        return "\n".join(
            [
                root,
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="description">{escape(self.description)}</desc>',
                f"<style>{STYLE}</style>",
                f"<defs>{head}</defs>",
                f'<rect class="ground" width="{self.width}" height="{self.height}" rx="10"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )
