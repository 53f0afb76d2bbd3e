"""What is profiled inside the training framework, each with its range of steps or of time.

Defaults as the SageMaker Python SDK documents them: detailed profiling of step 5, the data loader at step 7, Python at
the steps 9 to 11, Horovod at step 13, the SageMaker data parallel library at step 15.
"""

import re
from typing import Any, ClassVar

from trainguard.config.checks import check_flag
from trainguard.config.ranges import PythonProfiler, RangeFields, StepRange, TimeRange, cProfileTimer
from trainguard.core.errors import LaunchConfigError


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
        fields = RangeFields(start_step, num_steps, start_unix_time, duration)
        self.range: StepRange | TimeRange = fields.resolve(self.name)
        if profile_default_steps or not fields.given:
            by_default = RangeFields(self.default_start_step, self.default_num_steps, start_unix_time, duration)
            self.range = by_default.resolve(self.name)

    def to_json(self) -> dict[str, Any]:
        """Return the configuration under the names of the profiling parameters."""
        return self.range.to_json()

    def to_json_string(self) -> str:
        """Return the configuration as the profiler in the training container reads it: a Python literal."""
        return "{" + "".join(f'"{name}": {_literal(value)}, ' for name, value in self.to_json().items()) + "}"


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
        """Return the configuration under the names of the profiling parameters."""
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
        """Return the configuration under the names of the profiling parameters."""
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


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
