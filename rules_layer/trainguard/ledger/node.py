"""The ledger of one node: its paid time in cells, and the GPU-seconds of each bucket in each cell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import ROWS, Bucket
from trainguard.state.step_time import ProcessTime, StepTime

# From and to, epoch seconds.
Span = tuple[float, float]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order of time, those that overlap or touch as one, empty ones left out."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def without(spans: Iterable[Span], taken_out: Iterable[Span]) -> list[Span]:
    left = joined(spans)
    for start, end in joined(taken_out):
        left = [part for begin, until in left for part in ((begin, min(until, start)), (max(begin, end), until))]
        left = [(begin, until) for begin, until in left if until > begin]
    return left


def seconds_in(edges: FloatArray, spans: Sequence[Span]) -> FloatArray:
    """Return how many seconds of each cell lie in disjoint, ordered spans: float64[C] of ``edges``, float64[C + 1]."""
    if not spans:
        return np.zeros(max(len(edges) - 1, 0))
    passed = seconds_until(edges, spans)
    covered: FloatArray = passed[1:] - passed[:-1]
    return covered


def seconds_until(times: FloatArray, spans: Sequence[Span]) -> FloatArray:
    """Return how many seconds of disjoint, ordered spans, of which there is one, have passed at each time."""
    passed: FloatArray = np.interp(times, *_knots(tuple(spans)))
    return passed


@lru_cache(maxsize=64)
def _knots(spans: tuple[Span, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of spans, and how many seconds of them have passed at each: of all nodes they are the same."""
    knots = np.array(spans, dtype=np.float64).ravel()
    lengths = np.diff(knots)
    lengths[1::2] = 0.0
    return knots, np.concatenate([[0.0], np.cumsum(lengths)])


def shares_in(edges: FloatArray, spans: Iterable[Span]) -> FloatArray:
    """Return which share, 0 to 1, of each cell lies in spans: float64[C]."""
    lengths = np.maximum(np.diff(edges), 1e-9)
    return np.clip(seconds_in(edges, joined(spans)) / lengths, 0.0, 1.0)


# What a mark does not take: what comes before it in the order of the buckets.
_KEPT = {
    Bucket.HANG: (Bucket.NO_SAMPLES, Bucket.RESTART),
    Bucket.BROKEN: (Bucket.NO_SAMPLES, Bucket.RESTART, Bucket.HANG),
}


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
    return np.zeros((len(Bucket), cells))


@dataclass(frozen=True, slots=True)
class Attempts:
    """A node's attempts: ``processes`` are the most at one time, ``savers`` and ``evaluators`` those of an attempt.

    An attempt is a process that ended before others began. A restart costs the time between attempts, and that of
    repeated step numbers, estimated at the attempt's mean pace.
    ``restarts`` reach from an attempt's last event to the next one's first; ``again`` are steps that were done again.
    """

    processes: int
    savers: int
    evaluators: int
    restarts: list[Span]
    again: list[Span]


NO_ATTEMPTS = Attempts(0, 0, 0, [], [])


def attempts_of(time: StepTime) -> Attempts:
    groups = _groups(each for each in time.processes.values() if each.steps or each.saves or each.evaluates)
    restarts, again, reached = [], [], -1
    for place, group in enumerate(groups):
        if place:
            ended = max(each.last_ms for each in groups[place - 1])
            restarts.append((ended / 1_000, min(each.first_ms for each in group) / 1_000))
            again.extend(_again(group, reached))
        reached = max([reached, *(each.last_number for each in group)])
    return Attempts(
        processes=max((sum(each.steps > 0 for each in group) for group in groups), default=0),
        savers=max((sum(each.saves for each in group) for group in groups), default=0),
        evaluators=max((sum(each.evaluates for each in group) for group in groups), default=0),
        restarts=joined(restarts),
        again=joined(again),
    )


def _groups(processes: Iterable[ProcessTime]) -> list[list[ProcessTime]]:
    groups: list[list[ProcessTime]] = []
    until = -1
    for each in sorted(processes, key=lambda process: (process.first_ms, process.last_ms)):
        if not groups or each.first_ms >= until:
            groups.append([])
        groups[-1].append(each)
        until = max(until, each.last_ms)
    return groups


def _again(group: list[ProcessTime], reached: int) -> list[Span]:
    numbered = [each for each in group if each.first_number >= 0]
    if not numbered:
        return []
    lowest, highest = min(each.first_number for each in numbered), max(each.last_number for each in numbered)
    if lowest > reached:
        return []
    start, end = min(each.first_ms for each in numbered), max(each.last_ms for each in numbered)
    share = min((reached - lowest + 1) / (highest - lowest + 1), 1.0)
    return [(start / 1_000, (start + share * (end - start)) / 1_000)]
