"""A histogram of whole numbers with fixed logarithmic bins, small enough to be stored with every minute.

Bins are at most 1 % wide, the same for every process and job, so two histograms merge by adding counts and the result
depends on the set of numbers alone, not on their order. The edges come from a recurrence on whole numbers,
``e' = max(e + 1, floor(1.01 e))``, so that every machine puts a number into the same bin; below 200 every bin holds
one number. Durations are counted in microseconds, traffic in bytes a second.

A histogram that would outgrow its budget doubles the width of its bins: at level L a bin joins 2^L neighbours. The
level is the smallest that fits, which again depends on the set of numbers alone.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import IntArray

LARGEST = 1_000_000_000_000
"""A terabyte a second; larger numbers are counted as this."""

MAX_DURATION_US = 100_000_000_000
"""27.8 hours; longer durations are counted as this."""


def _edges() -> IntArray:
    edges = [0]
    while edges[-1] <= LARGEST:
        edges.append(max(edges[-1] + 1, edges[-1] * 101 // 100))
    return np.array(edges, dtype=np.int64)


EDGES = _edges()
"""Bin i at level 0 holds the whole numbers from EDGES[i] to EDGES[i + 1] - 1."""


class LogHistogram(msgspec.Struct, array_like=True):
    """Counts of whole numbers from 0 to ``largest``.

    ``bins`` is ascending and holds only bins with a count, so that equal sets of numbers are equal byte for byte when
    they are encoded.
    """

    largest: ClassVar[int] = LARGEST

    level: int = 0
    bins: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)

    @property
    def total(self) -> int:
        """How many numbers were counted."""
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
        """Quantile as in `quantiles`."""
        return self.quantiles((quantile,))[0]

    def quantiles(self, quantiles: Sequence[float]) -> list[float]:
        """Quantiles, linear between order statistics, each taken as the middle of its bin.

        At level 0 the relative error is at most 0.5 %, and doubles with each level. NaN when nothing was counted.
        """
        total = self.total
        if not total:
            return [float("nan")] * len(quantiles)
        lower, upper = self.edges()
        middles = (lower + upper) / 2.0
        cumulative = np.cumsum(self.counts)
        positions = (total - 1) * np.array(quantiles)
        below = np.floor(positions).astype(np.int64)
        low = middles[np.searchsorted(cumulative, below, side="right")]
        high = middles[np.searchsorted(cumulative, np.minimum(below + 1, total - 1), side="right")]
        values: list[float] = (low + (positions - below) * (high - low)).tolist()
        return values

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
        lower, _ = self.edges()
        return int(np.sum(np.array(self.counts, dtype=np.int64)[lower > threshold_us]))

    def count_below(self, threshold_us: float) -> int:
        """Durations that are surely shorter: only bins which lie wholly below the threshold count."""
        _, upper = self.edges()
        return int(np.sum(np.array(self.counts, dtype=np.int64)[upper < threshold_us]))

    def excess_above(self, threshold_us: float, baseline_us: float) -> float:
        """Sum of (duration - baseline) over the durations of `count_above`, each taken as its bin's smallest."""
        lower, _ = self.edges()
        above = lower > threshold_us
        return float(np.dot(np.array(self.counts, dtype=np.float64)[above], lower[above] - baseline_us))
