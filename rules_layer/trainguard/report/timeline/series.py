"""Time lines as a report shows them: one axis of equal buckets, a value or nothing for each.

Every series has one entry for each bucket of the axis; None says that nothing was collected in it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from trainguard.core.records import JobRecord

Values = list[float | None]
# Begin and end, epoch seconds, and severity of a finding's episode; the end is None while it goes on.
Episode = tuple[float, float | None, str]


class TimeAxis(msgspec.Struct, frozen=True, kw_only=True):
    """Bucket ``i`` holds what was from ``start + i * bucket_s`` on until the next one begins.

    ``start`` is in epoch seconds and a multiple of ``bucket_s`` (seconds), so that parts of a job have one axis.
    """

    start: float
    bucket_s: float
    buckets: int


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity over time: the mean of each bucket, and its lowest and highest value where those are given."""

    mean: Values
    low: Values | None = None
    high: Values | None = None


class GpuTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: how busy it was and how busy its memory was, percent."""

    gpu: str
    utilization: Band
    memory: Band | None = None


class DeviceTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A further quantity of one GPU, or where ``gpu`` is None the mean of a node's GPUs; means of the buckets alone.

    ``kind`` is ``sm_activity``, ``memory_used``, ``tensor_activity``, ``dram_activity`` or ``sm_occupancy`` (percent),
    ``power`` (watts), ``sm_clock`` (MHz), ``temperature`` (°C), ``nvlink`` or ``pcie`` (bytes per second, both
    directions).
    """

    kind: str
    gpu: str | None
    band: Band


class NodeTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One node. What was not collected is None.

    gpus: In order of their numbers.
    cpu, io_wait: Percent; the mean over the cores, ``high`` of the busiest core.
    host_memory: Percent of the node's memory in use.
    network: Bytes per second, all devices together.
    devices: Further quantities of the GPUs, by kind; those that were collected and have room.
    """

    node: str
    gpus: list[GpuTimeline]
    cpu: Band | None = None
    io_wait: Band | None = None
    host_memory: Band | None = None
    network: Band | None = None
    devices: list[DeviceTimeline] = []


class ShownSlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that took long: its start in epoch seconds, its number as the framework wrote it, its length."""

    at: float
    step: str
    duration_s: float


class StepTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one process's steps of one mode, each step in the bucket of its start.

    node, process, mode: For example ``algo-1``, ``algo-1-905`` and ``Step:ModeKeys.TRAIN``.
    steps: How many there were.
    mean_s, low_s, high_s: Seconds.
    slowest: The longest ones, in order of time; bounded.
    """

    node: str
    process: str
    mode: str
    steps: int
    mean_s: Values
    low_s: Values
    high_s: Values
    slowest: list[ShownSlowStep]


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the job's time, epoch seconds: before the first step, in a mode's steps, after the last one."""

    kind: Literal["initialization", "training", "evaluation", "other", "finalization"]
    label: str
    start: float
    end: float


class TimelineDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the job's time in finer buckets: all nodes, most quantities as means alone."""

    axis: TimeAxis
    nodes: list[NodeTimeline]


class Timelines(msgspec.Struct, frozen=True, kw_only=True):
    """Everything over time that a report shows.

    ``left_out`` says in sentences what was thinned or left out so that a report stays small. ``detail`` holds parts
    of the job's time in finer buckets, in order of time: all of it where there is room, else what is around episodes.
    """

    axis: TimeAxis
    nodes: list[NodeTimeline]
    steps: list[StepTimeline]
    phases: list[Phase]
    left_out: list[str] = msgspec.field(default_factory=list)
    detail: list[TimelineDetail] = msgspec.field(default_factory=list)


def bands_of(node: NodeTimeline) -> Iterator[tuple[str | None, str, Band]]:
    """Yield a node's bands, each with its GPU, None of a quantity of the node, and the quantity's name."""
    for gpu in node.gpus:
        yield gpu.gpu, "gpu_utilization", gpu.utilization
        if gpu.memory is not None:
            yield gpu.gpu, "gpu_memory", gpu.memory
    for quantity in ("cpu", "io_wait", "host_memory", "network"):
        band: Band | None = getattr(node, quantity)
        if band is not None:
            yield None, quantity, band


# 24 hours in buckets of 30 s, and some minutes beside them.
MAX_BUCKETS = 2_900

# A cell is two percents in base64, 2.7 bytes: 1.4 MB in all. A GPU has one a bucket, a node NODE_CELLS more.
MAX_CELLS = 520_000

# What a node's CPU, I/O wait, memory and network take beside its GPUs.
NODE_CELLS = 6

FINER = 6

# A node's table takes 32 bytes a cell and series.
FINER_CELLS = 5

SAMPLES_A_BUCKET = 2

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
BUCKETS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(length * _MINUTE_S for length in (1, 2, 5, 10, 15, 30)),
    *(length * _HOUR_S for length in (1, 2, 3, 6, 12, 24)),
)


def job_span(job: JobRecord, firsts: Iterable[float], lasts: Iterable[float]) -> tuple[float, float]:
    """Return the time that a job's report shows, epoch seconds: its data, and the training around them."""
    start = min([*firsts, *([] if job.started_at is None else [job.started_at])])
    return start, max([*lasts, start, job.ended_at or 0.0])


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
