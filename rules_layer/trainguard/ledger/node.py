"""The ledger of one node: its paid time in cells, and the GPU-seconds of each bucket in each cell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.spans import Span, joined, shares_in

_KEPT = {
    Bucket.HANG: (Bucket.NO_SAMPLES, Bucket.RESTART),
    Bucket.BROKEN: (Bucket.NO_SAMPLES, Bucket.RESTART, Bucket.HANG),
}
"""What a mark does not take: what comes before it in the order of the buckets."""


@dataclass
class NodeLedger:
    """The paid time of one node's GPUs, in C cells in order.

    ``edges`` (float64[C + 1]) are epoch seconds, ``amounts`` (float64[B, C]) GPU-seconds by bucket, in the order of
    `Bucket`. ``gpu_lost_s`` are seconds without work by GPU; ``sm_gpu_seconds`` is SM activity integrated over the
    sampled time, None where it was not collected. ``estimated`` buckets are divided by a kernel trace of a few steps,
    or by even pace.
    """

    node: str
    gpus: int
    edges: FloatArray
    amounts: FloatArray
    gpu_lost_s: Mapping[str, float] = field(default_factory=dict)
    sm_gpu_seconds: float | None = None
    estimated: set[Bucket] = field(default_factory=set)

    @property
    def paid_gpu_seconds(self) -> float:
        """GPU-seconds that were paid for, all buckets together."""
        return float(self.amounts.sum())

    def of(self, bucket: Bucket) -> FloatArray:
        """Return the GPU-seconds of a bucket in each cell, float64[C]; a view."""
        row: FloatArray = self.amounts[ROWS[bucket]]
        return row

    def mark(self, bucket: Bucket, spans: Iterable[Span]) -> None:
        """Move all in ``spans`` to HANG or BROKEN, but what stands before that in the order of the buckets.

        A cell that lies in them in part is divided there, evenly.
        """
        spans = joined(spans)
        self._divide_at([edge for span in spans for edge in span])
        moved = np.where(shares_in(self.edges, spans) > 0.5, self.amounts, 0.0)
        for kept in (*_KEPT[bucket], bucket):
            moved[ROWS[kept]] = 0.0
        self.amounts -= moved
        self.amounts[ROWS[bucket]] += moved.sum(axis=0)

    def _divide_at(self, times: Sequence[float]) -> None:
        inside = [time for time in times if self.edges[0] < time < self.edges[-1]]
        edges = np.unique(np.concatenate([self.edges, inside]))
        sums = np.concatenate([np.zeros((len(Bucket), 1)), np.cumsum(self.amounts, axis=1)], axis=1)
        self.amounts = np.maximum(np.stack([np.diff(np.interp(edges, self.edges, row)) for row in sums]), 0.0)
        self.edges = edges


def empty_amounts(cells: int) -> FloatArray:
    """Return amounts of no time, float64[B, cells]."""
    return np.zeros((len(Bucket), cells))
