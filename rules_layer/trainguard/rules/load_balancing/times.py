"""Distances between sides, and when one stayed behind the busiest: by ten-minute blocks and three-minute means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.sample_statistics import means_of, sampled

FINE_S = 180.0
# Eighty-one minutes: the window, and what was before it.
FINE_BLOCKS = 27

CEASED_BLOCKS = 2
CEASED_POINTS = 10
CEASED_SURE = 4.0
SILENT_PERCENT = 1.0
# So many of them, a quarter of an hour, are no pause.
SILENT_BLOCKS = 5


# When a side was behind, epoch seconds: the first is None where that is before what is known, the second where it is.
Stretch = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class FineMeans:
    """Means of N sides, float64[K, N] percent, over three minutes from ``starts``, epoch seconds; NaN for none."""

    starts: FloatArray
    points: FloatArray
    means: FloatArray

    @classmethod
    def of(cls, numbers: Sequence[int], points: FloatArray, sums: FloatArray) -> "FineMeans":
        """Take points and sums, float64[K, N], of the stretches with these numbers since the epoch."""
        return cls(FINE_S * np.array(numbers, dtype=np.float64), points, means_of(sums, points))

    def stretch(self, low: int, others: Sequence[int], least: float, variance: float) -> Stretch | None:
        """Return when a side was ``least`` points behind others' mean; None if never. ``variance`` is of a side."""
        rest = self.means[:, list(others)]
        counted = ~np.isnan(rest)
        gaps = means_of(np.where(counted, rest, 0.0).sum(axis=1), counted.sum(axis=1)) - self.means[:, low]
        seen = ~np.isnan(gaps)
        gaps, weights, starts = gaps[seen], self.points[seen, low], self.starts[seen]
        best = _best_box(gaps, weights)
        if best is None:
            return None
        first, last = best
        level = float(np.average(gaps[first:last], weights=weights[first:last]))
        if level < least:
            return None
        before, after = weights[:first], weights[last:]
        left = float(np.average(gaps[:first], weights=before)) if first else level
        right = float(np.average(gaps[last:], weights=after)) if after.size else level
        over = (
            after.size >= CEASED_BLOCKS
            and after.sum() >= CEASED_POINTS
            and right < least
            and level - right >= CEASED_SURE * np.sqrt(variance * (2.0 / weights[first:last].sum() + 2.0 / after.sum()))
        )
        return float(starts[first]) if first and left < least else None, float(starts[last]) if over else None

    def seen_until(self, side: int, at: float) -> float:
        """Return up to when a side had points before ``at``, epoch seconds: ``at`` itself without a pause there."""
        before = self.starts[(self.starts < at) & (self.points[:, side] > 0.0)]
        return min(float(before[-1]) + FINE_S, at) if before.size else at

    def is_silent(self, side: int, begin: float, end: float | None) -> bool:
        """Tell whether a side did nothing from ``begin`` to ``end``, epoch seconds; the edges are not looked at."""
        inner = self.starts >= begin + FINE_S
        if end is not None:
            inner &= self.starts + 2.0 * FINE_S <= end
        means = sampled(self.means[inner, side])
        return means.size >= SILENT_BLOCKS and bool((means < SILENT_PERCENT).all())


def _best_box(gaps: FloatArray, weights: FloatArray) -> tuple[int, int] | None:
    """Return the stretch, from and up to an index, whose mean is most clearly above that of all outside."""
    if not weights.sum():
        return None
    sums = np.concatenate([[0.0], np.cumsum(gaps * weights)])
    counts = np.concatenate([[0.0], np.cumsum(weights)])
    inside = sums[np.newaxis, :] - sums[:, np.newaxis]
    points = counts[np.newaxis, :] - counts[:, np.newaxis]
    outside, others = sums[-1] - inside, counts[-1] - points
    with np.errstate(divide="ignore", invalid="ignore"):  # a mean of no points is none, and above nothing
        above = inside / points - outside / others
    fit = np.where((points > 0.0) & (above > 0.0), above**2 * points * others, 0.0)
    if not fit.any():
        return 0, gaps.size
    first, last = np.unravel_index(int(np.argmax(fit)), fit.shape)
    return int(first), int(last)


MAX_DISTANCE = math.sqrt(math.log(2.0))


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """N sides, each compared with M others: M = N for all pairs, M = 1 for all the others together.

    ``means`` (float64[N]) and ``others`` (float64[N, M]) are in percent, ``distances`` are Jensen-Shannon distances,
    and ``unlike`` is the share, 0 to 1, of a side's values that the other does not have: the total variation distance.
    """

    means: FloatArray
    others: FloatArray
    distances: FloatArray
    unlike: FloatArray

    @property
    def idle_share(self) -> FloatArray:
        """Share, float64[N], by which each side stays behind the busiest; 0 where all are at 0 %."""
        busiest = float(self.means.max())
        share: FloatArray = 1.0 - self.means / busiest if busiest > 0.0 else np.zeros(self.means.size)
        return share

    def apart(self, distance: float, gap: float) -> BoolArray:
        """Tell which are further apart than ``distance``, with means ``gap`` or more points apart: bool[N, M]."""
        gaps = np.abs(self.means[:, np.newaxis] - self.others)
        apart: BoolArray = (self.distances > distance) & (gaps >= gap)
        return apart

    def worst(self, apart: BoolArray) -> tuple[int, int]:
        """Return the least busy side that is apart, and its furthest counterpart; else the two furthest apart."""
        if not apart.any():
            distances = self.distances.copy()
            if distances.shape[1] > 1:
                np.fill_diagonal(distances, -1.0)
            row, column = divmod(int(np.argmax(distances)), distances.shape[1])
            return row, column
        row = int(np.argmin(np.where(apart.any(axis=1), self.means, np.inf)))
        return row, int(np.argmax(np.where(apart[row], self.distances[row], -1.0)))


def compare_pairs(counts: IntArray) -> DeviceComparison:
    """Compare each of N sides with each, given how often it saw each whole percent: int64[N, 101], no row empty."""
    bins = _shares(two_point_bins(counts))
    means = _means(counts)
    others = np.broadcast_to(means, (means.size, means.size))
    return _compare(means, others, bins[:, np.newaxis], bins[np.newaxis])


def compare_with_rest(counts: IntArray) -> DeviceComparison:
    """Compare each of N >= 2 sides (int64[N, 101], no row empty) with all the others together."""
    rest: IntArray = counts.sum(axis=0) - counts
    bins, rest_bins = _shares(two_point_bins(counts)), _shares(two_point_bins(rest))
    return _compare(_means(counts), _means(rest)[:, np.newaxis], bins[:, np.newaxis], rest_bins[:, np.newaxis])


def two_point_bins(counts: IntArray) -> IntArray:
    """Join counts of whole percents (int64[N, 101]) to bins two points wide; 100 keeps its own: int64[N, 51]."""
    joined: IntArray = np.add.reduceat(counts, np.arange(0, counts.shape[1], 2), axis=1)
    return joined


def jensen_shannon(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Jensen-Shannon distances: sqrt(H((p + q) / 2) - (H(p) + H(q)) / 2), natural log, 0 to MAX_DISTANCE.

    ``first`` and ``second`` are float64[..., B] shares that sum to 1 over the last axis; the other axes are broadcast.
    """
    divergence = _entropy((first + second) / 2.0) - (_entropy(first) + _entropy(second)) / 2.0
    distances: FloatArray = np.sqrt(np.maximum(divergence, 0.0))
    return distances


def _compare(means: FloatArray, others: FloatArray, first: FloatArray, second: FloatArray) -> DeviceComparison:
    unlike = np.minimum(np.abs(first - second).sum(axis=-1) / 2.0, 1.0)
    return DeviceComparison(means, others, jensen_shannon(first, second), unlike)


def _entropy(distribution: FloatArray) -> FloatArray:
    logarithms = np.log(np.where(distribution > 0.0, distribution, 1.0))
    entropy: FloatArray = -(distribution * logarithms).sum(axis=-1)
    return entropy


def _shares(counts: IntArray) -> FloatArray:
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _means(counts: IntArray) -> FloatArray:
    means: FloatArray = _shares(counts) @ np.arange(counts.shape[1], dtype=np.float64)
    return means
