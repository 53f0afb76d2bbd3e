"""How much each GPU, or node, did in the last hour: what stays behind the busiest, and since when.

The counts of the whole job show an imbalance once it makes up about half of it. The window shows one that began late,
and by the means alone: a GPU that idles four tenths of its time has most of its values in common with the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray

BLOCK_S = 600.0
BLOCKS = 6
MIN_WINDOW_S = 600.0
MIN_WINDOW_POINTS = 20

WIDE_GAP = 20.0
"""Percentage points by which a side must stay behind the busiest over the window; half of that within a block."""

STEADY = 2.0 / 3.0
"""Share of the window's blocks in which it must stay behind: an evaluation on one GPU is no imbalance."""

CEASED_BLOCKS = 2
"""So many blocks in a row without it: a gap has ceased."""

SURE = 4.0
"""The gap must be so many times its standard error."""


class Block(msgspec.Struct, array_like=True):
    """Ten minutes of a node: their number since the epoch, points and sum (percent) of each GPU, all squares' sum."""

    number: int
    points: list[int]
    sums: list[int]
    squares: int = 0


class BalanceWindow(msgspec.Struct, array_like=True):
    """The newest blocks, oldest first.

    ``since`` is when the imbalance of now began, epoch seconds; ``lost`` is what was lost while one held, in hundredths
    of a percent of the node's GPUs, summed over points, ``seen`` in how many of the ``judged`` points one held.
    """

    blocks: list[Block] = msgspec.field(default_factory=list)
    since: float | None = None
    lost: int = 0
    seen: int = 0
    judged: int = 0

    def add(self, times: FloatArray, utilization: FloatArray) -> None:
        """Add kept points: float64[T], float64[T, G]."""
        numbers = np.floor(times / BLOCK_S).astype(np.int64)
        for number in np.unique(numbers).tolist():
            values = utilization[numbers == number]
            if not self.blocks or self.blocks[-1].number < number:
                self.blocks.append(Block(number, [], []))
            block = self.blocks[-1]
            block.points = _added(block.points, np.count_nonzero(~np.isnan(values), axis=0).astype(np.int64))
            block.sums = _added(block.sums, np.rint(np.nansum(values, axis=0)).astype(np.int64))
            block.squares += round(float(np.nansum(values**2)))
        if self.blocks:
            self.blocks = [each for each in self.blocks if each.number > self.blocks[-1].number - BLOCKS]

    def gaps(self, interval_s: float) -> "Gaps":
        """Compare the GPUs with the busiest of them."""
        gpus = len(self.blocks[-1].points) if self.blocks else 0
        columns = [
            np.array([_added(getattr(each, name), np.zeros(gpus, dtype=np.int64)) for each in self.blocks])
            for name in ("points", "sums")
        ]
        points, sums = (column.reshape(len(self.blocks), gpus).astype(np.float64) for column in columns)
        return Gaps.of([each.number for each in self.blocks], points, sums, self.variance, interval_s)

    @property
    def variance(self) -> float:
        """Variance of a GPU's points about its own mean, over all GPUs, percent squared."""
        points, within = sum(sum(each.points) for each in self.blocks), float(sum(each.squares for each in self.blocks))
        for gpu in range(max((len(each.points) for each in self.blocks), default=0)):
            columns = [each for each in self.blocks if gpu < len(each.points)]
            number, total = sum(each.points[gpu] for each in columns), sum(each.sums[gpu] for each in columns)
            within -= total**2 / number if number else 0.0
        return max(within, 0.0) / points if points else 0.0

    def pooled(self) -> dict[int, tuple[int, int, int]]:
        """Return by block the points of all GPUs, their sum, and the number of GPUs."""
        return {
            each.number: (sum(each.points), sum(each.sums), sum(points > 0 for points in each.points))
            for each in self.blocks
        }

    def note(self, gaps: "Gaps", fresh: int) -> None:
        """Take note of what the newest ``fresh`` points showed."""
        if not gaps.judged.any():
            return
        self.judged += fresh
        if not gaps.apart.any():
            self.since = None
            return
        points = fresh
        if self.since is None:
            self.since = gaps.since
            points = fresh if self.seen else max(fresh, int(gaps.points.max()))
        self.seen = min(self.seen + points, self.judged)
        self.lost += round(1e4 * points * gaps.lost)


def gaps_across(windows: Sequence[BalanceWindow], interval_s: float) -> "Gaps":
    """Compare nodes, the GPUs of each taken together, with the busiest of them."""
    nodes = [window.pooled() for window in windows]
    newest = max((max(node, default=0) for node in nodes), default=0)
    numbers = [number for number in range(newest - BLOCKS + 1, newest + 1) if any(number in node for node in nodes)]
    table = np.array([[node.get(number, (0, 0, 0)) for node in nodes] for number in numbers], dtype=np.float64)
    table = table.reshape(len(numbers), len(nodes), 3)
    gpus = np.maximum(table[:, :, 2], 1.0)
    variance = max((window.variance for window in windows), default=0.0)
    return Gaps.of(numbers, table[:, :, 0] / gpus, table[:, :, 1] / gpus, variance, interval_s)


@dataclass(frozen=True, slots=True)
class Gaps:
    """N sides over the window.

    Attributes
    ----------
    points : float64[N]
    means : float64[N]
        Percent; NaN without points.
    judged : bool[N]
        Which have points enough.
    apart : bool[N]
        Which stay behind the busiest.
    busiest : int
        The busiest of those judged.
    since : float or None
        When the imbalance began, epoch seconds, as far as the window goes back.
    reaches : bool
        Whether it held from the window's first block on, and so may have begun before.
    minutes : int
        How far the window goes back: 60 minutes once it is full.
    numbers : tuple of int
        The blocks, since the epoch.
    by_block : float64[B, N]
        Means by block, percent; NaN without points.
    """

    points: FloatArray
    means: FloatArray
    judged: BoolArray
    apart: BoolArray
    busiest: int
    since: float | None
    reaches: bool
    minutes: int
    numbers: tuple[int, ...]
    by_block: FloatArray

    @classmethod
    def of(
        cls, numbers: Sequence[int], points: FloatArray, sums: FloatArray, variance: float, interval_s: float
    ) -> "Gaps":
        """Look at blocks: points and sums, float64[B, N]; ``variance`` is that of one side's points."""
        total = points.sum(axis=0)
        judged: BoolArray = total >= max(MIN_WINDOW_POINTS, MIN_WINDOW_S / interval_s)
        means = _over(sums.sum(axis=0), total)
        nobody = np.zeros(total.size, dtype=np.bool_)
        minutes = round((numbers[-1] - numbers[0] + 1) * BLOCK_S / 60.0) if numbers else 0
        by_block = _over(sums, points)
        blocks = tuple(numbers), by_block
        if np.count_nonzero(judged) < 2:
            return cls(total, means, judged, nobody, 0, None, False, minutes, *blocks)
        busiest = int(np.nanargmax(np.where(judged, means, -1.0)))
        errors = variance / np.maximum(total, 1.0)
        gaps = means[busiest] - means
        behind = np.nan_to_num(by_block[:, [busiest]] - by_block, nan=-1.0) >= WIDE_GAP / 2.0
        steady = _over((behind * points).sum(axis=0), total) >= STEADY
        sure = gaps >= SURE * np.sqrt(errors + errors[busiest])
        apart: BoolArray = judged & (gaps >= WIDE_GAP) & steady & sure
        if not apart.any():
            return cls(total, means, judged, nobody, busiest, None, False, minutes, *blocks)
        held = behind[:, apart].any(axis=1)
        broken = np.flatnonzero(~held)
        first = int(broken[-1]) + 1 if broken.size and broken[-1] + 1 < held.size else int(np.argmax(held))
        return cls(total, means, judged, apart, busiest, BLOCK_S * numbers[first], first == 0, minutes, *blocks)

    def over_since(self, low: int, other: int | None = None) -> float | None:
        """Return when a side ceased to stay behind another, or all others together, epoch seconds; None if it does.

        It has ceased once two blocks in a row do not show it. What the window does not show at all ceased before it.
        """
        others = [other] if other is not None else [side for side in range(self.means.size) if side != low]
        rest = _over(np.nansum(self.by_block[:, others], axis=1), (~np.isnan(self.by_block[:, others])).sum(axis=1))
        gaps = rest - self.by_block[:, low]
        seen = np.flatnonzero(~np.isnan(gaps))
        held = gaps[seen] >= WIDE_GAP / 2.0
        if seen.size < CEASED_BLOCKS or held[-CEASED_BLOCKS:].any():
            return None
        last = np.flatnonzero(held)
        return BLOCK_S * (self.numbers[int(seen[last[-1]])] + 1 if last.size else self.numbers[0])

    @property
    def behind(self) -> FloatArray:
        """Share, 0 to 1, by which each judged side stays behind the busiest: float64[M]."""
        means = self.means[self.judged]
        most = float(means.max())
        share: FloatArray = 1.0 - means / most if most > 0.0 else np.zeros(means.size)
        return share

    @property
    def lost(self) -> float:
        """Share, 0 to 1, of all judged sides that those which stay behind have lost."""
        return float(self.behind[self.apart[self.judged]].sum()) / max(int(np.count_nonzero(self.judged)), 1)

    @property
    def worst(self) -> int:
        """The least busy of those that stay behind, or of those judged."""
        chosen = self.apart if self.apart.any() else self.judged
        return int(np.argmin(np.where(chosen, self.means, np.inf)))


def _added(before: Sequence[int], more: IntArray) -> list[int]:
    """Add counts of GPUs, of which there may be more than before."""
    both = more.copy()
    both[: len(before)] += np.array(before, dtype=np.int64)
    return [int(each) for each in both]


def _over(values: FloatArray, counts: FloatArray) -> FloatArray:
    quotient: FloatArray = np.divide(values, counts, out=np.full(values.shape, np.nan), where=counts > 0.0)
    return quotient
