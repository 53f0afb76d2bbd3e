"""One event of a Chrome trace, decoded as far as metrics need it, from text that may be damaged."""

import json
import re
from typing import Any

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)


NOTHING = msgspec.Raw(b"")
"""What an argument holds that is not there and would not be decoded."""

_UNDECODED = ("Input type", "Input Dims", "Concrete Inputs")


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
    input_types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    input_dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    input_values: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    dtype: Any = None
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    grid: Any = None
    copy_kind: Any = msgspec.field(default=None, name="copy kind")
    source_kind: Any = msgspec.field(default=None, name="src kind")
    target_kind: Any = msgspec.field(default=None, name="dst kind")
    memory_kind: Any = msgspec.field(default=None, name="memory kind")
    counted: Any = msgspec.field(default=None, name="")
    value: Any = None


class Event(msgspec.Struct, gc=False):
    """An event; times in microseconds, as written."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


NO_ARGS = Args()
_EVENTS = msgspec.json.Decoder(list[Event])
_LOOSE = json.JSONDecoder(strict=False)
_EVENT = msgspec.json.Decoder(Event)
_BARE = re.compile(rb'"(?:[^"\\]|\\.)*"|N/A|-?\b(?:nan|inf)\b', re.DOTALL)
"""A text, or one of the words that exporters write in the place of a number that they do not have."""


def decode_events(text: bytes | memoryview) -> list[Event]:
    """Decode events with commas between them; raises one of `UNREADABLE`."""
    return _EVENTS.decode(b"".join((b"[", text, b"]")))


def decode_event(text: bytes) -> tuple[Event | None, bool]:
    """Decode one event that may be damaged; return it, None where it cannot be read, and whether it was repaired.

    Bad UTF-8, raw control characters, NaN, a bare N/A and arguments that are no object are repaired; unescaped quotes
    are not.
    """
    try:
        return _EVENT.decode(text), False
    except UNREADABLE:
        pass
    event, rest = decode_first(text)
    return (None, False) if event is None or rest.strip() else (event, True)


def decode_first(text: bytes) -> tuple[Event | None, str]:
    """Decode the event that a text begins with, repaired; return it, None where it cannot be read, and what follows."""
    loose_text = _BARE.sub(_known, text).decode("utf-8", "replace").lstrip()
    try:
        loose, end = _LOOSE.raw_decode(loose_text)
        if not isinstance(loose, dict):
            return None, ""
        if not isinstance(loose.get("args"), dict):
            loose.pop("args", None)
        args = loose.get("args", {})
        for name in _UNDECODED:
            if name in args:
                args[name] = msgspec.Raw(msgspec.json.encode(args[name]))
        return msgspec.convert(loose, Event), loose_text[end:]
    except UNREADABLE:
        return None, ""


def _known(found: "re.Match[bytes]") -> bytes:
    return found[0] if found[0].startswith(b'"') else b"null"
