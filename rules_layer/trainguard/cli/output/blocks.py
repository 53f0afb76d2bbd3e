"""Blocks for people, without a medium: tables, facts, headings, sentences, items of a list."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainguard.core.finding import Severity
from trainguard.core.records import Status

_STATUS_STYLES = {
    Status.FIRED: "bold red",
    Status.ERROR: "bold magenta",
    Status.OK: "green",
    Status.WARMING_UP: "yellow",
    Status.WAITING_FOR_DATA: "yellow",
}
TOO_SHORT = "TOO_SHORT"
"""Shown for WARMING_UP of a job that has ended."""

_SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.HIGH: "red", Severity.MEDIUM: "yellow"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style, which a terminal shows."""

    text: str
    style: str = ""


Shown = str | Cell
T = TypeVar("T")


def status_cell(status: Status, *, over: bool = False) -> Cell:
    """Return a rule's status in its colour; WARMING_UP of a job that is over is TOO_SHORT."""
    shown = TOO_SHORT if over and status is Status.WARMING_UP else status.value
    return Cell(shown, _STATUS_STYLES.get(status, "dim"))


def severity_cell(severity: Severity | None) -> Shown:
    return "" if severity is None else Cell(severity.value, _SEVERITY_STYLES.get(severity, ""))


@dataclass(frozen=True, slots=True)
class Column:
    """A column; a long text of ``folds`` goes on below. A narrow terminal drops the highest ``drops`` first."""

    title: str
    right: bool = False
    folds: bool = False
    drops: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below headings, which are for terminals only; below ``stacks_below`` columns a row stands on two lines."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Shown]]
    stacks_below: int = 0


def table(items: Iterable[T], cells: Mapping[Column, Callable[[T], Shown]]) -> Grid:
    """Return a row for each item: in a column the value of the column's function."""
    return Grid(tuple(cells), [[cell(item) for cell in cells.values()] for item in items])


@dataclass(frozen=True, slots=True)
class Facts:
    rows: Sequence[tuple[str, Shown]]


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or several; ``indent`` columns in on a terminal. ``whole`` is never wrapped: it can be copied."""

    text: str
    style: str = ""
    indent: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a growing list; ``labels`` are cells with widths, ``command`` is never wrapped."""

    labels: Sequence[tuple[Shown, int]]
    text: str
    advice: str | None = None
    command: str | None = None


Block = Grid | Facts | Heading | Line | Item
