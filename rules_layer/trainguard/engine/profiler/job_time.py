"""The time of a whole job: when it had no instances, and where the paid time went.

While no node has samples, there is no instance: a spot instance was taken away, and another one went on later under the
same name. A minute whose object was lost is too short to count. An instance that comes begins with a start-up, in which
its GPUs idle; where they work at once, samples were lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from trainguard.formats.profile.events import StepBatch
from trainguard.ledger.assembly import NodeTime, node_ledger, sharing
from trainguard.ledger.bucket import StepShares
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import Span, without
from trainguard.pricing.cost import PaidTime
from trainguard.state.gpu_time import ACTIVE_PERCENT, GpuTime
from trainguard.state.sample_window import INTERRUPTED_S, SampleWindowState
from trainguard.state.step_time import CHECKPOINT, EVALUATION, StepTime

SILENCE_US = 120_000_000
# No instance comes, loads a program and a model, and works in a shorter time.
AT_ONCE_S = 30.0

MOST_RUNS = 16

Run = tuple[int, int]


def interruptions(nodes: Iterable[tuple[SampleWindowState, float | None]]) -> tuple[Span, ...]:
    """Return the times, epoch seconds, in which no node had samples; ``nodes`` are points and watermark of each."""
    observed = sorted(span for kept, watermark_s in nodes for span in _observed(kept, watermark_s))
    seen_until = accumulate((end for _, end in observed), max)
    following = zip(seen_until, (start for start, _ in observed[1:]), strict=False)
    return tuple((seen, start) for seen, start in following if start - seen >= INTERRUPTED_S)


def works_at(use: GpuTime, at: float) -> bool | None:
    """Return whether a GPU works in the first half minute from ``at`` on, epoch seconds; None where unknown."""
    found = use.between(at, at + AT_ONCE_S, np.inf)
    return None if found is None else bool((found.means >= ACTIVE_PERCENT).any())


def _observed(kept: SampleWindowState, watermark_s: float | None) -> list[Span]:
    if kept.first_sample_at is None or watermark_s is None:
        return []
    starts = [kept.first_sample_at, *(end for _, end in kept.gaps)]
    ends = [*(start for start, _ in kept.gaps), watermark_s]
    return list(zip(starts, ends, strict=True))


def with_steps(runs: Sequence[Run], batches: Iterable[StepBatch]) -> list[Run]:
    """Return the runs of steps, epoch microseconds, with more steps; of too many, the shortest silences go."""
    spans = [*runs, *(span for batch in batches for span in _spans(batch))]
    joined: list[Run] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= SILENCE_US:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    if len(joined) <= MOST_RUNS:
        return joined
    silences = [later[0] - earlier[1] for earlier, later in pairwise(joined)]
    longest = sorted(range(len(silences)), key=lambda index: (silences[index], index))[-(MOST_RUNS - 1) :]
    first = [0, *(index + 1 for index in sorted(longest))]
    last = [*(index - 1 for index in first[1:]), len(joined) - 1]
    return [(joined[begin][0], joined[end][1]) for begin, end in zip(first, last, strict=True)]


def without_steps(spans: Iterable[Span], runs: Sequence[Span]) -> tuple[Span, ...]:
    """Return the interruptions, epoch seconds, without steps: where steps went on, samples were lost."""
    return tuple(
        (start, end) for start, end in spans if not any(begin < start and end < until for begin, until in runs)
    )


def _spans(batch: StepBatch) -> list[Run]:
    order = np.argsort(batch.starts_us, kind="stable")
    starts = batch.starts_us[order]
    ends = np.maximum.accumulate(starts + batch.durations_us[order])
    first = np.concatenate([[0], np.flatnonzero(starts[1:] - ends[:-1] > SILENCE_US) + 1])
    last = np.concatenate([first[1:] - 1, [starts.size - 1]])
    return list(zip(starts[first].tolist(), ends[last].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class SampledNode:
    """Samples of a node's GPUs, without partitioned ones (``mig_names``); ``use`` makes `GpuTime.finished` of them."""

    gpu_names: Sequence[str]
    mig_names: Sequence[str]
    use: Callable[[], GpuTime]
    interval_s: float


def job_ledger(
    system: Mapping[str, SampledNode],
    framework: Mapping[str, StepTime],
    paid_time: PaidTime,
    *,
    unpaid: Sequence[Span] = (),
    ended: bool,
    shares: StepShares | None = None,
) -> Ledger:
    """Return the ledger of a job from samples and steps by node, and a kernel trace's ``shares``.

    The nodes are paid for but in the times ``unpaid``, in which there were no instances.
    """
    started_at, until, known = paid_time.started_at, paid_time.watermark_s, paid_time.instance_type
    spans = [] if started_at is None or until is None else without([(started_at, until)], unpaid)
    row = None if known is None else paid_time.table.row(known)
    of_type = 0 if row is None or row.accelerators is None else row.accelerators.gpus
    seen = max((len(node.gpu_names) for node in system.values()), default=0)
    names = _with_missing({*system, *framework}, paid_time.nodes)
    with_gpus = {name: gpus for name in names if (gpus := _gpus_of(system.get(name), of_type or seen))}
    saver, evaluator = (_lead([framework.get(name) for name in with_gpus], each) for each in (CHECKPOINT, EVALUATION))
    communication_us = _communication_us(framework.values())
    nodes = []
    for name, gpus in with_gpus.items():
        sampled, steps = system.get(name), framework.get(name)
        time = NodeTime(name, gpus, spans, steps=steps, ended=ended, saver=saver, evaluator=evaluator)
        if steps is not None:
            time.peers_share = _peers_share(steps, communication_us)
        if sampled is not None:
            time.gpu_names, time.use, time.interval_s = tuple(sampled.gpu_names), sampled.use(), sampled.interval_s
        nodes.append(node_ledger(time, shares))
    left_out = tuple(name for name in names if name in system and system[name].mig_names)
    return Ledger(nodes, paid_time.hourly, left_out, shares)


def _communication_us(framework: Iterable[StepTime]) -> float:
    """Return what a step waits in communication alone, microseconds: as long as the rank waits that is last."""
    timed = [each for steps in framework for each in steps.processes.values() if each.timed]
    return min((each.least_us / each.timed for each in timed), default=0.0)


def _peers_share(steps: StepTime, communication_us: float) -> float:
    """Return which share, 0 to 1, of a node's waits for peers is no communication."""
    waited = sum(each.waited_us for each in steps.processes.values())
    alone = communication_us * sum(each.timed for each in steps.processes.values())
    return max(1.0 - alone / waited, 0.0) if waited else 1.0


def _gpus_of(sampled: SampledNode | None, expected: int) -> int:
    """Return how many GPUs of a node count: of one with partitioned GPUs only the others."""
    if sampled is None:
        return expected
    named = len(sampled.gpu_names)
    return named if sampled.mig_names else max(named, expected)


def _with_missing(known: set[str], nodes: int) -> list[str]:
    """Return the names of so many nodes: SageMaker's names for those that have written nothing."""
    missing = [name for name in (f"algo-{number}" for number in range(1, nodes + 1)) if name not in known]
    found = [*known, *missing[: max(nodes - len(known), 0)]]
    return sorted(found, key=lambda name: (len(name), name))


def _lead(steps: Sequence[StepTime | None], column: int) -> StepTime | None:
    """Return the steps of the node that saves, or evaluates, the longest; None where none does."""
    with_samples = [each for each in steps if each is not None and each.grid.column(column).any()]
    return max(
        with_samples, key=lambda each: each.grid.column(column).sum() / max(sharing(each, column), 1), default=None
    )
