"""Findings claim parts of the ledger: each takes lost GPU-seconds that no finding before it has taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.cells import Cells
from trainguard.ledger.spans import Span


@dataclass(frozen=True, slots=True)
class Claim:
    """A finding's claim: it takes from ``buckets``, in this order, in ``spans``, epoch seconds.

    ``nodes`` and ``gpus`` (``gpu3`` or ``algo-2/gpu3``) are empty for all; ``at_most`` is in GPU-seconds of all claims
    of the rule.
    """

    rule: str
    buckets: tuple[Bucket, ...]
    spans: tuple[Span, ...]
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    at_most: float = np.inf

    def gpus_of(self, nodes: Sequence[str]) -> list[list[str]] | None:
        """Return the GPUs that it names on each of the nodes; None where it is of all of them."""
        if not self.gpus:
            return None
        named: dict[str, list[str]] = {}
        for gpu in self.gpus:
            where, _, name = gpu.rpartition("/")
            named.setdefault(where, []).append(name)
        anywhere = named.pop("", [])
        return [[*anywhere, *named.get(node, ())] for node in nodes]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim's part: GPU-seconds by bucket, and its share, 0 to 1, of all that was paid for."""

    claim: Claim
    gpu_seconds: Mapping[Bucket, float]
    share: float
    usd: float | None = None
    by_node: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """GPU-seconds of all buckets."""
        return sum(self.gpu_seconds.values())


class Remaining:
    """The unclaimed rest of the ledgers of N nodes, and the lost time of each GPU."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._rows: dict[int, FloatArray] = {}
        self._gpu_lost_s = [dict(node.gpu_lost_s) for node in cells.nodes]

    def take(self, claim: Claim, most: float = np.inf) -> FloatArray:
        """Take a claim's GPU-seconds of each bucket on each of N nodes, ``most`` a node: float64[len(buckets), N]."""
        cells = self._cells
        share = cells.shares_in(claim.spans)
        if claim.nodes:
            claimed = frozenset(claim.nodes)
            share = share * np.array([node.node in claimed for node in cells.nodes])[cells.places]
        named = claim.gpus_of([node.node for node in cells.nodes])
        room, limit = np.full(share.size, np.inf), np.full(len(cells.nodes), most)
        if named is not None:
            named = [[gpu for gpu in gpus if gpu in lost] for gpus, lost in zip(named, self._gpu_lost_s, strict=True)]
            room = cells.seconds_in(claim.spans) * np.array([len(gpus) for gpus in named])[cells.places]
            lost_s = [sum(lost[gpu] for gpu in gpus) for gpus, lost in zip(named, self._gpu_lost_s, strict=True)]
            limit = np.minimum(limit, lost_s)
        taken = np.zeros((len(claim.buckets), len(cells.nodes)))
        for place, bucket in enumerate(claim.buckets):
            part = self._part(ROWS[bucket], share, room, limit)
            taken[place] = cells.by_node(part)
            room, limit = np.maximum(room - part, 0.0), np.maximum(limit - taken[place], 0.0)
        if named is not None:
            self._charge(named, taken.sum(axis=0).tolist())
        return taken

    def _part(self, row: int, share: FloatArray, room: FloatArray, limit: FloatArray) -> FloatArray:
        """Take from one bucket, of each cell no more than ``room`` and of each node no more than ``limit``."""
        left = self._rows.get(row, self._cells.amounts[row])
        part = np.minimum(np.minimum(self._cells.amounts[row] * share, left), room)
        total = self._cells.by_node(part)
        kept = np.divide(np.minimum(total, limit), total, out=np.zeros_like(total), where=total > 0.0)
        taken: FloatArray = part * kept[self._cells.places]
        self._rows[row] = np.maximum(left - taken, 0.0)
        return taken

    def _charge(self, named: Sequence[Sequence[str]], seconds: Sequence[float]) -> None:
        """Take claimed seconds of each node from the lost time of the GPUs that were named there, in proportion."""
        for gpus, lost_s, taken in zip(named, self._gpu_lost_s, seconds, strict=True):
            lost = sum(lost_s[gpu] for gpu in gpus)
            for gpu in gpus:
                lost_s[gpu] *= max(1.0 - taken / lost, 0.0) if lost else 0.0
