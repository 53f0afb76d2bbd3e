"""How long the work of each rank takes beside that of its peers, who do the same work."""

from dataclasses import dataclass

import numpy as np

from trainguard.formats.operations import Bools, Floats, Ints
from trainguard.stragglers.operations import Operations, combined

_FEWEST_ALIKE = 3
# A normal distribution's standard deviation, by the median distance from its median.
_TO_DEVIATION = 1.4826

# The same by the mean distance.
_MEAN_TO_DEVIATION = 1.2533

# Standard deviations of the difference of two medians: four of each.
_SURE = 5.6


@dataclass(frozen=True, slots=True)
class Paces:
    """Work by rank and by like, which is a kind and a part of the model.

    rows: Operations that are work; ``rank`` and ``like`` are places for each of them. own, peers: Median seconds by
    rank and like, of the rank and of the others of its stage; ``peers`` of a rank without others are its own.
    """

    rows: Ints
    lasting: Floats
    rank: Ints
    like: Ints
    ranks: Ints
    dp_rank: Ints
    stage: Ints
    host: Ints
    own: Floats
    peers: Floats

    @property
    def times(self) -> Floats:
        """How many times as long as its peers each rank takes."""
        found: Floats = self.own.sum(axis=1) / np.maximum(self.peers.sum(axis=1), 1e-12)
        return found

    def chance(self) -> Floats:
        """Return by how much more than once each rank may differ from its peers by the jitter of its operations."""
        cells = self.rank * self.own.shape[1] + self.like
        alike = np.bincount(cells)[cells]
        known = alike >= _FEWEST_ALIKE
        if not known.any():
            return np.full(len(self.ranks), _SURE * _TO_DEVIATION * float(np.median(np.abs(self.times - 1))))
        # A median of few lies close to them: Croux and Rousseeuw, Time-efficient algorithms (1992).
        away = np.abs(self._by(self.own[self.rank, self.like]) - 1) * alike / (alike - 0.8)
        # Not the median: lengths of sequences have long tails, by which ranks differ too.
        spread = _MEAN_TO_DEVIATION * float(away[known].mean())
        # Forward and backward pass of a micro-batch may be long for one reason: they count as one.
        found: Floats = _SURE * spread / np.sqrt(np.bincount(self.rank) / 2)
        return found

    def slow(self, most: Bools) -> Floats:
        """Return for each row by what it is longer than peers' where its rank is one of ``most``, else 1."""
        factor = np.where(self.peers > 0, self.own / np.maximum(self.peers, 1e-12), 1.0)
        found: Floats = np.where(most[self.rank], factor[self.rank, self.like], 1.0)
        return found

    def of_batch(self, slow: Bools) -> Floats:
        """Return for each row by what it is longer than the mean of its stage and like, once slow ranks are not."""
        factor = self.slow(slow)
        cells = self.stage[self.rank] * self.own.shape[1] + self.like
        counts = np.bincount(cells)
        means = np.bincount(cells, weights=self.lasting / factor) / np.maximum(counts, 1)
        return self._by(means[cells] * factor)

    def _by(self, usual: Floats) -> Floats:
        found: Floats = np.where(usual > 0, self.lasting / np.where(usual > 0, usual, 1.0), 1.0)
        return found


def paces_of(ops: Operations, lasting: Floats) -> Paces:
    """Return the paces of the work among operations that last as given."""
    rows = np.flatnonzero(ops.is_work)
    ranks, first, rank = np.unique(ops.rank[rows], return_index=True, return_inverse=True)
    likes, like = np.unique(combined(ops.kind[rows], np.maximum(ops.chunk[rows], 0)), return_inverse=True)
    stage = ops.stage[rows][first]
    own = _medians(rank * len(likes) + like, lasting[rows], len(ranks) * len(likes)).reshape(len(ranks), len(likes))
    return Paces(
        rows=rows,
        lasting=lasting[rows],
        rank=rank,
        like=like,
        ranks=ranks,
        dp_rank=ops.dp_rank[rows][first],
        stage=stage,
        host=ops.host[rows][first],
        own=own,
        peers=_peers(own, stage),
    )


def by_step(paces: Paces, step: Ints) -> Floats:
    """Return how many times as long as its peers each rank takes in each step."""
    steps = int(step.max()) + 1
    spent = np.bincount(paces.rank * steps + step, weights=paces.lasting, minlength=len(paces.ranks) * steps)
    by_rank = spent.reshape(len(paces.ranks), steps).astype(np.float64)
    peers = _peers(by_rank, paces.stage)
    found: Floats = np.where(peers > 0, by_rank / np.where(peers > 0, peers, 1.0), 1.0)
    return found


def _peers(own: Floats, stage: Ints) -> Floats:
    """Return for each rank the medians of the others of its stage; its own where there are none."""
    found = own.copy()
    for each in np.unique(stage):
        members = np.flatnonzero(stage == each)
        if len(members) > 1:
            found[members] = _medians_of_others(own[members])
    return found


def _medians_of_others(values: Floats) -> Floats:
    """Return for each row the medians of the other rows."""
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    place = np.argsort(order, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    low, high = (count - 2) // 2, (count - 1) // 2
    # Without a row, what stands behind it moves one place ahead.
    found: Floats = (
        np.take_along_axis(ordered, np.where(place <= low, low + 1, low), axis=0)
        + np.take_along_axis(ordered, np.where(place <= high, high + 1, high), axis=0)
    ) / 2
    return found


def _medians(cells: Ints, values: Floats, count: int) -> Floats:
    """Return the median of the values of each cell; 0 of none."""
    order = np.lexsort((values, cells))
    begins = np.searchsorted(cells[order], np.arange(count + 1))
    sizes = np.diff(begins)
    ordered = np.append(values[order], 0.0)
    low, high = begins[:-1] + np.maximum(sizes - 1, 0) // 2, begins[:-1] + sizes // 2
    high = np.where(sizes > 0, np.minimum(high, begins[1:] - 1), low)
    found: Floats = np.where(sizes > 0, (ordered[low] + ordered[high]) / 2, 0.0)
    return found
