"""What is recorded when: the managed classes of the framework profile, with their names and defaults."""

import re
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Optional, TypeVar, Union


class PythonProfiler(Enum):
    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # noqa: N801 - the managed name
    """Which time cProfile measures; DEFAULT takes the three of them in turn, a step each."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


@dataclass(frozen=True)
class StepRange:
    """``num_steps`` training steps from ``start_step`` on; by default one step, from step 0."""

    start_step: Optional[int] = None
    num_steps: Optional[int] = None

    def __post_init__(self) -> None:
        _check_whole("start_step", self.start_step, 0)
        _check_whole("num_steps", self.num_steps, 1)

    @property
    def first(self) -> int:
        return self.start_step or 0

    def covers(self, step: int, now: Optional[float] = None) -> bool:
        del now
        return self.first <= step < self.first + (1 if self.num_steps is None else self.num_steps)


@dataclass(frozen=True)
class TimeRange:
    """``duration`` seconds from ``start_unix_time`` (epoch seconds) on; without them, from the start and to the end."""

    start_unix_time: Optional[int] = None
    duration: Optional[float] = None

    def __post_init__(self) -> None:
        _check_whole("start_unix_time", self.start_unix_time, 0)
        if self.duration is not None and not self.duration > 0:
            raise ValueError(f"duration is {self.duration!r}, expected seconds above 0")

    def covers(self, step: int, now: Optional[float] = None) -> bool:
        """Whether now, or the time that is given (epoch seconds), lies in the range."""
        del step
        now = time.time() if now is None else now
        start = self.start_unix_time or 0
        return start <= now and (self.duration is None or now < start + self.duration)


Range = Union[StepRange, TimeRange]


@dataclass
class MetricsConfig:
    """What the configurations have in common: their range, by default that of the managed profiler.

    The range is of steps, or of epoch seconds and ``duration`` in seconds. Raises ValueError when both are given, or a
    value is none of its kind.
    """

    default_start_step: ClassVar[int] = 0
    default_num_steps: ClassVar[int] = 1

    start_step: Optional[int] = None
    num_steps: Optional[int] = None
    start_unix_time: Optional[int] = None
    duration: Optional[float] = None
    profile_default_steps: bool = False

    def __post_init__(self) -> None:
        steps, times = (self.start_step, self.num_steps), (self.start_unix_time, self.duration)
        by_steps, by_time = steps != (None, None), times != (None, None)
        if by_steps and by_time:
            raise ValueError(f"{type(self).__name__} has steps and times, expected either")
        if self.profile_default_steps or not (by_steps or by_time):
            self.range: Range = StepRange(self.default_start_step, self.default_num_steps)
        else:
            self.range = StepRange(*steps) if by_steps else TimeRange(*times)


C = TypeVar("C", bound=MetricsConfig)


class DetailedProfilingConfig(MetricsConfig):
    """Operators of a step, by torch's profiler: step 5 by default."""

    default_start_step = 5


@dataclass
class DataloaderProfilingConfig(MetricsConfig):
    """Waits for the data loader: step 7 by default; ``metrics_regex`` chooses among the events."""

    default_start_step = 7

    metrics_regex: Any = ".*"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.metrics_regex = re.compile(self.metrics_regex)
        except (re.error, TypeError) as fault:
            raise ValueError(f"metrics_regex is {self.metrics_regex!r}, expected a regular expression") from fault


@dataclass
class PythonProfilingConfig(MetricsConfig):
    """Functions of the training script: steps 9 to 11 by default."""

    default_start_step = 9
    default_num_steps = 3

    python_profiler: PythonProfiler = PythonProfiler.CPROFILE
    cprofile_timer: cProfileTimer = cProfileTimer.TOTAL_TIME

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.python_profiler, PythonProfiler) or not isinstance(self.cprofile_timer, cProfileTimer):
            raise ValueError("PythonProfilingConfig takes a PythonProfiler and a cProfileTimer")
        if self.profile_default_steps:
            self.cprofile_timer = cProfileTimer.DEFAULT


class HorovodProfilingConfig(MetricsConfig):
    """Horovod's communication: step 13 by default. It is taken, so that scripts move over, and not recorded."""

    default_start_step = 13


class SMDataParallelProfilingConfig(MetricsConfig):
    """The communication of SageMaker's data parallel library: step 15 by default. It is taken, and not recorded."""

    default_start_step = 15


class FrameworkProfile:
    """What is recorded beside steps and phases: the configurations that are given, else all of them.

    Settings of the managed profiler's files are checked, and without effect. Horovod and smdataparallel are not
    recorded; where one is given alone, nothing is. A range is ignored where a configuration is given. Raises
    ValueError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the managed class's, in its order
        self,
        local_path: str = "/opt/ml/output/profiler",
        file_max_size: int = 10_485_760,
        file_close_interval: float = 60,
        file_open_fail_threshold: int = 50,
        detailed_profiling_config: Optional[DetailedProfilingConfig] = None,
        dataloader_profiling_config: Optional[DataloaderProfilingConfig] = None,
        python_profiling_config: Optional[PythonProfilingConfig] = None,
        horovod_profiling_config: Optional[HorovodProfilingConfig] = None,
        smdataparallel_profiling_config: Optional[SMDataParallelProfilingConfig] = None,
        start_step: Optional[int] = None,
        num_steps: Optional[int] = None,
        start_unix_time: Optional[int] = None,
        duration: Optional[float] = None,
    ) -> None:
        if not isinstance(local_path, str):
            raise ValueError(f"local_path is {local_path!r}, expected a path as text")
        _check_whole("file_max_size", file_max_size, 1)
        _check_whole("file_open_fail_threshold", file_open_fail_threshold, 1)
        if isinstance(file_close_interval, bool) or not isinstance(file_close_interval, (int, float)):
            raise ValueError(f"file_close_interval is {file_close_interval!r}, expected seconds")
        if not file_close_interval > 0:
            raise ValueError(f"file_close_interval is {file_close_interval!r}, expected seconds above 0")
        self.detailed = _of(DetailedProfilingConfig, "detailed_profiling_config", detailed_profiling_config)
        self.loader = _of(DataloaderProfilingConfig, "dataloader_profiling_config", dataloader_profiling_config)
        self.python = _of(PythonProfilingConfig, "python_profiling_config", python_profiling_config)
        unrecorded = (
            _of(HorovodProfilingConfig, "horovod_profiling_config", horovod_profiling_config),
            _of(SMDataParallelProfilingConfig, "smdataparallel_profiling_config", smdataparallel_profiling_config),
        )
        if all(each is None for each in (self.detailed, self.loader, self.python, *unrecorded)):
            given = start_step, num_steps, start_unix_time, duration
            self.detailed = DetailedProfilingConfig(*given)
            self.loader = DataloaderProfilingConfig(*given)
            self.python = PythonProfilingConfig(*given)


class KernelProfile:
    """Kernel traces of ``steps``, by default 100 to 104; shapes of inputs say some kernels' precision."""

    def __init__(self, steps: Optional[StepRange] = None, *, record_shapes: bool = True) -> None:
        self.steps = StepRange(100, 5) if steps is None else steps
        if not isinstance(self.steps, StepRange):
            raise ValueError(f"steps is {steps!r}, expected a StepRange")
        self.record_shapes = bool(record_shapes)


def _check_whole(name: str, value: Optional[int], least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least}")


def _of(kind: "type[C]", name: str, value: "Optional[C]") -> "Optional[C]":
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r}, expected a {kind.__name__}")
    return value
