"""Chrome traces, decoded: the arrays of timelines, and the object that TensorFlow's profiler writes.

An object may lack its end while it is written: what is whole is used, the rest counted. A list or an object in the
place of a number or a text is not read: decoded it could take twenty times its bytes.
"""

from collections import Counter
from typing import Any

import msgspec

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.profile.unpack import DECODE_ERRORS

MAX_EVENT_BYTES = 64 * 1024
"""A larger event with lists or objects where none belong is bad."""

Scalar = int | float | str | bool | None


class TraceArgs(msgspec.Struct, gc=False):
    """The arguments of an event that are used; their types vary from writer to writer."""

    pid: Scalar = None
    tid: Scalar = None
    thread_id: Scalar = None
    worker_id: Scalar = None
    step_num: Scalar = None
    num_workers: Scalar = None
    pin_memory: Scalar = None
    name: Scalar = None
    start_time_since_epoch_in_micros: Scalar = None


class TraceEvent(msgspec.Struct, gc=False):
    """One event of a trace; ``ts`` and ``dur`` in microseconds, relative to the file's start time."""

    ph: str = ""
    name: str = ""
    pid: int | str = 0
    tid: Scalar = None
    ts: float = 0.0
    dur: float = 0.0
    args: TraceArgs | None = None


class _TraceFile(msgspec.Struct):
    events: list[TraceEvent] = msgspec.field(name="traceEvents")


class _RawTraceFile(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")


_ARRAY = msgspec.json.Decoder(list[TraceEvent])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(TraceEvent)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])
_FILE = msgspec.json.Decoder(_TraceFile)
_RAW_FILE = msgspec.json.Decoder(_RawTraceFile)
_LIST_KEY = b'"traceEvents"'


def decode_trace(key: str, text: bytes, tally: Counter[str]) -> list[TraceEvent]:
    """Decode an object's text; counts ``bad_events``, raises TelemetryFormatError when the text is no trace at all."""
    if not text:
        return []
    is_file = text.lstrip()[:1] == b"{"
    try:
        return _FILE.decode(text).events if is_file else _ARRAY.decode(text)
    except DECODE_ERRORS:
        return _decode_one_by_one(_split(key, text, is_file=is_file), tally)


def _split(key: str, text: bytes, *, is_file: bool) -> list[msgspec.Raw | bytes]:
    """Split a trace into its events; a truncated one by lines, since the writer puts one event on a line."""
    try:
        return list(_RAW_FILE.decode(text).events if is_file else _RAW_ARRAY.decode(text))
    except DECODE_ERRORS as fault:
        array = text.partition(_LIST_KEY)[2].lstrip(b" \t\r\n:") if is_file else text.strip()
        if not array.startswith(b"["):
            raise TelemetryFormatError(key, "no JSON array of events, expected a Chrome trace") from fault
        lines = (line.strip().removesuffix(b",") for line in array[1:].removesuffix(b"]").split(b"\n"))
        return [line for line in lines if line]


def _decode_one_by_one(events: list[msgspec.Raw | bytes], tally: Counter[str]) -> list[TraceEvent]:
    decoded: list[TraceEvent] = []
    for event in events:
        try:
            decoded.append(_decode_event(event))
        except DECODE_ERRORS:
            tally["bad_events"] += 1
    return decoded


def _decode_event(event: msgspec.Raw | bytes) -> TraceEvent:
    """Decode one event, without lists and objects in the place of a number or a text."""
    try:
        return _EVENT.decode(event)
    except msgspec.ValidationError:
        if len(memoryview(event)) > MAX_EVENT_BYTES:
            raise
    fields = _ANYTHING.decode(event)
    if not isinstance(fields.get("tid"), Scalar):
        del fields["tid"]
    if isinstance(args := fields.get("args"), dict):
        fields["args"] = {name: value for name, value in args.items() if isinstance(value, Scalar)}
    return msgspec.convert(fields, TraceEvent)
