"""Durations as the product counts them: in bins whose edges docs/rules/StepOutlier.md gives."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tests.claims.raw import Flags, Floats

Whole = NDArray[np.int64]

LONGEST_US = 100_000_000_000


def _edges() -> Whole:
    edges = [0]
    while edges[-1] <= 10 * LONGEST_US:
        edges.append(max(edges[-1] + 1, edges[-1] * 101 // 100))
    return np.array(edges, dtype=np.int64)


EDGES = _edges()


@dataclass(frozen=True)
class Binned:
    """N durations, each by the smallest and the middle of its bin, microseconds; ``edges`` are those of all bins."""

    smallest: Whole
    middle: Floats
    edges: Whole

    @property
    def median(self) -> float:
        """The median of the bins' middles; NaN of nothing."""
        return float(np.median(self.middle)) if self.middle.size else float("nan")

    def above(self, limit: float) -> Flags:
        """Return which durations are in bins above a limit: bool[N]."""
        found: Flags = self.smallest > limit
        return found

    def excess(self, limit: float, baseline: float) -> float:
        """Return what durations in bins above a limit have over the baseline, each taken as its bin's smallest."""
        return float((self.smallest[self.above(limit)] - baseline).sum())

    def edge_above(self, limit: float) -> float:
        """Return where the first bin begins that lies above a limit."""
        return float(self.edges[np.searchsorted(self.edges, limit, side="right")])


def binned(durations_us: Whole, most_bins: int) -> Binned:
    """Return durations in at most so many bins: neighbours are joined two by two while there are more."""
    numbers = np.searchsorted(EDGES, np.clip(durations_us, 0, LONGEST_US), side="right") - 1
    joined = 1
    while np.unique(numbers // joined).size > most_bins:
        joined *= 2
    first = numbers // joined * joined
    after = np.minimum(first + joined, EDGES.size - 1)
    return Binned(EDGES[first], (EDGES[first] + EDGES[after] - 1) / 2.0, EDGES[::joined])


def usual_distance(numbers: list[int]) -> float:
    """Return the distance that most neighbours have; NaN of fewer than two."""
    distances = [after - before for before, after in pairwise(numbers)]
    return float(max(set(distances), key=distances.count)) if distances else float("nan")
