"""Framework events: Chrome trace arrays to training steps.

The writer appends events as they end and closes the array on rotation, so an object may lack its closing bracket or end
in the middle of an event: what is whole before that is used, and the rest counted.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from trainguard.errors import TelemetryFormatError
from trainguard.telemetry.keys import EARLIEST_MINUTE
from trainguard.telemetry.steps import StepBatch
from trainguard.telemetry.unpack import MAX_NAME_LENGTH, UNREADABLE, printable, unpack

STEP_PHASE = "Step:ModeKeys"
_MAX_TIME_US = 2**53
_SLACK_US = 1_000_000
EARLIEST_US = EARLIEST_MINUTE * 1_000_000


class TraceEvent(msgspec.Struct, gc=False):
    """One event of a trace; ``ts`` and ``dur`` in microseconds, relative to the file's start time."""

    ph: str = ""
    name: str = ""
    pid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FrameworkEvents:
    """What one object holds: steps by mode, and what was not used and why."""

    steps: tuple[StepBatch, ...]
    tally: Counter[str] = field(default_factory=Counter)


def read_framework_object(key: str, body: bytes, *, process: str, end_us: int) -> FrameworkEvents:
    """Read the training steps of one object of framework events.

    Parameters
    ----------
    key : str
        Named in errors.
    body : bytes
        A JSON array of trace events, possibly truncated, or a gzip stream of one.
    process : str
        ``<node>-<pid>`` of the key.
    end_us : int
        The end of the last event as the key names it, epoch microseconds; a step that ends a second later, or began
        before 2015, has no time that could be used.

    Raises
    ------
    TelemetryFormatError
        When nothing can be read of the object.
    """
    tally: Counter[str] = Counter()
    events = _decode(key, unpack(key, body, tally, mark=b"{"), tally)
    tally["events"] += len(events)
    steps: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    origin_us = 0.0
    for event in events:
        if event.ph == "M":
            origin_us = _origin(event, origin_us)
        elif event.ph == "X" and STEP_PHASE in event.name:
            start, duration = origin_us + event.ts, event.dur
            if start >= EARLIEST_US and duration >= 0 and start + duration <= end_us + _SLACK_US:
                steps[printable(event.name)].append((int(start), int(duration), _step_number(event)))
            else:
                tally["bad_events"] += 1
    return FrameworkEvents(tuple(_batch(process, mode, steps[mode]) for mode in sorted(steps)), +tally)


def _batch(process: str, mode: str, steps: list[tuple[int, int, str]]) -> StepBatch:
    starts, durations, numbers = zip(*steps, strict=True)
    return StepBatch(
        process=process,
        mode=mode,
        starts_us=np.array(starts, dtype=np.int64),
        durations_us=np.array(durations, dtype=np.int64),
        numbers=tuple(numbers),
    )


def _origin(event: TraceEvent, origin_us: float) -> float:
    value = (event.args or {}).get("start_time_since_epoch_in_micros")
    if isinstance(value, int | float) and 0 < value < _MAX_TIME_US:
        return float(value)
    return origin_us


def _step_number(event: TraceEvent) -> str:
    return printable(str((event.args or {}).get("step_num", "?"))[:MAX_NAME_LENGTH])


_ARRAY = msgspec.json.Decoder(list[TraceEvent])
_EVENT = msgspec.json.Decoder(TraceEvent)


def _decode(key: str, body: bytes, tally: Counter[str]) -> list[TraceEvent]:
    if not body:
        return []
    try:
        return _ARRAY.decode(body)
    except UNREADABLE:
        return _decode_one_by_one(_split(key, body), tally)


def _split(key: str, body: bytes) -> list[msgspec.Raw | bytes]:
    """Split an array into its events; a truncated one by lines, since the writer puts one event on a line."""
    try:
        return list(msgspec.json.decode(body, type=list[msgspec.Raw]))
    except UNREADABLE as fault:
        text = body.strip()
        if not text.startswith(b"["):
            raise TelemetryFormatError(key, "no JSON array, expected a Chrome trace") from fault
        lines = (line.strip().removesuffix(b",") for line in text[1:].removesuffix(b"]").split(b"\n"))
        return [line for line in lines if line]


def _decode_one_by_one(events: list[msgspec.Raw | bytes], tally: Counter[str]) -> list[TraceEvent]:
    decoded: list[TraceEvent] = []
    for event in events:
        try:
            decoded.append(_EVENT.decode(event))
        except UNREADABLE:
            tally["bad_events"] += 1
    return decoded
