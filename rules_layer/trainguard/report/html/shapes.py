"""The rules' details as types: what a section reads of them. Fields that a section does not show are left out.

A value that was no number (NaN) is None, as in ``report.json``.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Maybe = float | None


class Durations(msgspec.Struct, frozen=True):
    """A histogram of durations in microseconds."""

    lower_us: list[float]
    upper_us: list[float]
    counts: list[int]


class StepStatistics(msgspec.Struct, frozen=True):
    """Seconds."""

    mean: Maybe
    max: Maybe
    p99: Maybe
    p95: Maybe
    p50: Maybe
    min: Maybe


class StepSeriesShown(msgspec.Struct, frozen=True):
    """Steps of one process and mode; ``stddev`` in seconds."""

    process: str
    mode: str
    steps: int
    step_stats: StepStatistics
    stddev: Maybe
    number_of_outliers: int
    plausible_outliers: int
    slow_share_percent: Maybe
    fired: bool
    histogram: Durations


class SlowStepShown(msgspec.Struct, frozen=True):
    """A slow step: start in epoch seconds, duration in seconds."""

    process: str
    mode: str
    step: str
    start: float
    duration: float


class StepEvent(msgspec.Struct, frozen=True):
    """An event and its share of the time of slow and of ordinary steps, percent."""

    event: str
    slow_steps_percent: Maybe
    ordinary_steps_percent: Maybe


class StepFramework(msgspec.Struct, frozen=True):
    """What goes with slow steps."""

    events: list[StepEvent]


class StepNode(msgspec.Struct, frozen=True):
    """A node of StepOutlier."""

    series: list[StepSeriesShown] = []
    slow_steps: list[SlowStepShown] = []
    framework: StepFramework | None = None
    series_not_judged: int = 0
    steps_not_judged: int = 0


class Waits(msgspec.Struct, frozen=True):
    """Durations of a loader, in seconds."""

    p25: Maybe
    p50: Maybe
    p95: Maybe
    count: int
    histogram: Durations


class LoaderNode(msgspec.Struct, frozen=True):
    """A node of Dataloader."""

    cores: int
    dataloaders: Maybe = None
    training_processes: int | None = None
    num_workers: int | None = None
    pin_memory: bool | None = None
    prefetch: bool | None = None
    dataloading_time: Waits | None = None
    worker_time: Waits | None = None
    tensorflow_time: Waits | None = None


class FrameworkNode(msgspec.Struct, frozen=True):
    """A node of OverallFrameworkMetrics: shares in percent, totals in microseconds of all ``processes`` together."""

    processes: int = 1
    ratio: dict[str, float] = {}
    phase: dict[str, float] = {}
    phase_time: dict[str, float] = {}
    forward_backward: dict[str, float] = {}
    cpu: dict[str, float] = msgspec.field(default_factory=dict, name="CPU")
    cpu_total: dict[str, float] = msgspec.field(default_factory=dict, name="CPU_total")
    gpu: dict[str, float] = msgspec.field(default_factory=dict, name="GPU")
    gpu_total: dict[str, float] = msgspec.field(default_factory=dict, name="GPU_total")
    general: dict[str, float] = {}
    horovod: dict[str, float] = {}
    smdataparallel: dict[str, float] = {}


class Percentiles(msgspec.Struct, frozen=True):
    """A metric of a node."""

    min: Maybe
    p50: Maybe
    p95: Maybe
    p99: Maybe
    max: Maybe


class Initialization(msgspec.Struct, frozen=True):
    """MaxInitializationTime."""

    initialization_s: float
    step_seen: bool


def read(details: Mapping[str, Any], shape: type[T]) -> T:
    """Return details in a shape; raises msgspec.ValidationError when they have another."""
    return msgspec.json.decode(msgspec.json.encode(details), type=shape, strict=False)
