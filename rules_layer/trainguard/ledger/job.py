"""The ledger of a job: where every GPU-second that was paid for went, on all nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.ledger.claims import Claim, Claimed, Remaining
from trainguard.ledger.document import LedgerEntry, NodeLedgerEntries
from trainguard.ledger.node import NodeLedger
from trainguard.ledger.shares import StepShares
from trainguard.ledger.spans import Span, shares_in
from trainguard.telemetry.snapshots import FloatArray

MOST_TIMES = 3


@dataclass
class Ledger:
    """The ledgers of all nodes that have GPUs.

    Attributes
    ----------
    nodes : list of NodeLedger
    hourly : float or None
        Price of one node an hour; None where it is not known.
    left_out : tuple of str
        Nodes of which GPUs are not in it, because nothing measures their utilization: partitioned GPUs.
    shares : StepShares or None
        The kernel trace that divides what was left open.
    """

    nodes: Sequence[NodeLedger]
    hourly: float | None = None
    left_out: tuple[str, ...] = ()
    shares: StepShares | None = None

    @property
    def paid_gpu_seconds(self) -> float:
        """GPU-seconds that were paid for."""
        return sum(node.paid_gpu_seconds for node in self.nodes)

    @property
    def goodput(self) -> float | None:
        """The share, 0 to 1, of the paid time that was compute in steps that counted.

        None where nothing was paid, and where no GPU was sampled: nobody knows it then.
        """
        paid = self.paid_gpu_seconds
        return self.gpu_seconds(Bucket.COMPUTE) / paid if paid > self.gpu_seconds(Bucket.NO_SAMPLES) else None

    def low_share(self) -> float:
        """Return the share, 0 to 1, of the paid time that is lost where a node's GPUs do less than half they could.

        Start-up, tail and times that are known to be ruined, without instances or without samples are no part of it.
        """
        paid = self.paid_gpu_seconds
        return sum(node.low_gpu_seconds() for node in self.nodes) / paid if paid > 0.0 else 0.0

    def gpu_seconds(self, bucket: Bucket) -> float:
        """Return the GPU-seconds of a bucket on all nodes."""
        return sum(float(node.of(bucket).sum()) for node in self.nodes)

    def usd(self, gpu_seconds: float, node: NodeLedger) -> float | None:
        """Return what GPU-seconds of a node cost; None where no price is known."""
        return None if self.hourly is None else gpu_seconds * self.hourly / 3_600.0 / max(node.gpus, 1)

    def mark(self, bucket: Bucket, spans: Iterable[Span], nodes: Iterable[str] = ()) -> None:
        """Say that a job hung, or computed garbage, in ``spans``, epoch seconds; without ``nodes`` on all of them."""
        spans, named = tuple(spans), frozenset(nodes)
        for node in self.nodes:
            if not named or node.node in named:
                node.mark(bucket, spans)

    def entries(self) -> list[LedgerEntry]:
        """Return the buckets of all nodes together, those that are empty too, in the order of `Bucket`."""
        return self._entries(self.nodes)

    def by_node(self) -> list[NodeLedgerEntries]:
        """Return the same of each node, without the buckets that are empty."""
        return [
            NodeLedgerEntries(
                node=node.node,
                gpus=node.gpus,
                gpu_seconds=node.paid_gpu_seconds,
                ledger=[entry for entry in self._entries([node]) if entry.gpu_seconds > 0.0],
            )
            for node in self.nodes
        ]

    def _entries(self, nodes: Sequence[NodeLedger]) -> list[LedgerEntry]:
        totals = _sum([node.totals() for node in nodes])
        paid = float(totals.sum())
        estimated = {bucket for node in nodes for bucket in node.estimated}
        traced = None if self.shares is None else self.shares.steps
        return [
            LedgerEntry(
                bucket=bucket,
                gpu_seconds=float(totals[row]),
                share=float(totals[row]) / paid if paid > 0.0 else 0.0,
                usd=self._sum_usd(nodes, row),
                estimated=bucket in estimated,
                steps=traced if bucket in estimated and bucket is not Bucket.RESTART else None,
                sm_share=_sm_share(nodes) if bucket is Bucket.COMPUTE else None,
                times=_times(nodes, bucket),
            )
            for bucket, row in ROWS.items()
        ]

    def _sum_usd(self, nodes: Sequence[NodeLedger], row: int) -> float | None:
        parts = [self.usd(float(node.amounts[row].sum()), node) for node in nodes]
        known = [part for part in parts if part is not None]
        return None if self.hourly is None else sum(known)

    def claim(self, claims: Iterable[Claim]) -> list[Claimed]:
        """Give each claim, in the order given, what no earlier one has taken; the most important cause comes first."""
        rest = [Remaining.of(node) for node in self.nodes]
        paid = self.paid_gpu_seconds
        found, taken_by = [], dict[str, float]()
        for claim in claims:
            left = max(claim.at_most - taken_by.get(claim.rule, 0.0), 0.0) / self._number_of(claim)
            taken = {each.node.node: (each.node, each.take(claim, left)) for each in rest}
            by_node = {name: sum(part.values()) for name, (_, part) in taken.items() if part}
            taken_by[claim.rule] = taken_by.get(claim.rule, 0.0) + sum(by_node.values())
            seconds = {bucket: sum(part.get(bucket, 0.0) for _, part in taken.values()) for bucket in claim.buckets}
            costs = [self.usd(sum(part.values()), node) for node, part in taken.values()]
            found.append(
                Claimed(
                    claim=claim,
                    gpu_seconds={bucket: each for bucket, each in seconds.items() if each > 0.0},
                    share=sum(by_node.values()) / paid if paid > 0.0 else 0.0,
                    usd=None if self.hourly is None else sum(cost for cost in costs if cost is not None),
                    by_node=by_node,
                )
            )
        return found

    def _number_of(self, claim: Claim) -> int:
        """Return on how many nodes a claim can take something."""
        return max(sum(not claim.nodes or node.node in claim.nodes for node in self.nodes), 1)

    def rate(self, claim: Claim, since: float) -> float:
        """Return how much of the paid time a claim takes from ``since`` on, epoch seconds, as a share, 0 to 1.

        That is what goes on being lost, where the claim's last span reaches to the end. 0 where nothing was paid then.
        """
        paid = taken = 0.0
        for node in self.nodes:
            share = shares_in(node.edges, [(since, float(node.edges[-1]))])
            paid += float((node.amounts * share).sum())
            spans = tuple((max(start, since), end) for start, end in claim.spans if end > since)
            part = replace(claim, spans=spans)
            held_s, whole_s = (sum(end - start for start, end in of.spans) for of in (part, claim))
            most = claim.at_most * (held_s / whole_s if whole_s else 1.0) / self._number_of(claim)
            taken += sum(Remaining.of(node).take(part, most).values())
        return taken / paid if paid > 0.0 else 0.0


def _sum(parts: Sequence[FloatArray]) -> FloatArray:
    return np.sum(parts, axis=0) if parts else np.zeros(len(Bucket))


def _sm_share(nodes: Sequence[NodeLedger]) -> float | None:
    known = [node for node in nodes if node.sm_gpu_seconds is not None]
    busy = sum(float(node.of(Bucket.COMPUTE).sum()) for node in known)
    worth = sum(node.sm_gpu_seconds or 0.0 for node in known)
    return min(worth / busy, 1.0) if busy > 0.0 else None


def _times(nodes: Sequence[NodeLedger], bucket: Bucket) -> list[Span]:
    """Return the times at which a bucket took most, the largest first: those of the node where it took most."""
    found = [run for node in nodes for run in node.times_of(bucket, MOST_TIMES)]
    return [span for _, span in sorted(found, key=lambda run: (-run[0], run[1]))[:MOST_TIMES]]
