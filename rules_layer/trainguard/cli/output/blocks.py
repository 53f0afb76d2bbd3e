"""What commands show to people, before it is known where: tables, facts, headings, sentences, items of a list."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.finding import Severity
from trainguard.records import Status

_STATUS_STYLES = {
    Status.FIRED: "bold red",
    Status.ERROR: "bold magenta",
    Status.OK: "green",
    Status.WARMING_UP: "yellow",
    Status.WAITING_FOR_DATA: "yellow",
}
TOO_SHORT = "TOO_SHORT"
"""What people are shown for WARMING_UP of a job that has ended."""

_SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.HIGH: "red", Severity.MEDIUM: "yellow"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style, which a terminal shows."""

    text: str
    style: str = ""


Shown = str | Cell


def status_cell(status: Status, *, over: bool = False) -> Cell:
    """Return a rule's status in its colour; of a job that is over, which warms up no more, TOO_SHORT."""
    shown = TOO_SHORT if over and status is Status.WARMING_UP else status.value
    return Cell(shown, _STATUS_STYLES.get(status, "dim"))


def severity_cell(severity: Severity | None) -> Shown:
    """Return a finding's severity in its colour."""
    return "" if severity is None else Cell(severity.value, _SEVERITY_STYLES.get(severity, ""))


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    ``folds`` says that a long text goes on below instead of widening the table. On a terminal that is too narrow for
    all columns those with a ``drops`` are left out, the highest first.
    """

    title: str
    right: bool = False
    folds: bool = False
    drops: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below headings; headings are for terminals only, so that what is piped has one shape.

    On a terminal of less than ``stacks_below`` columns the cells of a row stand on one line, and its last one below.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Shown]]
    stacks_below: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values."""

    rows: Sequence[tuple[str, Shown]]


@dataclass(frozen=True, slots=True)
class Heading:
    """The beginning of a section."""

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
    """An entry of a list that is shown while it grows.

    Attributes
    ----------
    labels : sequence of tuple
        Cells with the columns that each takes on a terminal: the entries of a list stand below each other.
    text : str
    advice, command : str or None
        What to do, in words below the text, and for a shell below that, never wrapped. Empty where there is nothing.
    """

    labels: Sequence[tuple[Shown, int]]
    text: str
    advice: str | None = None
    command: str | None = None


Block = Grid | Facts | Heading | Line | Item
