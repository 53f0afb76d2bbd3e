"""Framework events: one object of a process's timeline, or one TensorFlow trace, to columns and training steps."""

from collections import Counter
from dataclasses import dataclass, field

from trainguard.telemetry.columns import STEP_PHASE, TimeBounds, build_columns
from trainguard.telemetry.events import EventTable, LoaderSetup
from trainguard.telemetry.keys import EARLIEST_MINUTE, TF_TRACE
from trainguard.telemetry.steps import StepBatch
from trainguard.telemetry.trace import decode_trace
from trainguard.telemetry.unpack import unpack

__all__ = ["EARLIEST_US", "STEP_PHASE", "FrameworkEvents", "read_framework_object", "read_tf_trace"]

_SLACK_US = 1_000_000
EARLIEST_US = EARLIEST_MINUTE * 1_000_000


@dataclass(frozen=True, slots=True)
class FrameworkEvents:
    """What one object holds: steps by mode, all events as columns, data loaders, and what was not used and why."""

    steps: tuple[StepBatch, ...]
    tally: Counter[str] = field(default_factory=Counter)
    table: EventTable = field(default_factory=EventTable)
    loaders: tuple[LoaderSetup, ...] = ()


def read_framework_object(
    key: str, body: bytes, *, process: str, end_us: int, kind: str = "pythontimeline"
) -> FrameworkEvents:
    """Read one object of a timeline.

    Parameters
    ----------
    key : str
        Named in errors.
    body : bytes
        A JSON array of trace events, possibly truncated, or a gzip stream of one.
    process : str
        ``<node>-<pid>`` of the key.
    end_us : int
        The end of the last event as the key names it, epoch microseconds; an event that ends a second later, or began
        before 2015, has no time that could be used.
    kind : str
        The file kind of the key.

    Raises
    ------
    TelemetryFormatError
        When nothing can be read of the object.
    """
    return _read(key, body, TimeBounds(0.0, EARLIEST_US, end_us + _SLACK_US), process=process, kind=kind)


def read_tf_trace(key: str, body: bytes, *, process: str, start_us: int, end_us: int) -> FrameworkEvents:
    """Read one trace of TensorFlow's profiler, whose times are relative to ``start_us`` (epoch microseconds).

    ``start_us`` and ``end_us`` are those of the metadata beside it; otherwise as `read_framework_object`.
    """
    bounds = TimeBounds(float(start_us), EARLIEST_US, end_us + _SLACK_US)
    return _read(key, body, bounds, process=process, kind=TF_TRACE)


def _read(key: str, body: bytes, bounds: TimeBounds, *, process: str, kind: str) -> FrameworkEvents:
    tally: Counter[str] = Counter()
    trace = decode_trace(key, unpack(key, body, tally, mark=b"{"), tally)
    tally["events"] += len(trace)
    table, steps, loaders = build_columns(trace, bounds, tally, process=process, kind=kind)
    return FrameworkEvents(steps, +tally, table, loaders)
