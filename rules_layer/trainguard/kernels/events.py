"""One event of a Chrome trace, decoded as far as metrics need it, from text that may be damaged."""

import json
from typing import Any

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)
_INT64 = 1 << 63
_UNKNOWN = -1


class Args(msgspec.Struct, gc=False):
    """What an event says of itself; versions of Kineto differ in the types, so none is required."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    name: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    old_external_id: Any = msgspec.field(default=None, name="external id")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    collective: Any = msgspec.field(default=None, name="Collective name")
    input_types: Any = msgspec.field(default=None, name="Input type")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    device_type: Any = msgspec.field(default=None, name="Device Type")


class Event(msgspec.Struct, gc=False):
    """An event; times in microseconds, as written."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


NO_ARGS = Args()
_EVENTS = msgspec.json.Decoder(list[Event])
_LOOSE = json.JSONDecoder(strict=False)
_EVENT = msgspec.json.Decoder(Event)


def decode_events(text: bytes) -> list[Event]:
    """Decode events with commas between them; raises one of `UNREADABLE`."""
    return _EVENTS.decode(b"[" + text + b"]")


def decode_event(text: bytes) -> tuple[Event | None, bool]:
    """Decode one event that may be damaged; return it, None where it cannot be read, and whether it was repaired.

    Bad UTF-8, raw control characters, NaN and arguments that are no object are repaired; unescaped quotes are not.
    """
    try:
        return _EVENT.decode(text), False
    except UNREADABLE:
        pass
    event, rest = decode_first(text)
    return (None, False) if event is None or rest.strip() else (event, True)


def decode_first(text: bytes) -> tuple[Event | None, str]:
    """Decode the event that a text begins with, repaired; return it, None where it cannot be read, and what follows."""
    loose_text = text.decode("utf-8", "replace").lstrip()
    try:
        loose, end = _LOOSE.raw_decode(loose_text)
        if not isinstance(loose, dict):
            return None, ""
        if not isinstance(loose.get("args"), dict):
            loose.pop("args", None)
        return msgspec.convert(loose, Event), loose_text[end:]
    except UNREADABLE:
        return None, ""


def whole(value: Any) -> int:
    """Return a whole number as int64 holds it; -1 for anything else."""
    if type(value) is int:
        return value if -_INT64 <= value < _INT64 else _UNKNOWN
    if isinstance(value, str):
        try:
            return whole(int(value, 0))
        except ValueError:
            return _UNKNOWN
    if isinstance(value, float) and value.is_integer() and abs(value) < _INT64:
        return int(value)
    return _UNKNOWN


def number(value: Any) -> float:
    """Return a number; NaN for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < _INT64 else float("nan")
    return float("nan")
