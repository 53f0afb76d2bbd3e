"""Planes of OpenXLA's ``xplane.proto``, read from the front in bounded memory; protobuf reads their messages.

Names of planes, events and stats stand behind the events, so a profile is read twice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from trainguard.core.errors import KernelTraceError
from trainguard.formats.protobuf import LENGTH, WHOLE, CutOffError, MessageTable, Wire, WireError, message_classes
from trainguard.kernels.columns import MOST_NAME_BYTES
from trainguard.kernels.readers.builder import text_of

_MESSAGES: MessageTable = {
    "Line": [
        ("name", 2, "bytes"),
        ("timestamp_ns", 3, "int64"),
        ("events", 4, "Event*"),
        ("display_name", 11, "bytes"),
    ],
    "Event": [
        ("metadata_id", 1, "int64"),
        ("offset_ps", 2, "int64"),
        ("duration_ps", 3, "int64"),
        ("stats", 4, "Stat*"),
    ],
    "Stat": [
        ("metadata_id", 1, "int64"),
        ("double_value", 2, "double"),
        ("uint64_value", 3, "uint64"),
        ("int64_value", 4, "int64"),
        ("str_value", 5, "bytes"),
        ("ref_value", 7, "uint64"),
    ],
    "EventMetadataEntry": [("key", 1, "int64"), ("value", 2, "EventMetadata")],
    "EventMetadata": [("name", 2, "bytes"), ("stats", 5, "Stat*")],
    "StatMetadataEntry": [("key", 1, "int64"), ("value", 2, "StatMetadata")],
    "StatMetadata": [("name", 2, "bytes")],
}
_CLASSES = message_classes("trainguard.xplane", _MESSAGES)

Line: Any = _CLASSES["Line"]
Event: Any = _CLASSES["Event"]
Stat: Any = _CLASSES["Stat"]
EventMetadataEntry: Any = _CLASSES["EventMetadataEntry"]
StatMetadataEntry: Any = _CLASSES["StatMetadataEntry"]

SPACE_PLANE = 1
PLANE_NAME, PLANE_LINE, PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STAT = 2, 3, 4, 5, 6
# Numbers of fields that are streamed: a plane and a line can be as large as the file.
LINE_NAME, LINE_TIMESTAMP, LINE_EVENT, LINE_DISPLAY_NAME = 2, 3, 4, 11

GPU = "/device:GPU:"
TPU = "/device:TPU:"
HOSTS = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER")
TASK = "Task Environment"
MOST_PLANES = 10_000
_LARGEST_ENTRY = 1024 * 1024
# Bytes that an entry takes beside its text.
_ENTRY_COST = 200

_LONGEST_PLANE_NAME = 1024


@dataclass(slots=True)
class Plane:
    """A plane without its events; ``stats`` by name, a number or a text."""

    name: str = ""
    event_names: dict[int, str] = field(default_factory=dict)
    event_stats: dict[int, list[Any]] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    own_stats: list[Any] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether it holds what is read, or may: it has not said its name yet."""
        return not self.name or self.name == TASK or self.has_events

    @property
    def has_events(self) -> bool:
        return self.name.startswith((GPU, *HOSTS))

    @property
    def stats(self) -> dict[str, int | float | str]:
        return self.values(self.own_stats, self.stat_names)

    def values(self, stats: Any, wanted: dict[int, str]) -> dict[str, int | float | str]:
        return {wanted[stat.metadata_id]: self._value(stat) for stat in stats if stat.metadata_id in wanted}

    def _value(self, stat: Any) -> int | float | str:
        if stat.ref_value:
            return self.stat_names.get(stat.ref_value, "")
        if stat.str_value:
            return text_of(stat.str_value)
        return stat.int64_value or stat.uint64_value or stat.double_value or 0


def read_planes(name: str, wire: Wire, tally: Counter[str]) -> list[Plane]:
    """Return the planes in order; raises KernelTraceError for more names than a profile has."""
    planes: list[Plane] = []
    spent = 0

    def take(end: float) -> None:
        nonlocal spent
        plane = Plane()
        planes.append(plane)
        if len(planes) > MOST_PLANES:
            raise KernelTraceError(name, f"over {MOST_PLANES:,} planes, expected one a device and some of the host")
        for number, kind, length in wire.fields(end):
            if kind == LENGTH and plane.wanted and number != PLANE_LINE:
                spent += min(length, _LARGEST_ENTRY) + _ENTRY_COST
                if spent > MOST_NAME_BYTES:
                    raise KernelTraceError(name, f"names of over {MOST_NAME_BYTES:,} bytes, expected less")
                _add(plane, number, length, wire, tally)

    each_plane(wire, tally, take)
    return planes


def each_plane(wire: Wire, tally: Counter[str], take: Callable[[float], None]) -> None:
    """Let ``take`` read each plane up to its end; what is broken is passed over and counted."""
    try:
        for number, kind, length in wire.fields(WHOLE):
            if number == SPACE_PLANE and kind == LENGTH:
                end = wire.position + length
                try:
                    take(end)
                except WireError:
                    tally["unreadable_parts"] += 1
                    wire.skip_to(end)
    except CutOffError:
        tally["cut_off"] += 1
    except WireError:
        tally["unreadable_parts"] += 1


def _add(plane: Plane, number: int, length: int, wire: Wire, tally: Counter[str]) -> None:
    if number == PLANE_NAME:
        plane.name = text_of(wire.read(min(length, _LONGEST_PLANE_NAME)))
    elif number in (PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STAT):
        if length > _LARGEST_ENTRY:
            tally["unreadable_parts"] += 1
            return
        try:
            _add_entry(plane, number, wire.read(length))
        except DecodeError:
            tally["unreadable_parts"] += 1


def _add_entry(plane: Plane, number: int, text: bytes) -> None:
    if number == PLANE_EVENT_METADATA:
        entry = EventMetadataEntry.FromString(text)
        plane.event_names[entry.key] = text_of(entry.value.name)
        if entry.value.stats:
            plane.event_stats[entry.key] = list(entry.value.stats)
    elif number == PLANE_STAT_METADATA:
        entry = StatMetadataEntry.FromString(text)
        plane.stat_names[entry.key] = text_of(entry.value.name)
    else:
        plane.own_stats.append(Stat.FromString(text))
