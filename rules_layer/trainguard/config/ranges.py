"""From when to when something is profiled, in steps or in time; Python profiling; checks, where a bool is no number."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

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
