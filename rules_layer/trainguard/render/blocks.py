"""What a section of the page is made of; templates/blocks.html.j2 writes it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

from markupsafe import Markup

from trainguard.render.plots.scale import Scale
from trainguard.render.plots.strips import Limit, head

T = TypeVar("T")
Cell = str | Markup


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``head`` is the axis of one that holds strips, over ``grid`` equal intervals."""

    title: str
    kind: Literal["text", "number", "plot"] = "text"
    head: Markup | None = None
    grid: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend; ``swatch`` is the class of its sign."""

    swatch: str
    label: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of each row names it."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    legend: Sequence[Key] = ()
    note: str | None = None
    block: ClassVar[str] = "table"


@dataclass(frozen=True, slots=True)
class Figure:
    caption: str
    markup: Markup
    legend: Sequence[Key] = ()
    block: ClassVar[str] = "figure"


@dataclass(frozen=True, slots=True)
class Figures:
    """Charts side by side where there is room."""

    figures: Sequence[Figure]
    block: ClassVar[str] = "figures"


@dataclass(frozen=True, slots=True)
class Facts:
    facts: Sequence[tuple[str, Cell]]
    block: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    block: ClassVar[str] = "note"


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: Sequence["Block"] = field(default_factory=tuple)
    block: ClassVar[str] = "folded"


Block = Table | Figure | Figures | Facts | Note | Folded


def plot_column(title: str, scale: Scale, unit: str = "", limits: Sequence[Limit] = ()) -> Column:
    """Return a column of strips, with the axis in its head."""
    return Column(title, "plot", head(scale, unit, limits), max(len(scale.ticks) - 1, 0))


def heat(shade: int, label: str) -> Markup:
    """Return a cell's text on one of the shades 0 (none) to 4 (most)."""
    return Markup('<span class="heat heat-{}">{}</span>').format(min(max(shade, 0), 4), label)


def numeric(title: str) -> Column:
    return Column(title, "number")


def table(
    caption: str,
    things: Iterable[T],
    *fields: tuple[str | Column, Callable[[T], Cell]],
    note: str | None = None,
) -> Table:
    """Return a table of some things: a field is a column, or its title, and its text of each of them."""
    columns = [Column(column) if isinstance(column, str) else column for column, _ in fields]
    return Table(caption, columns, [[write(each) for _, write in fields] for each in things], note=note)
