"""Probabilities, quantiles and trends of samples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray

# Below it even P(X > 0) is under 1e-6; the masses far above such a mean would underflow.
NEGLIGIBLE_MEAN = 1e-7


def normal_tail(deviations: float) -> float:
    """Probability that a normal value lies more than ``deviations`` standard deviations above its mean, 1 - Phi."""
    return math.erfc(deviations / math.sqrt(2.0)) / 2.0


def poisson_quantile(probability: float, expected: float) -> int:
    """Smallest k with P(X <= k) >= ``probability`` (0.5 to 1 - 1e-6, else ValueError) for a Poisson mean ``expected``.

    Sums the upper tail from 8 deviations and 12 counts above the mean down: only small positive numbers are added.
    """
    if not 0.5 <= probability <= 1.0 - 1e-6:
        raise ValueError(f"probability is {probability!r}, expected a number from 0.5 to 1 - 1e-6")
    if not 0.0 <= expected < math.inf:
        raise ValueError(f"expected is {expected!r}, expected a finite mean of at least 0")
    if expected < NEGLIGIBLE_MEAN:
        return 0
    count = math.ceil(expected + 8.0 * math.sqrt(expected) + 12.0)
    mass = math.exp(count * math.log(expected) - expected - math.lgamma(count + 1.0))
    tail = mass
    while tail <= 1.0 - probability:
        mass *= count / expected
        tail += mass
        count -= 1
    return count


def sampled(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


def means_of(sums: FloatArray, counts: FloatArray | IntArray) -> FloatArray:
    """Return sums over counts, of any one shape; NaN where nothing was counted."""
    means: FloatArray = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


WHISKER_IQRS = 1.5


def column_quantiles(values: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of each column of ``values`` (float64[K, G]) without NaN: float64[Q, G], NaN for an empty column.

    One sort serves all quantiles; ``numpy.nanquantile`` falls back to a Python loop over the columns.
    """
    ordered = np.sort(values, axis=0)
    sizes = np.count_nonzero(~np.isnan(values), axis=0)
    columns = np.arange(values.shape[1])
    if not len(ordered):
        return np.full((len(quantiles), values.shape[1]), np.nan)
    return _interpolate(sizes, quantiles, lambda ranks: ordered[ranks, columns])


def counted_quantiles(counts: IntArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of whole numbers counted in ``counts`` (int64[G, V]): float64[Q, G], NaN for an empty row."""
    cumulative = np.cumsum(counts, axis=1)
    return _interpolate(
        counts.sum(axis=1), quantiles, lambda ranks: (cumulative <= ranks[..., np.newaxis]).sum(axis=-1).astype(float)
    )


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
    def shown(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("p25", "p50", "p75", "p95", "upper", "lower")}

    @property
    def upper(self) -> float:
        return min(self.p75 + WHISKER_IQRS * (self.p75 - self.p25), self.largest)

    @property
    def lower(self) -> float:
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
    """Interpolate at h = (n - 1) q between the order statistics floor(h) and floor(h) + 1; ``sizes`` is int64[G]."""
    last = np.maximum(sizes - 1, 0)
    positions = last * np.array(quantiles, dtype=np.float64)[:, np.newaxis]
    below = np.floor(positions).astype(np.int64)
    low = value_at(below)
    high = value_at(np.minimum(below + 1, last))
    values: FloatArray = np.where(sizes > 0, low + (positions - below) * (high - low), np.nan)
    return values


def mann_kendall_z(series: FloatArray) -> FloatArray:
    """Return Mann-Kendall's standard score of each series, a row of float64[G, n]: float64[G], > 0 where it rises.

    S is the number of rising pairs less that of falling ones, and (n (n-1) (2n+5) - sum of t (t-1) (2t+5)) / 18 its
    variance, with t the sizes of groups of equal values. Z = (S - sign S) / sqrt(variance): 0 for a constant series.
    Source: Mann (1945), Kendall (1975).
    """
    length = series.shape[1]
    earlier, later = _pairs(length)
    after, before = series[:, later], series[:, earlier]
    score = (after > before).sum(axis=1) - (after < before).sum(axis=1)
    # Every member of a group of t counts (t - 1) (2t + 5), so that the group as a whole counts t (t - 1) (2t + 5).
    tied = (series[:, :, np.newaxis] == series[:, np.newaxis, :]).sum(axis=2)
    ties = ((tied - 1) * (2 * tied + 5)).sum(axis=1)
    variance = (length * (length - 1) * (2 * length + 5) - ties) / 18.0
    z: FloatArray = (score - np.sign(score)) / np.sqrt(np.where(variance > 0.0, variance, 1.0))
    return z


def theil_sen_slope(series: FloatArray) -> FloatArray:
    """Return the median slope over all pairs of each series, a row of float64[G, n >= 2] without NaN: float64[G]."""
    earlier, later = _pairs(series.shape[1])
    slopes = np.sort((series[:, later] - series[:, earlier]) / (later - earlier), axis=1)
    pairs = slopes.shape[1]
    median: FloatArray = (slopes[:, (pairs - 1) // 2] + slopes[:, pairs // 2]) / 2.0
    return median


def _pairs(length: int) -> tuple[IntArray, IntArray]:
    """Return the places of all pairs of so many points, the earlier and the later one: int64[n (n - 1) / 2] each."""
    places = np.arange(length)
    earlier, later = np.nonzero(places[:, np.newaxis] < places)
    return earlier, later
