"""Histories of training as tables: CSV of any delimiter, with or without a column that counts the steps."""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.scalars.cells import have_commas, is_absent, number_in
from trainguard.formats.tensors.scalars.names import GRADIENT_NORM, LEARNING_RATE, LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.positions import PositionColumns, columns_of, is_position
from trainguard.formats.tensors.scalars.table_forms import LongTable, begins_as_monitor, is_download, names_of_columns
from trainguard.formats.tensors.scalars.taken_rows import TakenRows
from trainguard.formats.tensors.scalars.text_lines import WholeLines, first_line

# Rows by which the kind of a column is known.
FEWEST_ROWS = 3

# A value is of another scale beyond so many times the largest, or below that part of the smallest, so far.
ORDERS = 10.0

# So many columns, and this share of them, differ where a row has other columns: one loss may always jump.
FEWEST_ODD, SHARE_ODD = 3, 0.4


@dataclass(slots=True)
class _Kind:
    whole: bool = True
    least: float = math.inf
    most: float = 0.0

    def add(self, value: float) -> None:
        self.whole = self.whole and value == int(value)
        if value:
            self.least, self.most = min(self.least, abs(value)), max(self.most, abs(value))

    def is_odd(self, value: float) -> bool:
        if self.whole and value != int(value):
            return True
        return bool(value and self.most) and not self.least / ORDERS <= abs(value) <= self.most * ORDERS


@dataclass(slots=True)
class ColumnKinds:
    """The kinds of the columns under one header, by their places; ``step`` is the place of what counts."""

    step: int | None = None
    fits: bool = True
    _kinds: dict[int, _Kind] = field(default_factory=dict)
    _rows: int = 0
    _width: int = 0
    _newest: float = -math.inf

    def take(self, numbers: Sequence[float | None]) -> bool:
        """Return whether a row, None where a cell is no number, is of the columns so far; then they learn from it."""
        step = None if self.step is None or self.step >= len(numbers) else _finite(numbers[self.step])
        goes_back = step is not None and step < self._newest
        if self._rows >= FEWEST_ROWS and (goes_back or len(numbers) != self._width):
            self.fits = not self._are_others(numbers, step)
        self._width = len(numbers)
        self._newest = self._newest if step is None else step
        if self.fits:
            self._learn(numbers)
        return self.fits

    def _are_others(self, numbers: Sequence[float | None], step: float | None) -> bool:
        counts = None if self.step is None else self._kinds.get(self.step)
        if counts is not None and (step is None or (counts.whole and step != int(step))):
            return True
        values = [(self._kinds.get(at), _finite(each)) for at, each in enumerate(numbers) if at != self.step]
        odd = [kind.is_odd(each) for kind, each in values if kind is not None and each is not None]
        return sum(odd) >= FEWEST_ODD and sum(odd) >= SHARE_ODD * len(odd)

    def _learn(self, numbers: Sequence[float | None]) -> None:
        self._rows += 1
        for at, each in enumerate(numbers):
            if (value := _finite(each)) is not None:
                self._kinds.setdefault(at, _Kind()).add(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"\s*\"?sep=(?P<delimiter>[,;\t|])\"?\s*", re.IGNORECASE)
_TRUE = ("1", "true", "t")
# Lines by which a table shows how it writes numbers.
_LOOKED_AT = 200

# Columns of texts that say when a row was written, or by what.
_BESIDE = re.compile(
    r"(?:^|[^a-z])(?:time|times|timestamp|date|datetime|duration|elapsed|host|node|phase|split|stage|mode|run)(?:[^a-z]|$)",
    re.IGNORECASE,
)


def delimiter_of(line: str) -> str:
    most = max(_DELIMITERS, key=line.count)
    return most if most in line else " " if len(line.split()) > 1 else ","


def header_of(line: str) -> list[str]:
    """Return the names in a line; none where quotes make it no line of a table."""
    try:
        return next(_cells([line.lstrip().removeprefix("#")], delimiter_of(line)), [])
    except csv.Error:
        return []


def is_training_table(beginning: bytes, names: ScalarNames) -> bool:
    """Whether a table is one of training, by its first line: it counts steps, and names a loss or the like."""
    try:
        first = first_line(beginning)
    except UnicodeDecodeError:
        return False
    header = header_of(first)
    if begins_as_monitor(first) or is_download(header) or LongTable.of(header) is not None:
        return True
    counted = columns_of(header).step
    others = [cell for place, cell in enumerate(header) if place != counted]
    return counted is not None and header[counted] != "" and _names_training(others, names)


def _names_training(columns: Sequence[str], names: ScalarNames) -> bool:
    return any(names.members(meaning, columns) for meaning in (LOSSES, METRICS, LEARNING_RATE, GRADIENT_NORM))


def read_table(name: str, lines: WholeLines, taken: TakenRows) -> bool:
    """Read a table with a line a step into ``taken``; return False for a text that is no table of training.

    Raises csv.Error for quotes that do not end; TelemetryFormatError for a table whose rows are no steps.
    """
    table = _Table(name, lines, taken)
    if not table.opened():
        return False
    table.read()
    return True


class _Table:
    def __init__(self, name: str, lines: WholeLines, taken: TakenRows) -> None:
        self._name = name
        self._lines = lines
        self._taken = taken
        self._header: list[str] = []
        self._columns = PositionColumns(None)
        self._named: list[str | None] = []
        self._numeric: set[str] = set()
        self._kinds = ColumnKinds()
        self._long: LongTable | None = None

    def opened(self) -> bool:
        """Read up to the header; whether there is one, which counts steps or has numbers below it."""
        ahead = self._lines.peek(_LOOKED_AT)
        skipped, delimiter = self._before_header(ahead)
        if skipped >= len(ahead):
            return False
        first = ahead[skipped]
        self._delimiter = delimiter or delimiter_of(first)
        sample = list(_cells(ahead[skipped + 1 :], self._delimiter))
        self._comma = have_commas(cell for cells in sample for cell in cells)
        header = next(_cells([first.lstrip().removeprefix("#")], self._delimiter), [])
        if self._have_names(sample, len(header) + 1):
            header = ["", *header]
        self._use(names_of_columns(self._name, ahead[:skipped], header))
        for _ in range(skipped + 1):
            next(self._lines)
        return self._is_history(header, sample)

    def _have_names(self, sample: Sequence[Sequence[str]], width: int) -> bool:
        """Whether rows have names that the header does not name, as R writes them: their numbers."""
        first = [self._number(cells[0]) for cells in sample if cells]
        counted = any(first == [float(at) for at in range(begin, begin + len(first))] for begin in (0, 1))
        return bool(first) and counted and all(len(cells) == width and cells[-1] for cells in sample if cells)

    @staticmethod
    def _before_header(ahead: Sequence[str]) -> tuple[int, str | None]:
        """Return how many lines stand before the names of columns, and the delimiter that one of them names."""
        delimiter = None
        for number, line in enumerate(ahead):
            match = _SEPARATOR.fullmatch(line.strip("\r\n"))
            if match is not None:
                delimiter = match["delimiter"]
                continue
            if not line.strip():
                continue
            following = next((each for each in ahead[number + 1 :] if each.strip()), "")
            if line.lstrip().startswith("#") and not _has_numbers(following):
                continue
            return number, delimiter
        return len(ahead), delimiter

    def _is_history(self, header: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
        rows = [cells for cells in sample if any(cells)]
        below = list(takewhile(lambda cells: not self._is_header(cells), rows))
        place = self._columns.step
        if place is not None and len(header) > 1:
            counts = [cells[place] for cells in below if len(cells) > place]
            return any(self._number(cell) is not None for cell in counts) or not rows
        numeric = [self._number(cells[0]) is not None or is_absent(cells[0]) for cells in below if cells]
        is_table = self._delimiter != " " and all(len(cells) == len(header) for cells in below)
        if not is_table or not any(map(self._has_number, below)) or self._has_number(header[:1]):
            return False
        if not all(numeric) and not _BESIDE.search(header[0]):
            why = f"no column counts steps, and column {header[0]!r:.40} holds texts, expected a step or epoch"
            raise TelemetryFormatError(self._name, f"columns {list(header[:20])!r:.300}: {why}")
        return True

    def _has_number(self, cells: Sequence[str]) -> bool:
        return any(self._number(cell) is not None for cell in cells)

    def _number(self, cell: str) -> float | None:
        return number_in(cell, comma=self._comma)

    def _use(self, header: list[str]) -> None:
        self._header = header
        self._columns = columns_of(header)
        counted = {self._columns.step, self._columns.epoch}
        self._named = [None if place in counted or is_position(name) else name for place, name in enumerate(header)]
        self._kinds = ColumnKinds(self._columns.step)
        self._long = LongTable.of(header)

    def read(self) -> None:
        reader = csv.reader(self._lines, delimiter=self._delimiter, skipinitialspace=self._delimiter == " ")
        for cells in reader:
            self._lines.begin_row()
            if self._taken.is_full(self._lines.number):
                break
            self._row([cell.strip() for cell in cells])
        self._finish_long()
        if self._lines.too_long:
            self._taken.refuse("line", f"a line has over {self._lines.most:,} characters", self._lines.too_long)

    def _row(self, cells: list[str]) -> None:
        if not any(cells) or cells[0].startswith("#") or cells == self._header:
            return
        line = self._lines.number
        while len(cells) > len(self._header) and not cells[-1]:
            cells.pop()
        if self._is_header(cells):
            self._finish_long()
            self._use(cells)
        elif self._long is not None:
            self._take_long(self._long, cells, line)
        elif len(cells) > len(self._header):
            self._taken.refuse("line", f"line {line:,} has {len(cells)} cells, expected {len(self._header)}")
        elif self._kinds.take(numbers := [self._number(cell) for cell in cells]):
            self._take(cells, numbers, line)
        else:
            why = f"line {line:,}: its {len(cells)} cells are of other columns than the header names"
            self._taken.refuse("line", f"{why}, expected a header where columns change")

    def _is_header(self, cells: Sequence[str]) -> bool:
        """Whether cells name columns from here on, as a second run with others does."""
        if self._has_number(cells):
            return False
        return columns_of(cells).step is not None or (self._columns.step is None and _is_like(cells, self._header))

    def _take(self, cells: Sequence[str], numbers: Sequence[float | None], line: int) -> None:
        values: dict[str, float] = {}
        for name, cell, value in zip(self._named, cells, numbers, strict=False):
            if name is None:
                continue
            if value is not None:
                values[name] = value
            elif name in self._numeric and not is_absent(cell):
                why = f"line {line:,}: {cell!r:.40} in column {name!r:.40} is no number"
                self._taken.refuse("cell", why)
        self._numeric |= values.keys()
        step = self._count(cells, self._columns.step)
        self._taken.add(f"line {line:,}", step, values, epoch=self._epoch(cells))

    def _take_long(self, table: LongTable, cells: Sequence[str], line: int) -> None:
        """Take a row that is one value of a scalar."""
        key, text = table.cell("key", cells), table.cell("value", cells)
        step = self._number(table.cell("step", cells))
        value = math.nan if table.cell("is_nan", cells).lower() in _TRUE else self._number(text)
        if table.is_of_other_run(cells):
            self._taken.refuse(
                "line", f"line {line:,} is of run {table.cell('run', cells)!r:.40}, expected one run a table"
            )
        elif step is None or math.isnan(step) or value is None or not key:
            why = f"line {line:,}: {key!r:.40} has {text!r:.40} at step {table.cell('step', cells)!r:.40}"
            self._taken.refuse("line", f"{why}, expected a name and two numbers")
        else:
            table.add(line, step, key, value)

    def _finish_long(self) -> None:
        for line, step, values in self._long.rows() if self._long is not None else ():
            self._taken.add(f"line {line:,}", step, values)

    def _count(self, cells: Sequence[str], place: int | None) -> object:
        if place is None:
            return self._taken.next_number
        found = self._number(cells[place]) if place < len(cells) else None
        return (cells[place] if place < len(cells) else None) if found is None else found

    def _epoch(self, cells: Sequence[str]) -> float | None:
        place = self._columns.epoch
        found = None if place is None or place >= len(cells) else self._number(cells[place])
        return found if found is not None and found >= 0.0 else None


def _cells(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of lines, as far as quotes end; raises csv.Error of the first line alone."""
    reader = csv.reader(iter(lines), delimiter=delimiter, skipinitialspace=delimiter == " ")
    first = next(reader, None)
    if first is None:
        return
    yield [cell.strip() for cell in first]
    try:
        for cells in islice(reader, _LOOKED_AT):
            yield [cell.strip() for cell in cells]
    except csv.Error:
        return


def _is_like(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether cells are names each once, and one of them is one of a header."""
    return all(cells) and len(set(cells)) == len(cells) and not set(cells).isdisjoint(header)


def _has_numbers(line: str) -> bool:
    """Whether a line holds numbers alone."""
    cells = [cell.strip() for cell in re.split(r"[,;\t| ]+", line.strip()) if cell.strip()]
    return bool(cells) and all(number_in(cell) is not None or is_absent(cell) for cell in cells)
