"""The events of one plane's lines, some at a time, with their times in nanoseconds."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from trainguard.kernels.columns import LATEST_NS, LONGEST_NS, Ints
from trainguard.kernels.readers.builder import ints
from trainguard.kernels.readers.xplane.planes import Plane, text_of
from trainguard.kernels.readers.xplane.wire import (
    LENGTH,
    LINE_DISPLAY_NAME,
    LINE_EVENT,
    LINE_NAME,
    LINE_TIMESTAMP,
    VARINT,
    CutOffError,
    Event,
    Line,
    Wire,
    WireError,
)

BATCH_BYTES = 1024 * 1024
_LARGEST_EVENT = 1024 * 1024
_LONGEST_LINE_NAME = 1024
_PS_PER_NS = 1_000
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Batch:
    """Some events of a line, with start and end in nanoseconds of the profile's clock."""

    line: str
    events: list[Any]
    start: Ints
    end: Ints


def batches(wire: Wire, end: float, plane: Plane, tally: Counter[str]) -> Iterator[Batch]:
    """Yield the events of a line that ends at a position; raises CutOffError and WireError."""
    length = int(end - wire.position)
    if length > BATCH_BYTES:
        yield from _streamed(wire, end, plane, tally)
        return
    text = wire.read(length)
    try:
        line = Line.FromString(text)
    except DecodeError:
        yield from _streamed(Wire(iter([text])), length, plane, tally)
        return
    name = text_of(line.display_name) or text_of(line.name)
    yield _batch(name, line.timestamp_ns, _named(list(line.events), plane, tally), tally)


def _streamed(wire: Wire, end: float, plane: Plane, tally: Counter[str]) -> Iterator[Batch]:
    line, timestamp, held = "", 0, bytearray()

    def batch() -> Batch:
        found = _batch(line, timestamp, _named(_decoded(bytes(held), tally), plane, tally), tally)
        held.clear()
        return found

    try:
        for number, kind, value in wire.fields(end):
            if kind == VARINT and number == LINE_TIMESTAMP:
                timestamp = value
            elif kind == LENGTH and number in (LINE_NAME, LINE_DISPLAY_NAME):
                line = text_of(wire.read(min(value, _LONGEST_LINE_NAME))) or line
            elif kind == LENGTH and number == LINE_EVENT:
                if value > _LARGEST_EVENT:
                    tally["unreadable_events"] += 1
                    continue
                held += _head(value) + wire.read(value)
                if len(held) >= BATCH_BYTES:
                    yield batch()
    except (CutOffError, WireError):
        yield batch()
        raise
    yield batch()


def _head(length: int) -> bytes:
    found = bytearray([LINE_EVENT << 3 | LENGTH])
    while length >= 0x80:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found)


def _decoded(text: bytes, tally: Counter[str]) -> list[Any]:
    try:
        return list(Line.FromString(text).events)
    except DecodeError:
        return list(_one_by_one(text, tally))


def _one_by_one(text: bytes, tally: Counter[str]) -> Iterator[Any]:
    wire = Wire(iter([text]))
    for _, _, length in wire.fields(len(text)):
        try:
            yield Event.FromString(wire.read(length))
        except DecodeError:
            tally["unreadable_events"] += 1


def _named(events: list[Any], plane: Plane, tally: Counter[str]) -> list[Any]:
    """Return the events that have a name; others are counted."""
    found = [event for event in events if plane.event_names.get(event.metadata_id)]
    tally["unnamed_events"] += len(events) - len(found)
    return found


def _batch(line: str, timestamp: int, events: list[Any], tally: Counter[str]) -> Batch:
    """Return the events that have a time; others are counted."""
    tally["events"] += len(events)
    offset, duration = ints([event.offset_ps for event in events]), ints([event.duration_ps for event in events])
    good = (duration >= 0) & (duration <= LONGEST_NS * _PS_PER_NS) & (offset >= 0) & (offset <= LATEST_NS)
    good &= 0 <= timestamp <= LATEST_NS
    if not good.all():
        tally["bad_times"] += int((~good).sum())
        events = [event for event, kept in zip(events, good, strict=True) if kept]
        offset, duration = offset[good], duration[good]
    half = _PS_PER_NS // 2
    base = np.int64(timestamp if timestamp < _INT64 else 0)
    return Batch(line, events, base + (offset + half) // _PS_PER_NS, base + (offset + duration + half) // _PS_PER_NS)
