"""One number a row and step, in bounded rows and columns: a map of layers over steps."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeVar

import msgspec

from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.training.step_rule import USELESS

MOST_ROWS = 60
# Even, so that all columns have a neighbour to be joined with.
MOST_COLUMNS = 120

# Further names of what was left out are passed over.
MOST_NAMED = 100

LONGEST_NAME = 300

Keeps = Literal["largest", "newest"]


class HeatMap(msgspec.Struct, kw_only=True):
    """A number for each row at each column's steps.

    measure: What the numbers are.
    keeps: Which value stands for a column where several of its steps were read.
    rows: Names of layers or classes.
    rows_left_out: The first hundred names for which there was no room.
    steps: The first step of each column.
    values: By row, then by column; None where nothing was read, or no finite number.
    undefined: Row and column of cells of which a value was NaN or infinite.
    width: Of so many steps that held such tensors one was read, at the end.
    seen: How many steps held such tensors.
    read: How many of them were read.
    """

    measure: str
    keeps: Keeps = "largest"
    rows: list[str] = msgspec.field(default_factory=list)
    rows_left_out: list[str] = msgspec.field(default_factory=list)
    steps: list[int] = msgspec.field(default_factory=list)
    values: list[list[float | None]] = msgspec.field(default_factory=list)
    undefined: list[tuple[int, int]] = msgspec.field(default_factory=list)
    width: int = 1
    seen: int = 0
    read: int = 0
    most_columns: int = MOST_COLUMNS

    def is_next(self) -> bool:
        """Count a step that holds such tensors; return whether it is to be read."""
        reads = self.seen % self.width == 0
        self.seen += 1
        return reads

    def begin(self, step: int) -> None:
        if len(self.steps) >= self.most_columns:
            self._halve()
        self.read += 1
        self.steps.append(step)
        for values in self.values:
            values.append(None)

    def rows_of(self, names: Sequence[str], wanted: Collection[str] = ()) -> list[str]:
        """Return which of a step's tensors are shown; ``wanted`` ones first, then an even choice of the others."""
        known = set(self.rows)
        new = [name for name in names if name not in known]
        fitting = [name for name in new if len(name) <= LONGEST_NAME]
        taken = set(_chosen(fitting, MOST_ROWS - len(self.rows), wanted))
        for name in new:
            if name in taken:
                self.rows.append(name)
                self.values.append([None] * len(self.steps))
            else:
                leave_out(self.rows_left_out, name)
        shown = known | taken
        return [name for name in names if name in shown]

    def put(self, row: str, value: float) -> None:
        """Set a row's value in the newest column; the row was given room."""
        place, column = self.rows.index(row), len(self.steps) - 1
        if math.isfinite(value):
            self.values[place][column] = value
        else:
            self.undefined.append((place, column))

    def last_of(self, row: str) -> float | None:
        values = self.values[self.rows.index(row)]
        return next((value for value in reversed(values) if value is not None), None)

    def _halve(self) -> None:
        for row, values in enumerate(self.values):
            self.values[row] = [self._joined(values[place], values[place + 1]) for place in range(0, len(values), 2)]
        del self.steps[1::2]
        self.undefined = sorted({(row, column // 2) for row, column in self.undefined})
        self.width *= 2

    def _joined(self, one: float | None, other: float | None) -> float | None:
        if one is None or other is None:
            return other if one is None else one
        return max(one, other) if self.keeps == "largest" else other


def leave_out(names: list[str], name: str) -> None:
    """Add a name to those that were left out, unless it is there already or there are enough."""
    if len(names) < MOST_NAMED and name[:LONGEST_NAME] not in names:
        names.append(name[:LONGEST_NAME])


def _chosen(names: Sequence[str], room: int, wanted: Collection[str]) -> Sequence[str]:
    if len(names) <= room:
        return names
    first = [name for name in names if name in wanted][: max(room, 0)]
    others = [name for name in names if name not in wanted]
    left = room - len(first)
    if left <= 0:
        return first
    return [*first, *(others[place * len(others) // left] for place in range(min(left, len(others))))]


MOST_BYTES = 1 << 30
# Numbers that are read one by one; after them a series reads as many as it shows.
MOST_SCALARS = 50_000

# The part of what is left that one step may take: later ones shall have some.
SHARE_OF_STEP = 32

_ENTRY_BYTES = 4
LONGEST_WHY = 300

T = TypeVar("T")


class ReadBudget(msgspec.Struct, kw_only=True):
    """What may still be read: bytes of tensors' entries, at four each, and scalars."""

    bytes_left: int = MOST_BYTES
    scalars_left: int = MOST_SCALARS
    refused: int = 0
    failed: int = 0
    failed_why: str | None = None

    def scalar(self, fold: Callable[[StepView, str], T], step: StepView, name: str) -> T | None:
        """Fold a loss or a metric; None where it cannot be used."""
        self.scalars_left = max(self.scalars_left - 1, 0)
        return self.tried(fold, step, name)

    def tensor(
        self, fold: Callable[[StepView, str], T], step: StepView, name: str, allowance: "ReadBudget", *, times: int = 1
    ) -> T | None:
        """Fold a tensor whose entries are read ``times`` times; None where it is too large or cannot be used."""
        size = self.tried(_entries, step, name)
        if size is None:
            return None
        size *= _ENTRY_BYTES * times
        if size > allowance.bytes_left:
            self.refused += 1
            return None
        allowance.bytes_left -= size
        self.bytes_left -= size
        return self.tried(fold, step, name)

    def of_step(self) -> "ReadBudget":
        """Return what may still be read of a step."""
        return ReadBudget(bytes_left=self.bytes_left // SHARE_OF_STEP)

    def tried(self, fold: Callable[[StepView, str], T], step: StepView, name: str) -> T | None:
        """Fold a tensor, whatever it takes; where it cannot be used, count it and return None."""
        try:
            return fold(step, name)
        except USELESS as fault:
            self.failed += 1
            self.failed_why = str(fault)[:LONGEST_WHY]
            return None


def _entries(step: StepView, name: str) -> int:
    shape = step.shape(name)
    return 0 if shape is None or not step.has_value(name) else math.prod(shape)
