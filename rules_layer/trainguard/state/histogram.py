"""A histogram of whole numbers with fixed logarithmic bins, small enough to be stored with every minute.

Bins are at most 1 % wide (``e' = max(e + 1, floor(1.01 e))``) and the same on every machine, so that histograms merge
by adding counts. One that outgrows its budget doubles its bins: at level L a bin joins 2^L neighbours.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray

# A terabyte a second; larger numbers are counted as this.
LARGEST = 1_000_000_000_000
# 27.8 hours; longer durations are counted as this.
MAX_DURATION_US = 100_000_000_000


def _edges() -> IntArray:
    edges = [0]
    while edges[-1] <= LARGEST:
        edges.append(max(edges[-1] + 1, edges[-1] * 101 // 100))
    return np.array(edges, dtype=np.int64)


EDGES = _edges()
_WHOLE_EDGES: list[int] = EDGES.tolist()


class LogHistogram(msgspec.Struct, array_like=True):
    """Counts of whole numbers from 0 to ``largest``.

    ``bins`` ascend and hold only bins with a count, so that equal sets of numbers are encoded equally.
    """

    largest: ClassVar[int] = LARGEST

    level: int = 0
    bins: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def add(self, values: IntArray) -> None:
        """Count ``values`` (int64[N]); a negative one counts as 0."""
        clipped = np.clip(values, 0, self.largest)
        indices = np.searchsorted(EDGES, clipped, side="right") - 1
        bins, counts = np.unique(indices >> self.level, return_counts=True)
        self._count(bins.tolist(), counts.tolist())

    def merge(self, other: "LogHistogram") -> None:
        """Add the counts of ``other``, at the coarser level of the two."""
        self._coarsen(other.level)
        shift = self.level - other.level
        self._count([index >> shift for index in other.bins], other.counts)

    def limit(self, max_bins: int) -> None:
        """Double the bins' width until at most ``max_bins`` (> 0) are in use."""
        while len(self.bins) > max_bins:
            self._coarsen(self.level + 1)

    def quantile(self, quantile: float) -> float:
        return self.quantiles((quantile,))[0]

    def quantiles(self, quantiles: Sequence[float]) -> list[float]:
        """Quantiles, linear between order statistics, each the middle of its bin; NaN when nothing was counted.

        At level 0 the relative error is at most 0.5 %, and doubles with each level.
        """
        total = self.total
        if not total:
            return [float("nan")] * len(quantiles)
        cumulative = list(accumulate(self.counts))
        values = []
        for quantile in quantiles:
            position = (total - 1) * quantile
            below = int(position)
            low, high = (self._middle(bisect_right(cumulative, rank)) for rank in (below, min(below + 1, total - 1)))
            values.append(low + (position - below) * (high - low))
        return values

    def _middle(self, place: int) -> float:
        return (self._smallest_of(self.bins[place]) + self._largest_of(self.bins[place])) / 2.0

    def _smallest_of(self, index: int) -> int:
        return _WHOLE_EDGES[index << self.level]

    def _largest_of(self, index: int) -> int:
        return _WHOLE_EDGES[min((index + 1) << self.level, len(_WHOLE_EDGES) - 1)] - 1

    def edges(self) -> tuple[IntArray, IntArray]:
        """Smallest and largest whole number of each bin in use, int64[B] each."""
        bins = np.array(self.bins, dtype=np.int64)
        ends = np.minimum((bins + 1) << self.level, EDGES.size - 1)
        return EDGES[bins << self.level], EDGES[ends] - 1

    def _coarsen(self, level: int) -> None:
        shift = max(level - self.level, 0)
        bins, counts = self.bins, self.counts
        self.level, self.bins, self.counts = self.level + shift, [], []
        self._count([index >> shift for index in bins], counts)

    def _count(self, bins: list[int], counts: list[int]) -> None:
        totals = dict(zip(self.bins, self.counts, strict=True))
        for index, count in zip(bins, counts, strict=True):
            totals[index] = totals.get(index, 0) + count
        self.bins = sorted(totals)
        self.counts = [totals[index] for index in self.bins]


class DurationHistogram(LogHistogram, array_like=True):
    """Counts of durations in whole microseconds, and what lies beyond a threshold."""

    largest: ClassVar[int] = MAX_DURATION_US

    def count_above(self, threshold_us: float) -> int:
        """Durations that are surely longer: only bins which lie wholly above the threshold count."""
        return sum(self.counts[self._first_above(threshold_us) :])

    def _first_above(self, threshold_us: float) -> int:
        return bisect_right(self.bins, threshold_us, key=self._smallest_of)

    def edge_above(self, threshold_us: float) -> int:
        """Return the smallest duration that `count_above` counts, in use or not: those as long are surely longer."""
        edges = EDGES[:: 1 << self.level]
        above = int(np.searchsorted(edges, threshold_us, side="right"))
        return int(edges[min(above, edges.size - 1)])

    def count_below(self, threshold_us: float) -> int:
        """Durations that are surely shorter: only bins which lie wholly below the threshold count."""
        return sum(self.counts[: bisect_left(self.bins, threshold_us, key=self._largest_of)])

    def excess_above(self, threshold_us: float, baseline_us: float) -> float:
        """Sum of (duration - baseline) over the durations of `count_above`, each taken as its bin's smallest."""
        first = self._first_above(threshold_us)
        if first == len(self.bins):
            return 0.0
        lower = EDGES[np.array(self.bins[first:]) << self.level]
        return float(np.dot(np.array(self.counts[first:], dtype=np.float64), lower - baseline_us))


PERCENT_BINS = 101
TRAFFIC_BINS = 64


class Extremes(msgspec.Struct, array_like=True):
    """The smallest and the largest whole number seen; None before the first."""

    smallest: int | None = None
    largest: int | None = None

    def widen(self, values: IntArray) -> None:
        """Take in ``values`` (int64[N], N > 0)."""
        low, high = int(values.min()), int(values.max())
        self.smallest = low if self.smallest is None else min(low, self.smallest)
        self.largest = high if self.largest is None else max(high, self.largest)


class PercentCounts(Extremes, array_like=True):
    """Counts of percentages; the extremes are in hundredths.

    A bin holds what rounds to its whole percent: quantiles are within half a point, and exact of whole samples.
    ``bins`` ascend and hold only bins with a count.
    """

    bins: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)

    def add(self, values: FloatArray) -> None:
        """Count ``values`` (float64[N], N > 0, from 0 to 100)."""
        self.widen(np.rint(values * 100.0).astype(np.int64))
        table = self.table() + np.bincount(np.rint(values).astype(np.int64), minlength=PERCENT_BINS)
        used = np.flatnonzero(table)
        self.bins, self.counts = used.tolist(), table[used].tolist()

    def table(self) -> IntArray:
        """Return the counts of the whole percents from 0 to 100: int64[101]."""
        table = np.zeros(PERCENT_BINS, dtype=np.int64)
        table[self.bins] = self.counts
        return table


class TrafficCounts(Extremes, array_like=True):
    """Counts of bytes a second in at most 64 logarithmic bins.

    Quantiles are within 0.5 % while the values spread over a factor of 1.8, and within 4 % up to a factor of 150.
    """

    histogram: LogHistogram = msgspec.field(default_factory=LogHistogram)

    def add(self, values: FloatArray) -> None:
        """Count ``values`` (float64[N], from 0); NaN is no sample."""
        sampled = values[~np.isnan(values)]
        if sampled.size == 0:
            return
        whole = np.rint(np.minimum(sampled, LogHistogram.largest)).astype(np.int64)
        self.widen(whole)
        self.histogram.add(whole)
        self.histogram.limit(TRAFFIC_BINS)
