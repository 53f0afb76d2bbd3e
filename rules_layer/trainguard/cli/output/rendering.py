"""One room for answers: tables and words on a terminal, tabs elsewhere, one JSON document, and an exit code.

A command makes an Answer; how it looks is decided here. What was stored is text that anybody may have written: it is
shown with its control characters spelled out, and never read as markup.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from trainguard.cli.output.terminal import print_tabbed, stdout_console
from trainguard.errors import PortUnavailableError, TrainGuardError
from trainguard.plain_text import one_line, terminal_json
from trainguard.records import Severity, Status

SCHEMA_VERSION = "1"
RAN, FIRED, REFUSED = 0, 1, 2

_STATUS_STYLES = {
    Status.FIRED: "bold red",
    Status.ERROR: "bold magenta",
    Status.OK: "green",
    Status.WARMING_UP: "yellow",
    Status.WAITING_FOR_DATA: "yellow",
}
_SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.HIGH: "red", Severity.MEDIUM: "yellow"}
_GAP = 2
_FOLDED = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style, which a terminal shows."""

    text: str
    style: str = ""


Shown = str | Cell


def status_cell(status: Status) -> Cell:
    """Return a rule's status in its colour."""
    return Cell(status.value, _STATUS_STYLES.get(status, "dim"))


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
    """Rows below headings; headings are for terminals only, so that what is piped has one shape."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Shown]]


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


Block = Grid | Facts | Heading | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command found out.

    Attributes
    ----------
    document : msgspec.Struct or mapping
        For machines; it begins with ``schema_version``.
    blocks : sequence
        For people.
    notes : sequence of str
        What is no part of the answer itself; goes to stderr.
    fired : bool
        Whether a rule has fired, for `--fail-on-fire`.
    final : bool
        Whether another look will find the same.
    """

    document: msgspec.Struct | Mapping[str, Any]
    blocks: Sequence[Block]
    notes: Sequence[str] = field(default=())
    fired: bool = False
    final: bool = False


def give(make: Callable[[], Answer], *, as_json: bool, fail_on_fire: bool = False) -> int:
    """Make an answer and print it; return the exit code."""
    try:
        answer = make()
    except TrainGuardError as fault:
        complain(fault)
        return REFUSED
    if as_json:
        print_json(answer.document)
    else:
        show(stdout_console(), answer.blocks)
    for note in answer.notes:
        say(note)
    return FIRED if fail_on_fire and answer.fired else RAN


def say(text: str) -> None:
    """Print a line for people to stderr."""
    Console(stderr=True, highlight=False).print(Text(one_line(text)), soft_wrap=True)


def complain(fault: TrainGuardError) -> None:
    """Print a fault to stderr, with what to do about it where AWS's answer is behind it."""
    say(f"trainguard: {advised_fault(fault)}")


def advised_fault(fault: TrainGuardError) -> TrainGuardError:
    """Return the fault, or one that says what to do where AWS's answer is behind it."""
    behind: BaseException | None = fault
    while behind is not None and not isinstance(behind, PortUnavailableError):
        behind = behind.__cause__
    if behind is None:
        return fault
    # The AWS client library takes long to import, and has been where such a fault comes from.
    from trainguard.cli.services.deployment import advised

    told = advised(behind)
    return fault if told is behind else told


def show(console: Console, blocks: Sequence[Block]) -> None:
    """Print blocks: laid out on a terminal, with tabs elsewhere."""
    for place, block in enumerate(blocks):
        if console.is_terminal and not (isinstance(block, Line) and block.whole):
            console.print(_rich(block, first=place == 0))
            continue
        for line in _plain(block):
            print_tabbed(console, [line])


def rendered(blocks: Sequence[Block]) -> RenderableType:
    """Return blocks as a terminal shows them."""
    return Group(*(_rich(block, first=index == 0) for index, block in enumerate(blocks)))


def print_json(document: msgspec.Struct | Mapping[str, Any]) -> None:
    """Print one JSON document; what would steer a terminal is escaped, as JSON allows anywhere in its texts."""
    encoded = terminal_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    try:
        sys.stdout.write(encoded + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone; without this, Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(block: Block) -> list[str]:
    if isinstance(block, Heading | Line):
        return [one_line(block.text)]
    rows: Sequence[Sequence[Shown]] = block.rows
    return ["\t".join(one_line(_text(cell)) or "-" for cell in row) for row in rows]


def _rich(block: Block, *, first: bool) -> RenderableType:
    if isinstance(block, Heading):
        return Padding(Text(one_line(block.text), style="bold"), (0 if first else 1, 0, 0, 0))
    if isinstance(block, Line):
        return Padding(Text(one_line(block.text), style=block.style), (0, 0, 0, block.indent))
    if isinstance(block, Grid):
        return _Fitting(block)
    facts = RichTable(box=None, pad_edge=False, show_header=False)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, value in block.rows:
        facts.add_row(Text(one_line(name)), _styled(value))
    return facts


class _Fitting:
    """A table that leaves out columns where the terminal is too narrow for all."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; a column that folds takes what the others leave, at least `_FOLDED` characters."""
        columns = list(self._grid.columns)
        widths = [self._width(place) for place in range(len(columns))]
        kept = list(range(len(columns)))
        while not (fits := sum(widths[place] + _GAP for place in kept) - _GAP <= options.max_width):
            last = max(kept, key=lambda place: columns[place].drops)
            if columns[last].drops == 0:
                break
            kept.remove(last)
        table = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for place in kept:
            column = columns[place]
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=not column.folds,
                overflow="fold" if column.folds else "ellipsis",
                min_width=widths[place] if column.folds and fits else None,
            )
        for row in self._grid.rows:
            table.add_row(*(_styled(row[place]) for place in kept))
        yield table

    def _width(self, place: int) -> int:
        column = self._grid.columns[place]
        longest = max((cell_len(one_line(_text(row[place]))) for row in self._grid.rows), default=0)
        return max(cell_len(column.title), min(longest, _FOLDED) if column.folds else longest)


def _styled(cell: Shown) -> Text:
    return Text(one_line(_text(cell)), style=cell.style if isinstance(cell, Cell) else "")


def _text(cell: Shown) -> str:
    return cell.text if isinstance(cell, Cell) else cell
