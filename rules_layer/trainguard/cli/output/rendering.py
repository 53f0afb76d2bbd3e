"""Blocks for people, rendered for terminals and pipes, and JSON for machines; stored text is never read as markup."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table as RichTable
from rich.text import Text

from trainguard.core.finding import Severity, Status
from trainguard.core.text import one_line, terminal_json

_STATUS_STYLES = {
    Status.FIRED: "bold red",
    Status.ERROR: "bold magenta",
    Status.OK: "green",
    Status.WARMING_UP: "yellow",
    Status.WAITING_FOR_DATA: "yellow",
}
# Shown for WARMING_UP of a job that has ended.
TOO_SHORT = "TOO_SHORT"

_SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.HIGH: "red", Severity.MEDIUM: "yellow"}
T = TypeVar("T")
_GAP = 2
_FOLDED = 20
_COMMAND_INDENT = 4


class Cell(msgspec.Struct, frozen=True):
    """A text with a style, which a terminal shows."""

    text: str
    style: str = ""


Shown = str | Cell


def status_cell(status: Status, *, over: bool = False) -> Cell:
    """Return a rule's status in its colour; WARMING_UP of a job that is over is TOO_SHORT."""
    shown = TOO_SHORT if over and status is Status.WARMING_UP else status.value
    return Cell(shown, _STATUS_STYLES.get(status, "dim"))


def severity_cell(severity: Severity | None) -> Shown:
    return "" if severity is None else Cell(severity.value, _SEVERITY_STYLES.get(severity, ""))


class TerminalColumn(msgspec.Struct, frozen=True):
    """A column; a long text of ``folds`` goes on below. A narrow terminal drops the highest ``drops`` first."""

    title: str
    right: bool = False
    folds: bool = False
    drops: int = 0


class Grid(msgspec.Struct, frozen=True):
    """Rows below headings, which are for terminals only; below ``stacks_below`` columns a row stands on two lines."""

    columns: Sequence[TerminalColumn]
    rows: Sequence[Sequence[Shown]]
    stacks_below: int = 0


def table(items: Iterable[T], cells: Mapping[TerminalColumn, Callable[[T], Shown]]) -> Grid:
    """Return a row for each item: in a column the value of the column's function."""
    return Grid(tuple(cells), [[cell(item) for cell in cells.values()] for item in items])


class TerminalFacts(msgspec.Struct, frozen=True):
    rows: Sequence[tuple[str, Shown]]


class Line(msgspec.Struct, frozen=True):
    """A sentence or several; ``indent`` columns in on a terminal. ``whole`` is never wrapped: it can be copied.

    ``apart`` is a terminal's blank line before it, where it is not the first.
    """

    text: str
    style: str = ""
    indent: int = 0
    whole: bool = False
    apart: bool = False


def heading(text: str) -> Line:
    return Line(text, style="bold", apart=True)


class Item(msgspec.Struct, frozen=True):
    """An entry of a growing list; ``labels`` are cells with widths, ``command`` is never wrapped."""

    labels: Sequence[tuple[Shown, int]]
    text: str
    advice: str | None = None
    command: str | None = None


Block = Grid | TerminalFacts | Line | Item


class _Piped(Console):
    """A console whose reader may go away; the rest is then not printed."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _leave_pipe(self.file.fileno())


def _leave_pipe(descriptor: int) -> None:
    """Send a stream whose reader has gone nowhere; else Python would complain once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def stdout_console() -> Console:
    """Return the console of the results; colours obey NO_COLOR and are for terminals only."""
    return _Piped(highlight=False)


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False)


def print_note(text: str) -> None:
    """Print a line for people to stderr."""
    stderr_console().print(Text(one_line(text)), soft_wrap=True)


def show(console: Console, blocks: Iterable[Block]) -> None:
    """Print blocks, each when it is there: laid out on a terminal, with tabs elsewhere."""
    for place, block in enumerate(blocks):
        if not console.is_terminal:
            for line in _plain(block):
                console.print(Segments([Segment("\t".join(line) + "\n")]), end="", soft_wrap=True)
        elif isinstance(block, Line) and block.whole:
            _print_whole(console, block.text, block.style)
        else:
            console.print(_rich(block, first=place == 0))
        if console.is_terminal and isinstance(block, Item) and block.command:
            _print_whole(console, " " * _COMMAND_INDENT + block.command, "bold")


def _print_whole(console: Console, text: str, style: str) -> None:
    """Print a line that no console wraps, so that it can be copied."""
    console.print(Text(one_line(text), style=style), soft_wrap=True)


def rendered(blocks: Sequence[Block]) -> RenderableType:
    return Group(*(_rich(block, first=index == 0) for index, block in enumerate(blocks)))


def print_json(document: msgspec.Struct | Mapping[str, Any]) -> None:
    """Print one JSON document, with control and direction characters escaped."""
    # `enc_hook` is asked for what msgspec does not know: mappings that cannot be changed.
    encoded = terminal_json(msgspec.json.format(msgspec.json.encode(document, enc_hook=dict), indent=2).decode())
    try:
        sys.stdout.write(encoded + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_pipe(sys.stdout.fileno())


def _plain(block: Block) -> Iterator[list[str]]:
    if isinstance(block, Line):
        yield [one_line(block.text)]
    elif isinstance(block, Item):
        cells = [*(_text(label) for label, _ in block.labels), block.text, block.advice, block.command]
        yield [one_line(cell) for cell in cells if cell]
    else:
        rows: Sequence[Sequence[Shown]] = block.rows
        for row in rows:
            yield [one_line(_text(cell)) or "-" for cell in row]


def _rich(block: Block, *, first: bool) -> RenderableType:
    if isinstance(block, Line):
        above = 1 if block.apart and not first else 0
        return Padding(Text(one_line(block.text), style=block.style), (above, 0, 0, block.indent))
    if isinstance(block, Grid):
        return _Fitting(block)
    if isinstance(block, Item):
        return _item(block)
    facts = RichTable(box=None, pad_edge=False, show_header=False)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, value in block.rows:
        facts.add_row(Text(one_line(name)), _styled(value))
    return facts


def _item(block: Item) -> RichTable:
    item = RichTable.grid(padding=(0, 1))
    for _, width in block.labels:
        item.add_column(width=width)
    item.add_column(overflow="fold")
    item.add_row(*(_styled(label) for label, _ in block.labels), Text(one_line(block.text)))
    if block.advice:
        item.add_row(*("" for _ in block.labels), Text(one_line(block.advice), style="italic"))
    return item


class _Fitting:
    """A table that leaves out columns where the terminal is too narrow for all."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; a column that folds takes what the others leave, at least `_FOLDED` characters."""
        if options.max_width < self._grid.stacks_below:
            # No room for columns: all cells of a row on one line, and the last one below.
            for *cells, below in self._grid.rows:
                yield Text(" ").join(_styled(cell) for cell in cells if _text(cell))
                yield Padding(_styled(below), (0, 0, 0, _GAP))
            return
        columns = self._grid.columns
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
