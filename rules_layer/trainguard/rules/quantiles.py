"""Quantiles by linear interpolation between order statistics (type 7 of Hyndman and Fan, numpy's default).

Two sources, one formula: columns of samples, of which some may be missing, and counters of whole numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray

WHISKER_IQRS = 1.5


def column_quantiles(values: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of each column of ``values`` (float64[K, G]), leaving out NaN.

    Returns float64[len(quantiles), G]; NaN for a column without a number. One sort serves all quantiles, which is why
    this is not ``numpy.nanquantile``: that falls back to a Python loop over the columns.
    """
    ordered = np.sort(values, axis=0)
    sizes = np.count_nonzero(~np.isnan(values), axis=0)
    columns = np.arange(values.shape[1])
    if not len(ordered):
        return np.full((len(quantiles), values.shape[1]), np.nan)
    return _interpolate(sizes, quantiles, lambda ranks: ordered[ranks, columns])


def counted_quantiles(counts: IntArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of whole numbers of which ``counts[g, v]`` (int64[G, V]) says how often g saw v.

    Returns float64[len(quantiles), G]; NaN for a row without a count. Exact where the samples are whole numbers.
    """
    cumulative = np.cumsum(counts, axis=1)
    sizes = counts.sum(axis=1)

    def value_at(ranks: IntArray) -> FloatArray:
        values: FloatArray = (cumulative <= ranks[..., np.newaxis]).sum(axis=-1).astype(np.float64)
        return values

    return _interpolate(sizes, quantiles, value_at)


@dataclass(frozen=True, slots=True)
class Box:
    """A box plot's numbers: upper = min(p75 + 1.5 iqr, max), lower = max(p25 - 1.5 iqr, min), iqr = p75 - p25."""

    smallest: float
    p25: float
    p50: float
    p75: float
    p95: float
    largest: float

    @property
    def upper(self) -> float:
        """Upper whisker."""
        return min(self.p75 + WHISKER_IQRS * (self.p75 - self.p25), self.largest)

    @property
    def lower(self) -> float:
        """Lower whisker."""
        return max(self.p25 - WHISKER_IQRS * (self.p75 - self.p25), self.smallest)


BOX_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)


def column_boxes(values: FloatArray) -> tuple[Box | None, ...]:
    """Boxes of the columns of ``values`` (float64[K, G]), leaving out NaN; None for a column without a number."""
    table = column_quantiles(values, BOX_QUANTILES)
    return tuple(None if np.isnan(column[0]) else Box(*column.tolist()) for column in table.T)


def counted_boxes(counts: IntArray) -> tuple[Box, ...]:
    """Boxes of whole numbers counted in ``counts`` (int64[G, V]), a box for each row."""
    table = counted_quantiles(counts, BOX_QUANTILES)
    return tuple(Box(*column) for column in table.T.tolist())


def _interpolate(sizes: IntArray, quantiles: Sequence[float], value_at: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Interpolate at h = (n - 1) q between the order statistics floor(h) and floor(h) + 1.

    ``sizes`` is int64[G]; ``value_at`` gives the order statistics of ranks int64[Q, G].
    """
    last = np.maximum(sizes - 1, 0)
    positions = last * np.array(quantiles, dtype=np.float64)[:, np.newaxis]
    below = np.floor(positions).astype(np.int64)
    low = value_at(below)
    high = value_at(np.minimum(below + 1, last))
    values: FloatArray = np.where(sizes > 0, low + (positions - below) * (high - low), np.nan)
    return values
