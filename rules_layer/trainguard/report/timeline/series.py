"""Time lines as a report shows them: one axis of equal buckets, a value or nothing for each.

Every series has one entry for each bucket of the axis; None says that nothing was collected in it.
"""

from typing import Literal

import msgspec

Values = list[float | None]
Episode = tuple[float, float | None, str]
"""Begin and end, epoch seconds, and severity of a finding's episode; the end is None while it goes on."""


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

    Attributes
    ----------
    gpus : list of GpuTimeline
        In order of their numbers.
    cpu, io_wait : Band or None
        Percent; the mean over the cores, ``high`` of the busiest core.
    host_memory : Band or None
        Percent of the node's memory in use.
    network : Band or None
        Bytes per second, all devices together.
    devices : list of DeviceTimeline
        Further quantities of the GPUs, by kind; those that were collected and have room.
    """

    node: str
    gpus: list[GpuTimeline]
    cpu: Band | None = None
    io_wait: Band | None = None
    host_memory: Band | None = None
    network: Band | None = None
    devices: list[DeviceTimeline] = []


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that took long: its start in epoch seconds, its number as the framework wrote it, its length."""

    at: float
    step: str
    duration_s: float


class StepTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one process's steps of one mode, each step in the bucket of its start.

    Attributes
    ----------
    node, process, mode : str
        For example ``algo-1``, ``algo-1-905`` and ``Step:ModeKeys.TRAIN``.
    steps : int
        How many there were.
    mean_s, low_s, high_s : list
        Seconds.
    slowest : list of SlowStep
        The longest ones, in order of time; bounded.
    """

    node: str
    process: str
    mode: str
    steps: int
    mean_s: Values
    low_s: Values
    high_s: Values
    slowest: list[SlowStep]


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
