"""What the framework hook of a training process notes while a workload runs."""

from collections.abc import Iterator

import numpy as np

from demo.samples import MICROSECONDS, ProcessTimeline
from demo.workload import LOADER_STARTS, PHASES, Steps, Workload

_FIRST_PID = 71
_OPENED_S = 20.0
_WARM_UP_FACTOR = 7.0

_Event = tuple[int, int, int, int]


def run_process(workload: Workload, node: int, rng: np.random.Generator) -> ProcessTimeline:
    """Return the events of the one process of node number ``node``, from 0."""
    events = np.array([*_loading(workload), *_steps(workload, rng)], dtype=np.int64).reshape(-1, 4)
    events = events[np.argsort(events[:, 0] + events[:, 1], kind="stable")]
    return ProcessTimeline(
        node=node,
        pid=_FIRST_PID + node,
        opened_us=round(_OPENED_S * MICROSECONDS),
        starts_us=events[:, 0].copy(),
        durations_us=events[:, 1].astype(np.int32),
        phases=events[:, 2].astype(np.uint8),
        steps=events[:, 3].astype(np.int32),
    )


def _loading(workload: Workload) -> Iterator[_Event]:
    for begins_s, lasts_s in workload.loading:
        yield round(begins_s * MICROSECONDS), round(lasts_s * MICROSECONDS), PHASES.index(LOADER_STARTS), -1


def _steps(workload: Workload, rng: np.random.Generator) -> Iterator[_Event]:
    """Yield the steps, numbered by phase as the hook does; the first of a phase compiles kernels."""
    numbers = [0] * len(PHASES)
    ends = [stretch.begins_s for stretch in workload.stretches[1:]] + [workload.ends_s]
    for stretch, end_s in zip(workload.stretches, ends, strict=True):
        loop = stretch.activity.steps
        now_s = stretch.begins_s
        while loop and now_s < end_s:
            phase = PHASES.index(loop.phase)
            step_s = loop.step_s * _factor(loop, numbers[phase], rng)
            if now_s + step_s > end_s:
                break
            yield round(now_s * MICROSECONDS), round(step_s * MICROSECONDS), phase, numbers[phase]
            numbers[phase] += 1
            now_s += step_s + loop.wait_s


def _factor(loop: Steps, number: int, rng: np.random.Generator) -> float:
    factor = 1 + rng.normal(0, loop.variation)
    if number == 0:
        factor *= _WARM_UP_FACTOR
    if loop.slow_every and number % loop.slow_every == loop.slow_every - 1:
        factor *= loop.slow_factor
    return max(factor, 0.1)
