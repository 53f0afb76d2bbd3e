"""When a job did not run: a spot instance was taken away, and another one went on later under the same name.

While no node has samples, there is no instance. A minute whose object was lost is too short to count. An instance that
comes begins with a start-up, in which its GPUs idle; where they work at once, samples were lost.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from trainguard.formats.profile.events import StepBatch
from trainguard.state.gpu_time import GpuTime
from trainguard.state.sample_window import ACTIVE_PERCENT, INTERRUPTED_S, SampleWindowState

SILENCE_US = 120_000_000
AT_ONCE_S = 30.0
"""No instance comes, loads a program and a model, and works in a shorter time."""

MOST_RUNS = 16

Span = tuple[float, float]
Run = tuple[int, int]


def interruptions(nodes: Iterable[tuple[SampleWindowState, float | None]]) -> tuple[Span, ...]:
    """Return the times, epoch seconds, in which no node had samples; ``nodes`` are points and watermark of each."""
    observed = sorted(span for kept, watermark_s in nodes for span in _observed(kept, watermark_s))
    seen_until = accumulate((end for _, end in observed), max)
    following = zip(seen_until, (start for start, _ in observed[1:]), strict=False)
    return tuple((seen, start) for seen, start in following if start - seen >= INTERRUPTED_S)


def works_at(use: GpuTime, at: float) -> bool | None:
    """Return whether a GPU works in the first half minute from ``at`` on, epoch seconds; None where unknown."""
    found = use.steps_of_use().between(at, at + AT_ONCE_S, np.inf)
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
