"""Events of a Chrome trace, one or many at once, and damaged ones.

Of each phase only what is asked for is decoded: a third of a trace are arrows, which are dropped, and most other events
are work, whose arguments are those of a row.
"""

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Union

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)

# What an argument holds that is not there and would not be decoded.
NOTHING = msgspec.Raw(b"")

_UNDECODED = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")


class Args(msgspec.Struct, gc=False):
    """What an event says about itself; versions of Kineto differ in the types, so none is required."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    old_external_id: Any = msgspec.field(default=None, name="external id")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    collective: Any = msgspec.field(default=None, name="Collective name")
    input_types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    input_dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    input_strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    input_values: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    dtype: Any = None
    grid: Any = None
    copy_kind: Any = msgspec.field(default=None, name="copy kind")
    source_kind: Any = msgspec.field(default=None, name="src kind")
    target_kind: Any = msgspec.field(default=None, name="dst kind")
    memory_kind: Any = msgspec.field(default=None, name="memory kind")


class MoreArgs(Args, gc=False):
    """What events say that are no work: those of memory, samples, and names of processes."""

    name: Any = None
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    size: Any = msgspec.field(default=None, name="Bytes")
    address: Any = msgspec.field(default=None, name="Addr")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    counted: Any = msgspec.field(default=None, name="")
    value: Any = None


class KernelTraceEvent(msgspec.Struct, gc=False):
    """An event; times in microseconds, as written. ``ph`` is empty of one whose phase is not known."""

    ph: ClassVar[str] = ""
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class _Other(KernelTraceEvent, gc=False):
    """An event that is no work."""

    args: MoreArgs | None = None


class _Arrow(msgspec.Struct, gc=False):
    """Says which event launched which; nothing of it is kept."""

    ph: ClassVar[str] = ""


# Phases of the Trace Event Format, and what is decoded of them.
_PHASES: dict[str, type[msgspec.Struct]] = {
    **dict.fromkeys("X", KernelTraceEvent),
    **dict.fromkeys("sft", _Arrow),
    **dict.fromkeys("BEbneiInMCPNODSTpFRcaVv(),", _Other),
}

_BY_PHASE = {
    phase: msgspec.defstruct(
        sort.__name__, [], bases=(sort,), namespace={"ph": phase}, gc=False, tag_field="ph", tag=phase
    )
    for phase, sort in _PHASES.items()
}
if TYPE_CHECKING:
    AnyEvent: TypeAlias = KernelTraceEvent
else:
    AnyEvent = Union[tuple(_BY_PHASE.values())]  # noqa: UP007


class _Untold(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: MoreArgs | None = None


NO_ARGS, NO_MORE_ARGS = Args(), MoreArgs()
_EVENTS = msgspec.json.Decoder(list[AnyEvent])
_LOOSE = json.JSONDecoder(strict=False)
_UNTOLD = msgspec.json.Decoder(_Untold)
# A text, or one of the words that exporters write in the place of a number that they do not have.
_BARE = re.compile(rb'"(?:[^"\\]|\\.)*"|N/A|-?\b(?:nan|inf)\b', re.DOTALL)


def decode_events(text: bytes | memoryview) -> list[KernelTraceEvent]:
    """Decode events with commas between them; raises one of `DECODE_ERRORS`, also for a phase that is not known."""
    return _EVENTS.decode(b"".join((b"[", text, b"]")))


def decode_whole(text: bytes) -> KernelTraceEvent:
    """Decode one event of any phase; raises one of `DECODE_ERRORS`."""
    return _told(_UNTOLD.decode(text))


def decode_event(text: bytes) -> tuple[KernelTraceEvent | None, bool]:
    """Decode one event that may be damaged; return it, None where it cannot be read, and whether it was repaired."""
    try:
        return decode_whole(text), False
    except DECODE_ERRORS:
        pass
    event, rest = decode_first(text)
    return (None, False) if event is None or rest.strip() else (event, True)


def decode_first(text: bytes) -> tuple[KernelTraceEvent | None, str]:
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
        return _told(msgspec.convert(loose, _Untold)), loose_text[end:]
    except DECODE_ERRORS:
        return None, ""


def _told(event: _Untold) -> KernelTraceEvent:
    sort: Any = _BY_PHASE.get(event.ph, _Other) if isinstance(event.ph, str) else _Other
    fields = (getattr(event, name) for name in sort.__struct_fields__)
    found: KernelTraceEvent = sort(*fields)
    return found


def _known(found: "re.Match[bytes]") -> bytes:
    return found[0] if found[0].startswith(b'"') else b"null"
