"""When the training steps of a described job run, and which of them are slow."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.verdicts.labelled.description import Job


@dataclass(frozen=True, slots=True)
class Step:
    """A training step, seconds since the job's start."""

    number: int
    start_s: float
    duration_s: float
    slow: bool


def training_steps(job: Job) -> Iterator[Step]:
    """Yield the steps of each of the job's processes: synchronous training has them all at the same time."""
    plan = job.steps
    if plan is None:
        return
    rng = np.random.default_rng([job.seed, 0, 5])
    at = 60.0 * plan.first_min
    number = 0
    while True:
        slow = plan.slow_every > 0 and number % plan.slow_every == plan.slow_every - 1
        duration = (plan.slow_s if slow else plan.step_s) * float(np.exp(0.04 * rng.standard_normal()))
        last_s = 60.0 * (job.minutes if plan.last_min is None else plan.last_min)
        if at + duration > min(60.0 * job.minutes - 5.0, last_s):
            if plan.last_goes_on:
                yield Step(number, at, 60.0 * job.minutes - 1.0 - at, slow=False)
            return
        yield Step(number, at, duration, slow)
        at += duration + plan.gap_s + (plan.fetch_s if plan.workers else 0.0)
        number += 1


def slow_spans(job: Job) -> list[tuple[float, float]]:
    """Return the stretches in which GPUs wait in slow steps: all of a slow step but an ordinary one."""
    if job.steps is None or job.steps.slow_every == 0 or job.steps.host_alone:
        return []
    own = job.steps.step_s
    return [(step.start_s + own, step.start_s + step.duration_s) for step in training_steps(job) if step.slow]
