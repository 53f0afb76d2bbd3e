"""Recomputes the facts of MaxInitializationTime: when the job began, or restarted, and when its first step came."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.raw import ACTIVE, RawJob

RESTART_S, AT_ONCE_S, SAME_RUN_S = 300.0, 30.0, 120.0


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the job and its first step, epoch seconds; NaN where there is none."""

    at: float
    step_at: float
    is_restart: bool

    def waited_s(self, last: float) -> float:
        """Return for how long no step came, up to the last sample."""
        return (last if math.isnan(self.step_at) else self.step_at) - self.at


def _runs_of_steps(job: RawJob) -> list[tuple[float, float]]:
    """Return the times in which steps went on, with pauses of two minutes at most."""
    found: list[tuple[float, float]] = []
    steps = (each for events in job.events.values() for each in events if "Step:" in each.phase)
    for step in sorted(steps, key=lambda each: each.start):
        if found and step.start - found[-1][1] <= SAME_RUN_S:
            found[-1] = found[-1][0], max(found[-1][1], step.end)
        else:
            found.append((step.start, step.end))
    return found


def _works_at(job: RawJob, at: float) -> bool:
    """Tell whether some GPU works within half a minute of a time."""
    series = [each for node in job.nodes.values() for each in node.of("GPUUtilization").values()]
    return any((each.between(at, at + AT_ONCE_S) >= ACTIVE).any() for each in series)


def _restarts(job: RawJob, runs: list[tuple[float, float]]) -> list[float]:
    """Return the first samples after silences of all nodes, after which no GPU works at once, and amid no steps."""
    times = np.unique(np.concatenate([each.times for node in job.nodes.values() for each in node.series.values()]))
    silences = [(one, other) for one, other in pairwise(times.tolist()) if other - one >= RESTART_S]
    return [
        until
        for since, until in silences
        if not _works_at(job, until) and not any(begin < since and until < end for begin, end in runs)
    ]


def _start(context: Context) -> _Start:
    """Return the start that waited longest: that of the first step, or the newest one after it."""
    job = context.raw.job
    told, runs = job.about.get("started_at"), _runs_of_steps(job)
    began = job.first if told is None else min(float(told), job.first)
    restarts = [at for at in _restarts(job, runs) if at > began]
    first = runs[0][0] if runs else math.nan
    before = [at for at in restarts if not runs or at <= first]
    starts = [_Start(before[-1] if before else began, first, is_restart=bool(before))]
    if len(restarts) > len(before):
        later = [max(start, restarts[-1]) for start, end in runs if end > restarts[-1]]
        starts.append(_Start(restarts[-1], min(later, default=math.nan), is_restart=True))
    return max(starts, key=lambda each: each.waited_s(_last(job)))


def _last(job: RawJob) -> float:
    return max(node.last for node in job.nodes.values())


def _began(*, restart: bool) -> Recompute:
    def recompute(context: Context, _: Fact) -> Expected:
        start = _start(context)
        return start.at if start.is_restart is restart else math.nan

    return recompute


def _waited(context: Context, _: Fact) -> Expected:
    return _start(context).waited_s(_last(context.raw.job))


def _over(context: Context, _: Fact) -> Expected:
    return _start(context).waited_s(_last(context.raw.job)) - 60.0 * float(context.parameters["threshold"])


def _worked(context: Context, _: Fact) -> Expected:
    """Return the kept points of the node with most, as time."""
    nodes = context.raw.job.nodes.values()
    return max(float(context.raw.work(node).kept.sum()) * node.interval_s for node in nodes)


FACTS: dict[str, Recompute] = {
    "time_to_first_step": _waited,
    "time_without_step": _waited,
    "started_at": _began(restart=False),
    "restarted_at": _began(restart=True),
    "time_over": _over,
    "time_at_work": _worked,
}
