"""The axes of a job's time lines: equal buckets of a length that people read.

A report shows the whole job on a coarse axis whose buckets join whole ones of the digest's fine axis.
"""

import math
from collections.abc import Sequence

from trainguard.report.timeline.series import TimeAxis

MAX_BUCKETS = 2_900
"""24 hours in buckets of 30 s, and some minutes beside them."""

MAX_CELLS = 520_000
"""A cell is two percents in base64, 2.7 bytes: 1.4 MB in all. A GPU has one a bucket, a node NODE_CELLS more."""

NODE_CELLS = 6
"""What a node's CPU, I/O wait, memory and network take beside its GPUs."""

FINER = 6

FINER_CELLS = 5
"""A node's table takes 32 bytes a cell and series."""

SAMPLES_A_BUCKET = 2

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
BUCKETS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(length * _MINUTE_S for length in (1, 2, 5, 10, 15, 30)),
    *(length * _HOUR_S for length in (1, 2, 3, 6, 12, 24)),
)


def axis_for(start: float, end: float, gpus: int, nodes: int = 1, *, interval_s: float = 0.5) -> TimeAxis:
    """Return the axis to digest a job on that ran from ``start`` to ``end``, epoch seconds.

    Its buckets are the finest that divide those of `shown_axis` and keep within FINER and FINER_CELLS. A bucket holds
    two samples, ``interval_s`` apart, so that a grid that drifts leaves none empty.
    """
    limit, end = _most_buckets(gpus, nodes), max(start, end)
    lengths = [each for each in BUCKETS_S if each >= SAMPLES_A_BUCKET * interval_s]
    for bucket_s in lengths:
        axis = _axis(start, end, bucket_s)
        if axis.buckets <= limit:
            return _finer(axis, lengths, gpus, nodes)
    days = max(2, math.ceil((end - start) / _DAY_S / limit))
    while (axis := _axis(start, end, days * _DAY_S)).buckets > limit > 1:
        days += max(1, days // limit)
    return axis


def shown_axis(axis: TimeAxis, gpus: int, nodes: int = 1) -> TimeAxis:
    """Return the finest axis of BUCKETS_S within MAX_BUCKETS and MAX_CELLS that joins whole buckets of ``axis``."""
    limit, end = _most_buckets(gpus, nodes), axis.start + (axis.buckets - 0.5) * axis.bucket_s
    if axis.buckets <= limit:
        return axis
    for bucket_s in (each for each in BUCKETS_S if each % axis.bucket_s == 0.0):
        shown = _axis(axis.start, end, bucket_s)
        if shown.buckets <= limit:
            return shown
    return axis


def _most_buckets(gpus: int, nodes: int) -> int:
    return max(1, min(MAX_BUCKETS, MAX_CELLS // (max(gpus, 0) + NODE_CELLS * max(nodes, 1))))


def _finer(axis: TimeAxis, lengths: Sequence[int], gpus: int, nodes: int) -> TimeAxis:
    most = min(FINER * MAX_BUCKETS, FINER_CELLS * MAX_CELLS // (max(gpus, 0) + NODE_CELLS * max(nodes, 1)))
    for bucket_s in lengths:
        parts, rest = divmod(int(axis.bucket_s), bucket_s)
        if rest == 0 and parts * axis.buckets <= most:
            return TimeAxis(start=axis.start, bucket_s=float(bucket_s), buckets=parts * axis.buckets)
    return axis


def _axis(start: float, end: float, bucket_s: int) -> TimeAxis:
    first = math.floor(start / bucket_s)
    return TimeAxis(
        start=float(first * bucket_s), bucket_s=float(bucket_s), buckets=math.floor(end / bucket_s) - first + 1
    )
