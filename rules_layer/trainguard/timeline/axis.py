"""The axis of a job's time lines: equal buckets of a length that people read, few enough for a report."""

import math

from trainguard.timeline.series import TimeAxis

MAX_BUCKETS = 2_900
"""24 hours in buckets of 30 s, and some minutes beside them."""

MAX_CELLS = 520_000
"""A GPU has one cell a bucket, a node NODE_CELLS more. A cell is two percents in base64, 2.7 bytes: 1.4 MB in all."""

NODE_CELLS = 6
"""What a node's CPU, I/O wait, memory and network take beside its GPUs."""

SAMPLES_A_BUCKET = 2

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
BUCKETS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(length * _MINUTE_S for length in (1, 2, 5, 10, 15, 30)),
    *(length * _HOUR_S for length in (1, 2, 3, 6, 12, 24)),
)
"""Lengths of a bucket, seconds; each divides a day, so that days begin on the grid."""


def axis_for(start: float, end: float, gpus: int, nodes: int = 1, *, interval_s: float = 0.5) -> TimeAxis:
    """Return the axis of a job that ran from ``start`` to ``end``.

    The finest of BUCKETS_S that keeps within MAX_BUCKETS and MAX_CELLS is taken, or as many days as it needs.

    Parameters
    ----------
    start, end : float
        Epoch seconds; the bucket in which ``end`` lies is the last one.
    gpus, nodes : int
        How many the job has, all together.
    interval_s : float
        Between the samples of one device; a bucket holds two of them, so that a grid that drifts leaves none empty.
    """
    limit = max(1, min(MAX_BUCKETS, MAX_CELLS // (max(gpus, 0) + NODE_CELLS * max(nodes, 1))))
    end = max(start, end)
    for bucket_s in (each for each in BUCKETS_S if each >= SAMPLES_A_BUCKET * interval_s):
        axis = _axis(start, end, bucket_s)
        if axis.buckets <= limit:
            return axis
    days = max(2, math.ceil((end - start) / _DAY_S / limit))
    while (axis := _axis(start, end, days * _DAY_S)).buckets > limit > 1:
        days += max(1, days // limit)
    return axis


def _axis(start: float, end: float, bucket_s: int) -> TimeAxis:
    first = math.floor(start / bucket_s)
    return TimeAxis(
        start=float(first * bucket_s), bucket_s=float(bucket_s), buckets=math.floor(end / bucket_s) - first + 1
    )
