"""Counts of a node's samples over a whole job, small enough to be stored with every minute.

Two kinds: percentages in bins of one point, and traffic in logarithmic bins. The extremes are kept apart.
"""

import msgspec
import numpy as np

from trainguard.state.histogram import LogHistogram
from trainguard.telemetry.snapshots import FloatArray, IntArray

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

    A bin holds what rounds to its whole percent, so quantiles of the bins are within half a point of the samples' own,
    and exact where the samples are whole. ``bins`` is ascending and holds only bins with a count, so that equal sets of
    samples are equal byte for byte when they are encoded.
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
