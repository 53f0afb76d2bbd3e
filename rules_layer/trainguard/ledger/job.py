"""The ledger of a job: where every GPU-second that was paid for went, on all nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainguard.ledger.bucket import ROWS, Bucket, StepShares
from trainguard.ledger.claims import Cells, Claim, Claimed, Remaining
from trainguard.ledger.document import LedgerEntry, NodeLedgerEntries
from trainguard.ledger.node import NodeLedger, Span

MOST_TIMES = 3


@dataclass
class Ledger:
    """The ledgers of all nodes that have GPUs; they change by `mark` alone.

    ``hourly`` is the price of one node; ``left_out`` are nodes with partitioned GPUs, whose utilization nothing
    measures.
    """

    nodes: Sequence[NodeLedger]
    hourly: float | None = None
    left_out: tuple[str, ...] = ()
    shares: StepShares | None = None
    _held: Cells | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def cells(self) -> Cells:
        """The cells of all nodes, as they are marked now."""
        if self._held is None:
            self._held = Cells.of(self.nodes)
        return self._held

    @property
    def paid_gpu_seconds(self) -> float:
        """GPU-seconds that were paid for."""
        return self.cells.paid_gpu_seconds

    @property
    def goodput(self) -> float | None:
        """The share, 0 to 1, of paid time that was compute in steps that counted; None without paid time or samples."""
        paid = self.paid_gpu_seconds
        return self.gpu_seconds(Bucket.COMPUTE) / paid if paid > self.gpu_seconds(Bucket.NO_SAMPLES) else None

    def low_share(self) -> float:
        """Return the share, 0 to 1, of the paid time that is lost where a node's GPUs do less than half they could.

        Start-up, tail and times that are known to be ruined, without instances or without samples are no part of it.
        """
        paid = self.paid_gpu_seconds
        return self.cells.low_gpu_seconds() / paid if paid > 0.0 else 0.0

    def gpu_seconds(self, bucket: Bucket) -> float:
        """Return the GPU-seconds of a bucket on all nodes."""
        return float(self.cells.amounts[ROWS[bucket]].sum())

    def usd(self, gpu_seconds: float, node: NodeLedger) -> float | None:
        """Return what GPU-seconds of a node cost; None where no price is known."""
        return None if self.hourly is None else gpu_seconds * self.hourly / 3_600.0 / max(node.gpus, 1)

    @property
    def spent(self) -> float | None:
        """What the paid time cost; None where no price is known."""
        costs = self._usd_by_bucket(self.cells)
        return None if costs is None else sum(costs)

    def mark(self, bucket: Bucket, spans: Iterable[Span], nodes: Iterable[str] = ()) -> None:
        """Say that a job hung, or computed garbage, in ``spans``, epoch seconds; without ``nodes`` on all of them."""
        spans, named, self._held = tuple(spans), frozenset(nodes), None
        for node in self.nodes:
            if not named or node.node in named:
                node.mark(bucket, spans)

    def entries(self) -> list[LedgerEntry]:
        """Return the buckets of all nodes together, those that are empty too, in the order of `Bucket`."""
        return self._entries(self.cells)

    def by_node(self) -> list[NodeLedgerEntries]:
        """Return the same of each node, without the buckets that are empty."""
        return [
            NodeLedgerEntries(
                node=node.node,
                gpus=node.gpus,
                gpu_seconds=node.paid_gpu_seconds,
                ledger=[entry for entry in self._entries(Cells.of([node])) if entry.gpu_seconds > 0.0],
            )
            for node in self.nodes
        ]

    def _entries(self, cells: Cells) -> list[LedgerEntry]:
        totals, usd = cells.amounts.sum(axis=1), self._usd_by_bucket(cells)
        paid = float(totals.sum())
        estimated = {bucket for node in cells.nodes for bucket in node.estimated}
        traced = None if self.shares is None else self.shares.steps
        return [
            LedgerEntry(
                bucket=bucket,
                gpu_seconds=float(totals[row]),
                share=float(totals[row]) / paid if paid > 0.0 else 0.0,
                usd=None if usd is None else usd[row],
                estimated=bucket in estimated,
                steps=traced if bucket in estimated and bucket is not Bucket.RESTART else None,
                sm_share=_sm_share(cells.nodes) if bucket is Bucket.COMPUTE else None,
                times=cells.times_of(bucket, MOST_TIMES),
            )
            for bucket, row in ROWS.items()
        ]

    def _usd_by_bucket(self, cells: Cells) -> list[float] | None:
        """Return what each bucket cost, in the order of `Bucket`; None where no price is known."""
        if self.hourly is None:
            return None
        gpus = np.array([max(node.gpus, 1) for node in cells.nodes], dtype=np.float64)
        costs: list[float] = (cells.amounts / gpus[cells.places] * self.hourly / 3_600.0).sum(axis=1).tolist()
        return costs

    def claim(self, claims: Iterable[Claim]) -> list[Claimed]:
        """Give each claim, in the order given, what no earlier one has taken; the most important cause comes first."""
        rest, paid = Remaining(self.cells), self.paid_gpu_seconds
        found, taken_by = [], dict[str, float]()
        for claim in claims:
            left = max(claim.at_most - taken_by.get(claim.rule, 0.0), 0.0) / self._number_of(claim)
            taken = rest.take(claim, left)
            taken_by[claim.rule] = taken_by.get(claim.rule, 0.0) + float(taken.sum())
            seconds, of_nodes = taken.sum(axis=1).tolist(), taken.sum(axis=0).tolist()
            costs = [self.usd(each, node) for each, node in zip(of_nodes, self.nodes, strict=True)]
            found.append(
                Claimed(
                    claim=claim,
                    gpu_seconds={bucket: each for bucket, each in zip(claim.buckets, seconds, strict=True) if each},
                    share=sum(of_nodes) / paid if paid > 0.0 else 0.0,
                    usd=None if self.hourly is None else sum(cost for cost in costs if cost is not None),
                    by_node={node.node: each for each, node in zip(of_nodes, self.nodes, strict=True) if each},
                )
            )
        return found

    def _number_of(self, claim: Claim) -> int:
        return max(sum(not claim.nodes or node.node in claim.nodes for node in self.nodes), 1)

    def rate(self, claim: Claim, since: float) -> float:
        """Return the share, 0 to 1, of paid time that a claim takes from ``since``, epoch seconds, on."""
        cells = self.cells
        until = float(cells.edges.max(initial=since))
        paid = float((cells.amounts.sum(axis=0) * cells.shares_in([(since, until)])).sum())
        spans = tuple((max(start, since), end) for start, end in claim.spans if end > since)
        part = replace(claim, spans=spans)
        held_s, whole_s = (sum(end - start for start, end in of.spans) for of in (part, claim))
        most = claim.at_most * (held_s / whole_s if whole_s else 1.0) / self._number_of(claim)
        return float(Remaining(cells).take(part, most).sum()) / paid if paid > 0.0 else 0.0


def _sm_share(nodes: Sequence[NodeLedger]) -> float | None:
    known = [node for node in nodes if node.sm_gpu_seconds is not None]
    busy = sum(float(node.of(Bucket.COMPUTE).sum()) for node in known)
    worth = sum(node.sm_gpu_seconds or 0.0 for node in known)
    return min(worth / busy, 1.0) if busy > 0.0 else None
