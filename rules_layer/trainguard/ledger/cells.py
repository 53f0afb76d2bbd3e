"""The cells of several nodes in one row, so that what a job lost is counted on all nodes at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.node import NodeLedger
from trainguard.ledger.spans import Span, joined, seconds_in, shares_in

LOW_USE = 0.5
"""Time in which the GPUs do less than this part of what they could needs a reason."""
_MOST_OF = 0.5
"""A stretch is a bucket's where the bucket takes so much of it."""

_NO_WORK = (
    Bucket.NO_SAMPLES,
    Bucket.RESTART,
    Bucket.HANG,
    Bucket.BROKEN,
    Bucket.START_UP,
    Bucket.TAIL,
)


@dataclass(frozen=True, slots=True)
class Cells:
    """C cells of N nodes, those of a node together and in order of time.

    ``edges`` (float64[C + N]) are epoch seconds, one more than cells of each node; ``inside`` (bool[C + N - 1]) says
    whether a cell lies between an edge and the next. ``places`` (int64[C]) are the cells' nodes, ``amounts``
    (float64[B, C]) GPU-seconds by bucket, in the order of `Bucket`.
    """

    nodes: Sequence[NodeLedger]
    edges: FloatArray
    inside: BoolArray
    places: IntArray
    amounts: FloatArray

    @classmethod
    def of(cls, nodes: Sequence[NodeLedger]) -> "Cells":
        """Return the cells of nodes as they are now."""
        owners = np.repeat(np.arange(len(nodes)), [node.edges.size for node in nodes])
        inside = owners[1:] == owners[:-1]
        edges = np.concatenate([np.zeros(0), *(node.edges for node in nodes)])
        amounts = np.concatenate([np.zeros((len(Bucket), 0)), *(node.amounts for node in nodes)], axis=1)
        return cls(nodes, edges, inside, owners[:-1][inside], amounts)

    @property
    def paid_gpu_seconds(self) -> float:
        """GPU-seconds of all nodes and buckets."""
        return float(self.by_node(self.amounts.sum(axis=0)).sum())

    def by_node(self, values: FloatArray) -> FloatArray:
        """Return the sum of values of the cells, float64[C], by node: float64[N]."""
        sums, firsts = np.zeros(len(self.nodes)), np.flatnonzero(np.diff(self.places, prepend=-1))
        if firsts.size:
            sums[self.places[firsts]] = np.add.reduceat(values, firsts)
        return sums

    def seconds_in(self, spans: Iterable[Span]) -> FloatArray:
        """Return how many seconds of each cell lie in spans, float64[C]."""
        return seconds_in(self.edges, joined(spans))[self.inside]

    def shares_in(self, spans: Iterable[Span]) -> FloatArray:
        """Return which share, 0 to 1, of each cell lies in spans, float64[C]."""
        return shares_in(self.edges, spans)[self.inside]

    def low_gpu_seconds(self) -> float:
        """Return the GPU-seconds lost in cells of work in which the GPUs do less than half of what they could."""
        work = self.amounts.sum(axis=0) - self.amounts[[ROWS[bucket] for bucket in _NO_WORK]].sum(axis=0)
        lost = work - self.amounts[ROWS[Bucket.COMPUTE]]
        return float(lost[lost > LOW_USE * work].sum())

    def times_of(self, bucket: Bucket, most: int) -> list[Span]:
        """Return the ``most`` stretches on any node that a bucket took most of, those with most of it first."""
        held = self.amounts[ROWS[bucket]]
        if not held.any():
            return []
        full = self._full(held)
        starts = self.edges[:-1][self.inside]
        ends = self.edges[1:][self.inside]
        follows = np.concatenate([[False], full[:-1] & (self.places[1:] == self.places[:-1])])
        runs = np.cumsum(full & ~follows) - 1
        firsts = np.flatnonzero(full & ~follows)
        lasts = np.append(firsts[1:], full.size)
        sums = np.bincount(runs[full], weights=held[full], minlength=firsts.size)
        found = []
        for run in np.lexsort((starts[firsts], -sums))[:most].tolist():
            cells = np.flatnonzero(full[firsts[run] : lasts[run]])
            found.append((float(starts[firsts[run]]), float(ends[firsts[run] + cells[-1]])))
        return found

    def _full(self, held: FloatArray) -> BoolArray:
        """Return of which cells a bucket takes most, bool[C]; on a node without one, those where it takes most."""
        gpus = np.array([node.gpus for node in self.nodes])
        lengths = np.diff(self.edges)[self.inside] * gpus[self.places]
        full: BoolArray = held >= _MOST_OF * np.maximum(lengths, 1e-9)
        without = (self.by_node(full.astype(np.float64)) == 0.0)[self.places]
        if without.any():
            highest = np.zeros(len(self.nodes))
            np.maximum.at(highest, self.places, held)
            full = full | (without & (held > 0.0) & (held >= highest[self.places]))
        return full
