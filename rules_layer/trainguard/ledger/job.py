"""The ledger of a job: where every GPU-second that was paid for went, on all nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.ledger.bucket import ROWS, Bucket, StepShares
from trainguard.ledger.document import LedgerEntry, NodeLedgerEntries
from trainguard.ledger.node import NodeLedger, Span, joined, seconds_in, shares_in

# Time in which the GPUs do less than this part of what they could needs a reason.
LOW_USE = 0.5
# A stretch is a bucket's where the bucket takes so much of it.
_MOST_OF = 0.5

_NO_WORK = (
    Bucket.NO_SAMPLES,
    Bucket.RESTART,
    Bucket.HANG,
    Bucket.BROKEN,
    Bucket.START_UP,
    Bucket.TAIL,
)


@dataclass(frozen=True)
class LedgerCells:
    """C cells of N nodes, those of a node together and in order of time.

    ``edges`` (float64[C + N]) are epoch seconds, one more than cells of each node; ``inside`` (bool[C + N - 1]) says
    whether a cell lies between an edge and the next. ``places`` (int64[C]) are the cells' nodes.
    """

    nodes: Sequence[NodeLedger]
    edges: FloatArray
    inside: BoolArray
    places: IntArray
    _amounts: dict[Bucket, FloatArray] = field(default_factory=dict)

    @classmethod
    def of_nodes(cls, nodes: Sequence[NodeLedger]) -> "LedgerCells":
        owners = np.repeat(np.arange(len(nodes)), [node.edges.size for node in nodes])
        inside = owners[1:] == owners[:-1]
        edges = np.concatenate([np.zeros(0), *(node.edges for node in nodes)])
        return cls(nodes, edges, inside, owners[:-1][inside])

    def of(self, bucket: Bucket) -> FloatArray:
        """Return the GPU-seconds of a bucket in each cell, float64[C]; most buckets took nothing."""
        if bucket not in self._amounts:
            amounts = np.concatenate([np.zeros(0), *(node.of(bucket) for node in self.nodes)])
            self._amounts[bucket] = amounts if amounts.any() else self._none
        return self._amounts[bucket]

    @cached_property
    def _none(self) -> FloatArray:
        return np.zeros(self.places.size)

    @cached_property
    def paid(self) -> FloatArray:
        paid = self._none.copy()
        for bucket in Bucket:
            paid += self.of(bucket)
        return paid

    @cached_property
    def paid_gpu_seconds(self) -> float:
        return float(self.by_node(self.paid).sum())

    def by_node(self, values: FloatArray) -> FloatArray:
        """Return the sum of values of the cells, float64[C], by node: float64[N]."""
        sums, firsts = np.zeros(len(self.nodes)), np.flatnonzero(np.diff(self.places, prepend=-1))
        if firsts.size:
            sums[self.places[firsts]] = np.add.reduceat(values, firsts)
        return sums

    def seconds_in(self, spans: Iterable[Span]) -> FloatArray:
        return seconds_in(self.edges, joined(spans))[self.inside]

    def shares_in(self, spans: Iterable[Span]) -> FloatArray:
        return shares_in(self.edges, spans)[self.inside]

    def low_gpu_seconds(self) -> float:
        """Return the GPU-seconds lost in cells of work in which the GPUs do less than half of what they could."""
        work = self.paid - sum(self.of(bucket) for bucket in _NO_WORK)
        lost = work - self.of(Bucket.COMPUTE)
        return float(lost[lost > LOW_USE * work].sum())

    def times_of(self, bucket: Bucket, most: int) -> list[Span]:
        """Return the ``most`` stretches on any node that a bucket took most of, those with most of it first."""
        held = self.of(bucket)
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

    @property
    def total(self) -> float:
        return sum(self.gpu_seconds.values())


class Remaining:
    """The unclaimed rest of the ledgers of N nodes, and the lost time of each GPU."""

    def __init__(self, cells: LedgerCells) -> None:
        self._cells = cells
        self._left: dict[Bucket, FloatArray] = {}
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
            part = self._part(bucket, share, room, limit)
            taken[place] = cells.by_node(part)
            room, limit = np.maximum(room - part, 0.0), np.maximum(limit - taken[place], 0.0)
        if named is not None:
            self._charge(named, taken.sum(axis=0).tolist())
        return taken

    def _part(self, bucket: Bucket, share: FloatArray, room: FloatArray, limit: FloatArray) -> FloatArray:
        """Take from one bucket, of each cell no more than ``room`` and of each node no more than ``limit``."""
        held = self._cells.of(bucket)
        left = self._left.get(bucket, held)
        part = np.minimum(np.minimum(held * share, left), room)
        total = self._cells.by_node(part)
        kept = np.divide(np.minimum(total, limit), total, out=np.zeros_like(total), where=total > 0.0)
        taken: FloatArray = part * kept[self._cells.places]
        self._left[bucket] = np.maximum(left - taken, 0.0)
        return taken

    def _charge(self, named: Sequence[Sequence[str]], seconds: Sequence[float]) -> None:
        """Take claimed seconds of each node from the lost time of the GPUs that were named there, in proportion."""
        for gpus, lost_s, taken in zip(named, self._gpu_lost_s, seconds, strict=True):
            lost = sum(lost_s[gpu] for gpu in gpus)
            for gpu in gpus:
                lost_s[gpu] *= max(1.0 - taken / lost, 0.0) if lost else 0.0


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
    _held: LedgerCells | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def cells(self) -> LedgerCells:
        if self._held is None:
            self._held = LedgerCells.of_nodes(self.nodes)
        return self._held

    @property
    def paid_gpu_seconds(self) -> float:
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
        return float(self.cells.of(bucket).sum())

    def busy(self, span: Span) -> float | None:
        """Return which share, 0 to 1, of a span the GPUs were busy; None where half of it or more has no samples."""
        shares = self.cells.shares_in([span])
        paid = float(self.cells.paid @ shares)
        sampled = paid - float(self.cells.of(Bucket.NO_SAMPLES) @ shares)
        return float(self.cells.of(Bucket.COMPUTE) @ shares) / sampled if sampled > paid / 2.0 else None

    def usd(self, gpu_seconds: float, node: NodeLedger) -> float | None:
        return None if self.hourly is None else gpu_seconds * self.hourly / 3_600.0 / max(node.gpus, 1)

    @property
    def spent(self) -> float | None:
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
                ledger=[entry for entry in self._entries(LedgerCells.of_nodes([node])) if entry.gpu_seconds > 0.0],
            )
            for node in self.nodes
        ]

    def _entries(self, cells: LedgerCells) -> list[LedgerEntry]:
        usd = self._usd_by_bucket(cells)
        totals = np.array([cells.of(bucket).sum() for bucket in Bucket])
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

    def _usd_by_bucket(self, cells: LedgerCells) -> list[float] | None:
        if self.hourly is None:
            return None
        gpus = np.array([max(node.gpus, 1) for node in cells.nodes], dtype=np.float64)
        gpus = gpus[cells.places]
        return [float((cells.of(bucket) / gpus * self.hourly / 3_600.0).sum()) for bucket in Bucket]

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
                )
            )
        return found

    def _number_of(self, claim: Claim) -> int:
        return max(sum(not claim.nodes or node.node in claim.nodes for node in self.nodes), 1)

    def rate(self, claim: Claim, since: float) -> float:
        """Return the share, 0 to 1, of paid time that a claim takes from ``since``, epoch seconds, on."""
        cells = self.cells
        until = float(cells.edges.max(initial=since))
        paid = float((cells.paid * cells.shares_in([(since, until)])).sum())
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
