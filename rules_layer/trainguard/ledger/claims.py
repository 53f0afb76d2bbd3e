"""Findings claim parts of the ledger: each takes lost GPU-seconds that no finding before it has taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.node import NodeLedger
from trainguard.ledger.spans import Span, seconds_in, shares_in
from trainguard.ledger.spans import joined as joined_spans
from trainguard.telemetry.snapshots import FloatArray


@dataclass(frozen=True, slots=True)
class Claim:
    """What a finding says it explains.

    Attributes
    ----------
    rule : str
    buckets : tuple of Bucket
        From which it takes, in this order.
    spans : tuple of Span
        When it held, epoch seconds.
    nodes : tuple of str
        Where it held; empty for all nodes.
    gpus : tuple of str
        The GPUs on which it held, ``gpu3`` or ``algo-2/gpu3``; empty for all GPUs of the nodes.
    at_most : float
        GPU-seconds that all claims of the rule can explain together, on all nodes.
    """

    rule: str
    buckets: tuple[Bucket, ...]
    spans: tuple[Span, ...]
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    at_most: float = np.inf

    def gpus_of(self, node: str) -> tuple[str, ...] | None:
        """Return the GPUs that it names on a node; None where it is of all of them."""
        if not self.gpus:
            return None
        named = (gpu.rpartition("/") for gpu in self.gpus)
        return tuple(gpu for where, _, gpu in named if where in {"", node})


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim got: GPU-seconds by bucket, and its share, 0 to 1, of all that was paid for."""

    claim: Claim
    gpu_seconds: Mapping[Bucket, float]
    share: float
    usd: float | None = None
    by_node: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """GPU-seconds of all buckets."""
        return sum(self.gpu_seconds.values())


@dataclass
class Remaining:
    """What of a node's ledger no finding has claimed yet: ``amounts`` float64[B, C], and the lost time of each GPU."""

    node: NodeLedger
    amounts: FloatArray
    gpu_lost_s: dict[str, float]

    @classmethod
    def of(cls, node: NodeLedger) -> "Remaining":
        """Return all of it."""
        return cls(node, node.amounts.copy(), dict(node.gpu_lost_s))

    def take(self, claim: Claim, limit: float = np.inf) -> Mapping[Bucket, float]:
        """Take what a claim gets of this node, GPU-seconds by bucket: ``limit`` at most."""
        if claim.nodes and self.node.node not in claim.nodes:
            return {}
        named = claim.gpus_of(self.node.node)
        share = shares_in(self.node.edges, claim.spans)
        room = np.full(len(share), np.inf)
        if named is not None:
            named = tuple(gpu for gpu in named if gpu in self.gpu_lost_s)
            room = len(named) * seconds_in(self.node.edges, joined_spans(claim.spans))
            limit = min(limit, sum(self.gpu_lost_s[gpu] for gpu in named))
        taken = {}
        for bucket in dict.fromkeys(claim.buckets):
            part = self._part(ROWS[bucket], share, room, limit)
            if part is not None:
                room, limit = room - part, limit - float(part.sum())
                taken[bucket] = float(part.sum())
        if named:
            self._charge(named, sum(taken.values()))
        return taken

    def _part(self, row: int, share: FloatArray, room: FloatArray, limit: float) -> FloatArray | None:
        part = np.minimum(np.minimum(self.node.amounts[row] * share, self.amounts[row]), np.maximum(room, 0.0))
        total = float(part.sum())
        if total <= 0.0 or limit <= 0.0:
            return None
        taken: FloatArray = part * min(1.0, limit / total)
        self.amounts[row] -= taken
        return taken

    def _charge(self, gpus: Sequence[str], seconds: float) -> None:
        """Take claimed seconds from the lost time of the GPUs that were named, in proportion."""
        lost = sum(self.gpu_lost_s[gpu] for gpu in gpus)
        for gpu in gpus:
            self.gpu_lost_s[gpu] *= max(1.0 - seconds / lost, 0.0) if lost else 0.0
