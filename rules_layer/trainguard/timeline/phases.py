"""The parts of a job's time: before its steps, in steps of one mode or another, after them.

A bucket belongs to the mode in whose steps most time was spent that began in it; a bucket in which no step began, to
what came before it.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from trainguard.telemetry.snapshots import IntArray
from trainguard.timeline.series import Phase, TimeAxis
from trainguard.timeline.steps import MICROSECONDS, StepDigest

MAX_PHASES = 200

Loop = Literal["training", "evaluation", "other"]
_LOOPS: tuple[Loop, ...] = ("training", "evaluation", "other")
_MODES: dict[str, Loop] = {"TRAIN": "training", "EVAL": "evaluation"}
_LABELS: dict[Loop, str] = {"training": "Training", "evaluation": "Evaluation", "other": "Other steps"}
_INITIALIZATION = "Initialization"
_FINALIZATION = "Finalization"


def phases_of(
    digests: Sequence[StepDigest], axis: TimeAxis, *, started_at: float | None, ended_at: float | None
) -> tuple[list[Phase], float]:
    """Return a job's phases in order, and the length that was looked at as one, seconds.

    Parameters
    ----------
    digests : sequence of StepDigest
        Of all nodes, over ``axis``.
    axis : TimeAxis
    started_at, ended_at : float or None
        The job's, epoch seconds; without them there is no initialization, and no finalization.

    Returns
    -------
    list of Phase
        At most MAX_PHASES; none without a step.
    float
        ``axis.bucket_s``, or as many times longer as it takes to stay within MAX_PHASES.
    """
    extents = [extent for steps in digests for extent in steps.extents.values()]
    if not extents:
        return [], axis.bucket_s
    first = min(extent.first_us for extent in extents) / MICROSECONDS
    last = max(extent.end_us for extent in extents) / MICROSECONDS
    time = _time_by_loop(digests, axis)
    together = 1
    while len(runs := _runs(time)) > MAX_PHASES - 2:
        together *= 2
        time = _halved(time)
    width = axis.bucket_s * together
    starts = [first, *(axis.start + bucket * width for bucket, _ in runs[1:])]
    ends = [*starts[1:], last]
    phases = [
        Phase(kind=loop, label=_LABELS[loop], start=start, end=end)
        for (_, loop), start, end in zip(runs, starts, ends, strict=True)
    ]
    if started_at is not None and started_at < first:
        phases.insert(0, Phase(kind="initialization", label=_INITIALIZATION, start=started_at, end=first))
    if ended_at is not None and ended_at > last:
        phases.append(Phase(kind="finalization", label=_FINALIZATION, start=last, end=ended_at))
    return phases, width


def _time_by_loop(digests: Sequence[StepDigest], axis: TimeAxis) -> IntArray:
    """Return the time of the steps that began in each bucket, microseconds and one a step: int64[3, buckets]."""
    time = np.zeros((len(_LOOPS), axis.buckets), dtype=np.int64)
    for steps in digests:
        loops = [_LOOPS.index(_MODES.get(mode.rpartition(".")[2], "other")) for _, _, mode in steps.table.keys]
        np.add.at(time, loops, steps.table.totals + steps.table.counts)
    return time


def _runs(time: IntArray) -> list[tuple[int, Loop]]:
    """Return where each run of buckets of one loop begins."""
    used = np.flatnonzero(time.any(axis=0))
    loops = np.argmax(time[:, used], axis=0)
    begins = np.flatnonzero(np.append(True, np.diff(loops) != 0))
    return [(bucket, _LOOPS[loop]) for bucket, loop in zip(used[begins].tolist(), loops[begins].tolist(), strict=True)]


def _halved(time: IntArray) -> IntArray:
    pairs: IntArray = np.add.reduceat(time, np.arange(0, time.shape[1], 2), axis=1)
    return pairs
