"""Sums over the whole job in few steps of time, which are the same steps for every stream: they begin at multiples.

A step is 15 s, and doubles while there are too many. It begins at a multiple of its width since the epoch, so that the
steps of two streams can be compared. All sums are whole numbers and all times are cut at the bounds of 15 s: the same
data give the same sums in whatever portions and order they come.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray

MOST_STEPS = 120
UNIT_S = 15
UNIT_MS = 1_000 * UNIT_S
_WIDEST = 2**32
_LARGEST = 2**53


class TimeGrid(msgspec.Struct, array_like=True):
    """``columns`` of whole numbers, one a step; the first step is number ``first`` since the epoch.

    ``width`` is that of a step in units of 15 s, a power of two. Raises ValueError when it is no such grid.
    """

    first: int = 0
    width: int = 1
    columns: list[list[int]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Compare the parts: a stored grid that does not fit is a damaged state."""
        lengths = {len(column) for column in self.columns}
        if len(lengths) > 1 or max(lengths, default=0) > MOST_STEPS:
            raise ValueError(f"steps of time in columns of {sorted(lengths)}, expected one length up to {MOST_STEPS}")
        if not 0 < self.width <= _WIDEST or self.width & (self.width - 1):
            raise ValueError(f"steps of {self.width} units, expected a power of two")
        if not 0 <= self.first < _LARGEST or any(not 0 <= each < _LARGEST for row in self.columns for each in row):
            raise ValueError("a negative or very large sum in a step of time")

    @property
    def edges(self) -> FloatArray:
        """Beginning of each step and end of the last one, epoch seconds, float64[S + 1]; empty without steps."""
        length = len(self.columns[0]) if self.columns else 0
        if not length:
            return np.zeros(0)
        numbers = np.arange(self.first, self.first + length + 1, dtype=np.float64)
        edges: FloatArray = numbers * float(UNIT_S * self.width)
        return edges

    @property
    def width_s(self) -> float:
        """Width of a step, seconds."""
        return float(UNIT_S * self.width)

    def column(self, number: int) -> FloatArray:
        """Return the sums of one column, float64[S]."""
        return np.array(self.columns[number] if number < len(self.columns) else [], dtype=np.float64)

    def add(self, units: IntArray, values: Sequence[IntArray]) -> None:
        """Add ``values``, int64[N] a column, each in its unit of 15 s since the epoch, ``units``, int64[N]."""
        if not units.size:
            return
        if not self.columns or not self.columns[0]:
            self.first = int(units.min()) // self.width
            self.columns = [[] for _ in values]
        while self.reach(units) > MOST_STEPS:
            self.widen()
        numbers = units // self.width
        ahead = max(self.first - int(numbers.min()), 0)
        self.first -= ahead
        places = numbers - self.first
        length = max(int(places.max()) + 1, ahead + len(self.columns[0]))
        for row, column in enumerate(values):
            sums = np.zeros(length, dtype=np.int64)
            sums[ahead : ahead + len(self.columns[row])] = self.columns[row]
            np.add.at(sums, places, column)
            self.columns[row] = sums.tolist()

    def reach(self, units: IntArray) -> int:
        """Return how many steps there are with samples in ``units``, int64[N], of which there is one."""
        numbers = int(units.min()) // self.width, int(units.max()) // self.width
        held = len(self.columns[0]) if self.columns else 0
        last = max(numbers[1], self.first + held - 1 if held else numbers[1])
        return last - min(numbers[0], self.first if held else numbers[0]) + 1

    def widen(self) -> None:
        """Make one step of each two."""
        odd = [0] * (self.first % 2)
        self.first //= 2
        self.width *= 2
        self.columns = [_paired([*odd, *column]) for column in self.columns]


def by_unit(starts_ms: IntArray, ends_ms: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut N stretches of time, epoch milliseconds, at the bounds of 15 s.

    Returns
    -------
    index, units, begins_ms, lengths_ms : int64[M]
        Which stretch each piece is of, in which unit of 15 s since the epoch, and when and how long it is.
    """
    length = np.maximum(ends_ms - starts_ms, 0)
    first = starts_ms // UNIT_MS
    pieces = np.where(length > 0, (ends_ms - 1) // UNIT_MS - first + 1, 0)
    index = np.repeat(np.arange(starts_ms.size), pieces)
    within = np.arange(index.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    units = first[index] + within
    begins = np.maximum(starts_ms[index], units * UNIT_MS)
    until = np.minimum(ends_ms[index], (units + 1) * UNIT_MS)
    return index, units, begins, until - begins


def _paired(values: list[int]) -> list[int]:
    return [sum(values[place : place + 2]) for place in range(0, len(values), 2)]
