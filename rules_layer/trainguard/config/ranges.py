"""From when to when something is profiled, in steps or in time; and the two enumerations of Python profiling."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from trainguard.config.checks import check_positive, check_whole_number
from trainguard.core.errors import LaunchConfigError

_LATEST_UNIX_TIME = 253_402_300_799


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
        """Return the range under the names of the profiling parameters."""
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
        """Return what is set of the range under the names of the profiling parameters."""
        named = {"StartTimeInSecSinceEpoch": self.start_unix_time, "Duration": self.duration}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RangeFields:
    """The four fields by which every configuration takes its range: a pair of steps or a pair of times."""

    start_step: int | None = None
    num_steps: int | None = None
    start_unix_time: int | None = None
    duration: float | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is set."""
        return (self.start_step, self.num_steps, self.start_unix_time, self.duration) != (None, None, None, None)

    def resolve(self, where: str) -> StepRange | TimeRange:
        """Return the range; raises LaunchConfigError when both pairs are set."""
        steps = self.start_step is not None or self.num_steps is not None
        times = self.start_unix_time is not None or self.duration is not None
        if steps and times:
            both = f"start_step={self.start_step!r}, num_steps={self.num_steps!r} and "
            both += f"start_unix_time={self.start_unix_time!r}, duration={self.duration!r}"
            raise LaunchConfigError(where, "range", both, "either steps or times")
        if steps:
            return StepRange(self.start_step, self.num_steps)
        return TimeRange(self.start_unix_time, self.duration)
