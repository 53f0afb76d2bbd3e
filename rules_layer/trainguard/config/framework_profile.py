"""What is profiled inside the training framework, each with its range of steps or of time.

Defaults as the SageMaker Python SDK documents them: detailed profiling of step 5, the data loader at step 7, Python at
the steps 9 to 11, Horovod at step 13, the SageMaker data parallel library at step 15.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from trainguard.core.errors import LaunchConfigError

_LATEST_UNIX_TIME = 253_402_300_799


def check_whole_number(where: str, field: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LaunchConfigError(where, field, value, f"a whole number from {least}")


def check_positive(where: str, field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise LaunchConfigError(where, field, value, "a number above 0")


def check_flag(where: str, field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise LaunchConfigError(where, field, value, "True or False")


class PythonProfiler(Enum):
    """Which profiler looks at Python."""

    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # noqa: N801 -- the name that launch code imports
    """Which time cProfile measures; DEFAULT takes the three of them in turn, a step each."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class StepRange:
    """``num_steps`` steps from ``start_step`` on, by default step 0; raises LaunchConfigError for no such numbers."""

    start_step: int | None
    num_steps: int | None

    def __post_init__(self) -> None:
        if self.start_step is not None:
            check_whole_number("StepRange", "start_step", self.start_step, 0)
        if self.num_steps is not None:
            check_whole_number("StepRange", "num_steps", self.num_steps, 1)

    def to_json(self) -> dict[str, Any]:
        return {"StartStep": self.start_step or 0, "NumSteps": 1 if self.num_steps is None else self.num_steps}


@dataclass(frozen=True, slots=True)
class TimeRange:
    """``duration`` seconds from ``start_unix_time`` (epoch seconds) on; raises LaunchConfigError for no such times."""

    start_unix_time: int | None
    duration: float | None

    def __post_init__(self) -> None:
        start = self.start_unix_time
        if start is not None:
            check_whole_number("TimeRange", "start_unix_time", start, 0)
            if start > _LATEST_UNIX_TIME:
                raise LaunchConfigError("TimeRange", "start_unix_time", start, "seconds since 1970, not milliseconds")
        if self.duration is not None:
            check_positive("TimeRange", "duration", self.duration)

    def to_json(self) -> dict[str, Any]:
        named = {"StartTimeInSecSinceEpoch": self.start_unix_time, "Duration": self.duration}
        return {name: value for name, value in named.items() if value is not None}


def range_of(
    where: str, start_step: int | None, num_steps: int | None, start_unix_time: int | None, duration: float | None
) -> StepRange | TimeRange | None:
    """Return the range of a pair of steps or a pair of times, None without any; both pairs are a LaunchConfigError."""
    steps = start_step is not None or num_steps is not None
    times = start_unix_time is not None or duration is not None
    if steps and times:
        both = f"start_step={start_step!r}, num_steps={num_steps!r} and "
        both += f"start_unix_time={start_unix_time!r}, duration={duration!r}"
        raise LaunchConfigError(where, "range", both, "either steps or times")
    if steps:
        return StepRange(start_step, num_steps)
    return TimeRange(start_unix_time, duration) if times else None


class MetricsConfig:
    """What the five configurations have in common: a range of steps, or of epoch seconds and ``duration`` in seconds.

    ``profile_default_steps`` profiles the default steps, whatever steps are given; so does no range. Raises
    LaunchConfigError when a value is none of its kind, or both ranges are given.
    """

    name: ClassVar[str]
    default_start_step: ClassVar[int]
    default_num_steps: ClassVar[int] = 1

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
    ) -> None:
        check_flag(self.name, "profile_default_steps", profile_default_steps)
        found = range_of(self.name, start_step, num_steps, start_unix_time, duration)
        if profile_default_steps or found is None:
            found = range_of(self.name, self.default_start_step, self.default_num_steps, start_unix_time, duration)
        self.range = found or TimeRange(None, None)

    def to_json(self) -> dict[str, Any]:
        return self.range.to_json()

    def to_json_string(self) -> str:
        """Return the configuration as the profiler in the training container reads it: a Python literal."""
        texts = {name: f'"{value}"' if isinstance(value, str) else value for name, value in self.to_json().items()}
        return "{" + "".join(f'"{name}": {value}, ' for name, value in texts.items()) + "}"


class DetailedProfilingConfig(MetricsConfig):
    """Operators of a step, by the framework's own profiler."""

    name = "DetailedProfilingConfig"
    default_start_step = 5


class DataloaderProfilingConfig(MetricsConfig):
    """The data loader's processes; ``metrics_regex`` chooses among their events."""

    name = "DataloaderProfilingConfig"
    default_start_step = 7

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
        metrics_regex: str = ".*",
    ) -> None:
        super().__init__(start_step, num_steps, start_unix_time, duration, profile_default_steps)
        try:
            re.compile(metrics_regex)
        except (re.error, TypeError) as fault:
            raise LaunchConfigError(self.name, "metrics_regex", metrics_regex, "a regular expression") from fault
        self.metrics_regex = metrics_regex

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"MetricsRegex": self.metrics_regex}


class PythonProfilingConfig(MetricsConfig):
    """Functions of the script, by pyinstrument or cProfile, which takes three timers in turn by default steps."""

    name = "PythonProfilingConfig"
    default_start_step = 9
    default_num_steps = 3

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
        python_profiler: PythonProfiler = PythonProfiler.CPROFILE,
        cprofile_timer: cProfileTimer = cProfileTimer.TOTAL_TIME,
    ) -> None:
        super().__init__(start_step, num_steps, start_unix_time, duration, profile_default_steps)
        if not isinstance(python_profiler, PythonProfiler):
            raise LaunchConfigError(self.name, "python_profiler", python_profiler, "a PythonProfiler")
        if not isinstance(cprofile_timer, cProfileTimer):
            raise LaunchConfigError(self.name, "cprofile_timer", cprofile_timer, "a cProfileTimer")
        timer = cProfileTimer.DEFAULT if profile_default_steps else cprofile_timer
        self.python_profiler = python_profiler
        self.cprofile_timer = None if python_profiler is PythonProfiler.PYINSTRUMENT else timer

    def to_json(self) -> dict[str, Any]:
        named = super().to_json() | {"ProfilerName": self.python_profiler.value}
        return named if self.cprofile_timer is None else named | {"cProfileTimer": self.cprofile_timer.value}


class HorovodProfilingConfig(MetricsConfig):
    """Horovod's communication."""

    name = "HorovodProfilingConfig"
    default_start_step = 13


class SMDataParallelProfilingConfig(MetricsConfig):
    """The communication of SageMaker's data parallel library."""

    name = "SMDataParallelProfilingConfig"
    default_start_step = 15


_WHERE = "FrameworkProfile"
_ALL: tuple[type[MetricsConfig], ...] = (
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
)


class FrameworkProfile:
    """Framework metrics: the configurations that are given, else all of them, in the range that is given or their own.

    A file is closed after ``file_max_size`` bytes or ``file_close_interval`` seconds; ``file_open_fail_threshold``
    counts attempts to open it. A range is ignored where a configuration is given, as the SDK documents.
    ``profiling_parameters`` are those of CreateTrainingJob. Raises LaunchConfigError for a value of a wrong kind, or a
    range of both steps and times.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        self,
        local_path: str = "/opt/ml/output/profiler",
        file_max_size: int = 10_485_760,
        file_close_interval: float = 60,
        file_open_fail_threshold: int = 50,
        detailed_profiling_config: DetailedProfilingConfig | None = None,
        dataloader_profiling_config: DataloaderProfilingConfig | None = None,
        python_profiling_config: PythonProfilingConfig | None = None,
        horovod_profiling_config: HorovodProfilingConfig | None = None,
        smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
    ) -> None:
        if not isinstance(local_path, str):
            raise LaunchConfigError(_WHERE, "local_path", local_path, "a path as text")
        check_whole_number(_WHERE, "file_max_size", file_max_size, 1)
        check_positive(_WHERE, "file_close_interval", file_close_interval)
        check_whole_number(_WHERE, "file_open_fail_threshold", file_open_fail_threshold, 1)
        given: tuple[MetricsConfig | None, ...] = (
            detailed_profiling_config,
            dataloader_profiling_config,
            python_profiling_config,
            horovod_profiling_config,
            smdataparallel_profiling_config,
        )
        steps = (start_step, num_steps, start_unix_time, duration)
        profiled = range_of(_WHERE, *steps)
        for kind, config in zip(_ALL, given, strict=True):
            if config is not None and not isinstance(config, kind):
                raise LaunchConfigError(_WHERE, kind.name, config, f"a {kind.__name__}")
        configs: list[MetricsConfig] = [config for config in given if config is not None]
        if not configs:
            configs = [kind(profile_default_steps=True) if profiled is None else kind(*steps) for kind in _ALL]
        self.profiling_parameters: dict[str, str] = {
            "LocalPath": local_path,
            "RotateMaxFileSizeInBytes": str(file_max_size),
            "RotateFileCloseIntervalInSeconds": str(file_close_interval),
            "FileOpenFailThreshold": str(file_open_fail_threshold),
            **{config.name: config.to_json_string() for config in configs},
        }
