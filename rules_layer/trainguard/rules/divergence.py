"""How far distributions of utilization are apart, pair by pair or one against all others.

Source: J. Lin, "Divergence measures based on the Shannon entropy" (1991); its square root is a metric (D. M. Endres and
J. E. Schindelin, "A new metric for probability distributions", 2003).
"""

import math
from dataclasses import dataclass

import numpy as np

from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray

MAX_DISTANCE = math.sqrt(math.log(2.0))
"""Distance of two distributions that have no value in common."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """N sides, each compared with M others: M = N for all pairs, M = 1 for all the others together.

    Attributes
    ----------
    means : float64[N]
        Mean of each side, percent.
    others : float64[N, M]
        Mean of what it was compared with.
    distances : float64[N, M]
        Jensen-Shannon distances.
    unlike : float64[N, M]
        Share, 0 to 1, of a side's values that the other does not have: the total variation distance.
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


def compare_pairs(counts: IntArray) -> Comparison:
    """Compare each of N sides with each, given how often it saw each whole percent: int64[N, 101], no row empty."""
    bins = _shares(two_point_bins(counts))
    means = _means(counts)
    others = np.broadcast_to(means, (means.size, means.size))
    return _compare(means, others, bins[:, np.newaxis], bins[np.newaxis])


def compare_with_rest(counts: IntArray) -> Comparison:
    """Compare each of N >= 2 sides (int64[N, 101], no row empty) with all the others together."""
    rest: IntArray = counts.sum(axis=0) - counts
    bins, rest_bins = _shares(two_point_bins(counts)), _shares(two_point_bins(rest))
    return _compare(_means(counts), _means(rest)[:, np.newaxis], bins[:, np.newaxis], rest_bins[:, np.newaxis])


def two_point_bins(counts: IntArray) -> IntArray:
    """Join counts of whole percents (int64[N, 101]) to bins two points wide; 100 keeps its own: int64[N, 51]."""
    joined: IntArray = np.add.reduceat(counts, np.arange(0, counts.shape[1], 2), axis=1)
    return joined


def jensen_shannon(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the Jensen-Shannon distances of distributions: sqrt(H((p + q) / 2) - (H(p) + H(q)) / 2), natural log.

    Parameters
    ----------
    first, second : float64[..., B]
        Shares that sum to 1 over the last axis; the other axes are broadcast.

    Returns
    -------
    float64[...]
        0 for equal distributions, MAX_DISTANCE for those without a common value.
    """
    divergence = _entropy((first + second) / 2.0) - (_entropy(first) + _entropy(second)) / 2.0
    distances: FloatArray = np.sqrt(np.maximum(divergence, 0.0))
    return distances


def _compare(means: FloatArray, others: FloatArray, first: FloatArray, second: FloatArray) -> Comparison:
    unlike = np.minimum(np.abs(first - second).sum(axis=-1) / 2.0, 1.0)
    return Comparison(means, others, jensen_shannon(first, second), unlike)


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
