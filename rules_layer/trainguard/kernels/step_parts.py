"""Where a rank's steps begin and end on the GPU, and the parts that each is made of."""

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.gpu_times import breakdown
from trainguard.kernels.metrics import RankMetrics


def step_parts(metrics: RankMetrics, start: Ints, end: Ints) -> dict[str, Ints]:
    """Return the time of each class in stretches, and of what is in no class; the parts of a stretch add up to it.

    Of several GPUs these are the means, rounded down.
    """
    found = [breakdown(classes, start, end) for classes in metrics.classes()]
    parts: dict[str, Ints] = {
        name: np.stack([each[name] for each in found]).sum(axis=0, dtype=np.int64) // len(found) for name in found[0]
    }
    parts["other"] = end - start - sum(parts.values())
    return parts


def steps_on_gpu(metrics: RankMetrics) -> tuple[Ints, Ints]:
    """Return from where to where each step is with its work on the GPU."""
    steps, window = metrics.window.steps, metrics.window
    last = np.full(len(steps), np.iinfo(np.int64).min)
    launched = window.step >= 0
    np.maximum.at(last, window.step[launched], metrics.trace.gpu.rows.end[launched])
    before = np.concatenate(([steps.start[0]], np.maximum.accumulate(last)[:-1]))
    start = np.maximum(steps.start, before)
    return start, np.maximum(np.maximum(steps.end, last), start)
