"""The steps of a rank: how long each is on the host and on the GPU, and in what parts."""

from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import Kind
from trainguard.kernels.document import StepEntry, StepTimes
from trainguard.kernels.durations import durations
from trainguard.kernels.metrics import RankMetrics
from trainguard.kernels.step_parts import step_parts, steps_on_gpu


def steps_of(metrics: RankMetrics) -> list[StepEntry]:
    """Return the steps in order of time."""
    steps, window = metrics.window.steps, metrics.window
    if not len(steps):
        return []
    gpu = metrics.trace.gpu
    start, end = steps_on_gpu(metrics)
    parts = step_parts(metrics, start, end)
    kernels = np.bincount(
        window.step[(window.step >= 0) & (gpu.kind <= Kind.COMMUNICATION)], minlength=len(steps)
    ).tolist()
    return [
        StepEntry(
            number=int(steps.number[place]),
            start_ns=int(steps.start[place]) - window.start,
            duration_ns=int(steps.end[place] - steps.start[place]),
            gpu_duration_ns=int(end[place] - start[place]),
            breakdown={name: int(values[place]) for name, values in parts.items()},
            kernels=kernels[place],
        )
        for place in range(len(steps))
    ]


def step_times(steps: Sequence[StepEntry]) -> StepTimes | None:
    """Return the distribution of the steps' durations; None without steps."""
    host = durations(np.array([step.duration_ns for step in steps], dtype=np.int64))
    gpu = durations(np.array([step.gpu_duration_ns for step in steps], dtype=np.int64))
    return None if host is None or gpu is None else StepTimes(host=host, gpu=gpu)
