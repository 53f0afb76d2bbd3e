"""Sums over the whole job in few steps of 15 s or a doubled width, which begin at its multiples since the epoch.

All sums are whole numbers, cut at 15 s: the same data give the same sums in whatever portions and order they come.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray

MOST_STEPS = 120
UNIT_S = 15
UNIT_MS = 1_000 * UNIT_S
_WIDEST = 2**32
_LARGEST = 2**53


class TimeGrid(msgspec.Struct, array_like=True):
    """``columns`` of whole numbers, one a step; the first step is number ``first`` since the epoch.

    ``width`` is in units of 15 s, a power of two. Raises ValueError when it is no such grid.
    """

    first: int = 0
    width: int = 1
    columns: list[list[int]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns}
        if len(lengths) > 1 or max(lengths, default=0) > MOST_STEPS:
            raise ValueError(f"steps of time in columns of {sorted(lengths)}, expected one length up to {MOST_STEPS}")
        if not 0 < self.width <= _WIDEST or self.width & (self.width - 1):
            raise ValueError(f"steps of {self.width} units, expected a power of two")
        sums = [each for row in self.columns if row for each in (min(row), max(row))]
        if not 0 <= self.first < _LARGEST or any(not 0 <= each < _LARGEST for each in sums):
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
        return float(UNIT_S * self.width)

    def column(self, number: int) -> FloatArray:
        """Return the sums of one column, float64[S]."""
        return np.array(self.columns[number] if number < len(self.columns) else [], dtype=np.float64)

    def add(self, units: IntArray, values: Sequence[IntArray]) -> None:
        """Add ``values``, int64[N] a column, each in its unit of 15 s since the epoch, ``units``, int64[N]."""
        if not units.size:
            return
        while self.reach(int(units.min()), int(units.max())) > MOST_STEPS:
            self.widen()
        numbers, places = np.unique(units // self.width, return_inverse=True)
        sums = np.zeros((len(values), numbers.size), dtype=np.int64)
        for row, column in zip(sums, values, strict=True):
            np.add.at(row, places, column)
        for number, each in zip(numbers.tolist(), sums.T.tolist(), strict=True):
            self.put(number, each)

    def put(self, number: int, values: Sequence[int]) -> None:
        """Add a value of each column in a step, by its number since the epoch; there must be room for it."""
        if not self.columns or not self.columns[0]:
            self.first, self.columns = number, [[] for _ in values]
        before = [0] * (self.first - number)
        self.first -= len(before)
        place = number - self.first
        after = [0] * (place + 1 - len(before) - len(self.columns[0]))
        for row, value in enumerate(values):
            column = [*before, *self.columns[row], *after]
            column[place] += value
            self.columns[row] = column

    def reach(self, first_unit: int, last_unit: int) -> int:
        """Return how many steps there are with these units of 15 s."""
        begin, end = first_unit // self.width, last_unit // self.width
        held = len(self.columns[0]) if self.columns else 0
        return max(end, self.first + held - 1) - min(begin, self.first) + 1 if held else end - begin + 1

    def widen(self) -> None:
        odd = [0] * (self.first % 2)
        self.first //= 2
        self.width *= 2
        self.columns = [_paired([*odd, *column]) for column in self.columns]


def by_unit(starts_ms: IntArray, ends_ms: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut N stretches of time, epoch ms, at bounds of 15 s: index, unit, begin and length, int64[M] each."""
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


FULL = 200
_NONE = 255
_LEGAL = bytes([*range(FULL + 1), _NONE])


class GpuLevels(msgspec.Struct, array_like=True):
    """Of G GPUs ``closed`` has a byte a step, half percents, 255 without a sample; ``open`` is of the step after them.

    ``open`` has two rows of G: milliseconds sampled, and busy. ``carried`` is each GPU's busy time, in milliseconds /
    200, that the closed levels lack, at most half a level. Raises ValueError when the parts do not fit.
    """

    closed: list[bytes] = msgspec.field(default_factory=list)
    open: list[list[int]] = msgspec.field(default_factory=lambda: [[], []])
    carried: list[int] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if len({len(row) for row in self.closed}) > 1 or {len(row) for row in self.open} != {len(self.closed)}:
            raise ValueError("levels of GPUs in rows of different lengths")
        if len(self.open) != 2 or len(self.carried) != len(self.closed):
            raise ValueError("levels of GPUs without what was left out in rounding")
        if any(row.translate(None, _LEGAL) for row in self.closed):
            raise ValueError("a level that is no percentage")

    @property
    def gpus(self) -> int:
        return len(self.closed)

    @property
    def steps(self) -> int:
        return len(self.closed[0]) if self.closed else 0

    def extend(self, gpus: int) -> None:
        """Have room for so many GPUs: new ones have no sample yet."""
        more = gpus - self.gpus
        self.closed += [bytes([_NONE]) * self.steps] * more
        self.open = [[*row, *[0] * more] for row in self.open]
        self.carried = [*self.carried, *[0] * more]

    def add(self, step: int, sampled: Sequence[int], busy: Sequence[int]) -> None:
        """Add milliseconds of each GPU, of G, in a step, the newest or a later one; those before it are closed."""
        if step > self.steps:
            self._close(step - self.steps)
        self.open = [
            [one + more for one, more in zip(held, new, strict=True)]
            for held, new in zip(self.open, (sampled, busy), strict=True)
        ]

    def widen(self, weights: IntArray, *, odd: bool) -> None:
        """Make one step of each two, of ``weights`` int64[S] ms; ``odd``: the first is the second of a pair."""
        levels = self._levels
        sampled = _divided(weights[: self.steps], levels)
        if odd:
            levels = np.concatenate([np.full((self.gpus, 1), _NONE), levels], axis=1)
            sampled = np.concatenate([np.zeros((self.gpus, 1), dtype=np.int64), sampled], axis=1)
        if levels.shape[1] % 2:
            self._take_in(levels[:, -1], sampled[:, -1])
            levels, sampled = levels[:, :-1], sampled[:, :-1]
        pairs = (self.gpus, -1, 2)
        busy, total = (levels * sampled).reshape(pairs).sum(axis=2), sampled.reshape(pairs).sum(axis=2)
        if total.shape[1]:  # what the last steps lack is theirs, if they were neither idle nor busy all the time
            rest = np.where((busy[:, -1] <= 0) | (busy[:, -1] >= FULL * total[:, -1]), 0, self.carried)
            busy[:, -1] += rest
            self.carried = (np.array(self.carried) - rest).tolist()
        rows = [self._rounded(total[:, pair], busy[:, pair]) for pair in range(total.shape[1])]
        self.closed = [bytes(row) for row in np.array(rows, dtype=np.uint8).reshape(-1, self.gpus).T]

    def closed_means(self) -> FloatArray:
        """Return the mean percentage of the GPUs with samples in each closed step, float64[S]; 0 without one."""
        levels = self._levels
        known = levels != _NONE
        sums = np.where(known, levels, 0).sum(axis=0) * (100.0 / FULL)
        means: FloatArray = sums / np.maximum(np.count_nonzero(known, axis=0), 1)
        return means

    def mean(self, chosen: IntArray, weights: IntArray) -> FloatArray:
        """Return the percentage of each GPU over steps, float64[G], NaN without a sample.

        It is within 0.5 / K points of the truth for K steps of one length, and exact for all steps and for the newest
        alone. ``chosen`` is int64[K], in order; ``weights`` int64[S] are milliseconds sampled in each step by all GPUs,
        the newest too.
        """
        closed = chosen[chosen < self.steps]
        levels = self._levels[:, closed]
        sampled = _divided(weights[closed], levels)
        total, weight = (levels * sampled).sum(axis=1), sampled.sum(axis=1)
        if closed.size < chosen.size:
            total, weight = total + FULL * np.array(self.open[1]), weight + np.array(self.open[0])
        if closed.size and chosen[-1] + 1 >= self.steps:
            total = np.clip(total + self.carried, 0, FULL * weight)
        means: FloatArray = np.divide(100.0 / FULL * total, weight, out=np.full(self.gpus, np.nan), where=weight > 0)
        return means

    @property
    def _levels(self) -> IntArray:
        flat = np.frombuffer(b"".join(self.closed), dtype=np.uint8)
        return flat.reshape(self.gpus, self.steps).astype(np.int64)

    def _close(self, steps: int) -> None:
        """Round the newest step, leave those after it without samples, and begin a new one after so many."""
        sampled, busy = np.array(self.open, dtype=np.int64)
        closed = self._rounded(sampled, FULL * busy)
        self.closed = [
            row + bytes([level]) + bytes([_NONE]) * (steps - 1) for row, level in zip(self.closed, closed, strict=True)
        ]
        self.open = [[0] * self.gpus, [0] * self.gpus]

    def _rounded(self, sampled: IntArray, busy: IntArray) -> list[int]:
        """Return each GPU's level of a step of ``sampled`` milliseconds, of which it was busy ``busy`` / 200.

        What is carried moves a level by half of one at most, and none of a GPU that was wholly idle or wholly busy.
        """
        carried = np.array(self.carried, dtype=np.int64)
        part = np.clip(carried, -(sampled // 2), sampled // 2)
        part[(busy <= 0) | (busy >= FULL * sampled)] = 0
        levels = np.clip((2 * (busy + part) + sampled) // np.maximum(2 * sampled, 1), 0, FULL)
        self.carried = (carried + busy - levels * sampled).tolist()
        rounded: list[int] = np.where(sampled > 0, levels, _NONE).tolist()
        return rounded

    def _take_in(self, levels: IntArray, sampled: IntArray) -> None:
        """Add the last closed step, with what is carried, to the newest: both are of one pair."""
        done = np.array(self.open[0]) + sampled
        busy = levels * sampled + np.where(sampled > 0, self.carried, 0)
        whole = np.clip(np.array(self.open[1]) + (busy + FULL // 2) // FULL, 0, done)
        self.carried = (np.array(self.carried) + levels * sampled - FULL * (whole - self.open[1])).tolist()
        self.open = [done.tolist(), whole.tolist()]


def _divided(weights: IntArray, levels: IntArray) -> IntArray:
    """Return the milliseconds of each GPU in closed steps, int64[G, S]: those with samples share a step's evenly."""
    known = levels != _NONE
    return np.where(known, weights // np.maximum(np.count_nonzero(known, axis=0), 1), 0)
