"""The text of a Chrome trace to batches of events, in bounded memory, whatever the layout and damage.

An event begins where an object follows a comma or the array's bracket and its first key is one that events begin with;
inside a JSON text a quote is escaped, so no valid text looks like that. Only a batch that cannot be decoded is cut into
events.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Any

import msgspec

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.readers.events import (
    DECODE_ERRORS,
    AnyEvent,
    KernelTraceEvent,
    decode_event,
    decode_events,
    decode_first,
    decode_whole,
)

BATCH_BYTES = 1024 * 1024
# More text than that without the start of an event is no trace, or stands behind its events.
MOST_PENDING_BYTES = 64 * 1024 * 1024

# A larger event that is damaged is not repaired.
MOST_REPAIRED_BYTES = 4 * 1024 * 1024

SAMPLES, SAMPLE_BYTES = 64, 4 * 1024
STACK = b'"python_function"'

# How much text keys are learnt from at once, and how many objects of a key are tried.
LEARNT_BYTES, TRIES = 256 * 1024, 8

# More bytes than stand between the comma before an event and the colon behind its first key.
_OVERLAP = 256

_ARRAY = re.compile(rb'(?:"traceEvents"\s*:\s*|\A\s*)\[')
_FIRST = re.compile(rb'\s*\{\s*("(?:[^"\\]){1,64}")\s*:')
_OBJECT = re.compile(rb'(?:\A|,)\s*(\{)\s*("(?:[^"\\]){1,64}")\s*:')
_CLOSING = re.compile(rb'(?:\A|\})\s*(\])\s*(?:\Z|\}|,\s*"(?:[^"\\]){1,64}"\s*:)')
_SPACE = re.compile(rb"\s*")
_EMPTY = re.compile(rb"\s*(?:\]|\Z)")
_TRAILING = b" \t\r\n,"
STRIPPED_AT_ONCE = 256


class Metadata(msgspec.Struct):
    """What stands beside the events, before or after them; anything may be missing."""

    deviceProperties: Any = None  # noqa: N815
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    hip_runtime_version: Any = None
    hip_driver_version: Any = None
    record_shapes: Any = None
    with_stack: Any = None
    profile_memory: Any = None


class _Tail(Metadata):
    traceEvents: list[AnyEvent] = []  # noqa: N815


class EventSplitter:
    """Reads one trace; ``metadata`` is complete once all batches were taken.

    ``tally`` counts ``unreadable_events``, ``repaired_events``, ``unreadable_metadata`` and ``cut_off``; and
    ``stack_bytes`` of Python's stacks, estimated from samples of each batch.
    """

    def __init__(self, name: str, tally: Counter[str]) -> None:
        self.metadata = Metadata()
        self._name = name
        self._tally = tally
        self._plain_array = False
        self._keys: list[bytes] = []
        self._start = self._begins = re.compile(b"")

    def batches(self, chunks: Iterable[bytes]) -> Iterator[list[KernelTraceEvent]]:
        """Yield the events of a text, in order; raises KernelTraceError where it is no trace."""
        source = iter(chunks)
        first = self._open(source)
        if first is None:
            return
        pending, size, searched, enough = [first], len(first), 0, BATCH_BYTES
        for chunk in source:
            pending.append(chunk)
            size += len(chunk)
            if size < enough:
                continue
            text = b"".join(pending)
            end = self._last_start(text, searched)
            if not end and self._learn(text[-LEARNT_BYTES:]):
                end = self._last_start(text)
            if not end and size > MOST_PENDING_BYTES:
                yield from self._damaged_rest(text)
                return
            if end:
                yield self._decoded(text, end)
            pending, searched = [text[end:]], 0 if end else size - _OVERLAP
            enough = BATCH_BYTES if end else size + size // 2  # a large event is not copied with each chunk
            size -= end
        yield from self._rest(b"".join(pending))

    def _open(self, source: Iterator[bytes]) -> bytes | None:
        text, array, begin = bytearray(), None, 0
        for chunk in source:
            searched = max(len(text) - _OVERLAP, 0)
            text += chunk
            array = array or _ARRAY.search(text, searched)
            begin = _behind_spaces(text, max(begin, array.end())) if array else 0
            if array and (first := _FIRST.match(text, begin)):
                self._plain_array = not array.group().lstrip().startswith(b'"')
                self._know(bytes(first[1]))
                if not self._plain_array:
                    self._add_metadata(bytes(text[: array.end()]) + b"]}")
                return bytes(text[array.end() :])
            if len(text) > MOST_PENDING_BYTES:
                break
        if array is None or not _EMPTY.match(text, array.end()):
            shown = text[:40].decode("utf-8", "replace")
            expected = "a Chrome trace with traceEvents, an xplane.pb or an SQLite export of Nsight Systems"
            raise KernelTraceError(self._name, f"it begins with {shown!r}, expected {expected}")
        self._add_metadata(bytes(text))
        return None

    def _know(self, key: bytes) -> None:
        self._keys.append(key)
        first = rb"\{\s*(?:" + b"|".join(map(re.escape, self._keys)) + rb")\s*:"
        self._begins = re.compile(first)
        self._start = re.compile(rb"(?:\A|,)\s*(?=(\{))" + first)

    def _learn(self, text: bytes) -> bool:
        """Learn which other keys events of a text begin with; return whether there is any."""
        known, tried = len(self._keys), Counter[bytes]()
        objects = [(match.start(1), match[2]) for match in _OBJECT.finditer(text)]
        for (begin, key), (end, _) in pairwise([*objects, (len(text), b"")]):
            if key not in self._keys and tried[key] < TRIES:
                tried[key] += 1
                piece = text[begin:end].rstrip(_TRAILING)
                event = decode_event(piece)[0] if len(piece) <= MOST_REPAIRED_BYTES else None
                # Behind the last event of a text may stand what begins another one, or ends the file.
                event = event or decode_first(piece[:LEARNT_BYTES])[0]
                if event is not None and event.ph:
                    self._know(key)
        return len(self._keys) > known

    def _last_start(self, text: bytes, searched: int = 0) -> int:
        """Return where the last event begins, behind what was searched before; 0 where no second one does."""
        place = len(text)
        while (place := text.rfind(b"{", max(searched, 1), place)) > 0:
            if self._begins.match(text, place) and text[max(0, place - 64) : place].rstrip().endswith(b","):
                return place
        return 0

    def _weigh(self, text: bytes) -> None:
        """Estimate from samples how many bytes of a batch are of Python's stacks; a small batch is looked at whole."""
        small = len(text) <= SAMPLES * SAMPLE_BYTES
        places = range(0, len(text), max(len(text) // SAMPLES, 1))
        seen = stacks = 0
        for sample in [text] if small else [text[place : place + SAMPLE_BYTES] for place in places]:
            starts = [match.start(1) for match in self._start.finditer(sample)]
            for begin, end in pairwise([*starts, len(text)] if small else starts):
                seen += end - begin
                stacks += (end - begin) * (STACK in sample[begin:end])
        if seen:
            self._tally["stack_bytes"] += len(text) * stacks // seen

    def _decoded(self, text: bytes, end: int) -> list[KernelTraceEvent]:
        if text.find(STACK, 0, end) >= 0:
            self._weigh(text[:end])
        try:
            return decode_events(_stripped(text, end))
        except DECODE_ERRORS:
            return list(self._one_by_one(text[:end]))

    def _one_by_one(self, text: bytes) -> Iterator[KernelTraceEvent]:
        self._learn(text)
        starts = [match.start(1) for match in self._start.finditer(text)]
        self._tally["unreadable_events"] += bool(text[: starts[0] if starts else None].strip(_TRAILING))
        for begin, end in pairwise([*starts, len(text)]):
            event, repaired = decode_event(text[begin:end].rstrip(_TRAILING))
            self._tally["repaired_events"] += repaired
            if event is None:
                self._tally["unreadable_events"] += 1
            else:
                yield event

    def _rest(self, text: bytes) -> Iterator[list[KernelTraceEvent]]:
        try:
            if self._plain_array:
                last = decode_events(text.rstrip(_TRAILING).removesuffix(b"]").rstrip(_TRAILING))
            else:
                tail = msgspec.json.decode(b'{"traceEvents":[' + text, type=_Tail)
                self._merge(tail)
                last = tail.traceEvents
        except DECODE_ERRORS:
            yield from self._damaged_rest(text)
        else:
            if STACK in text:
                self._weigh(text)
            yield last

    def _damaged_rest(self, text: bytes) -> Iterator[list[KernelTraceEvent]]:
        self._learn(text)
        end = self._last_start(text)
        if end:
            yield self._decoded(text, end)
        if STACK in text[end:]:
            self._weigh(text[end:])
        last = text[end:]
        event = self._whole_last(last)
        if event is not None:
            yield [event]
            return
        event, rest = decode_first(last) if len(last) <= MOST_REPAIRED_BYTES else (None, "")
        is_closed = self._closes(last if event is None else rest.encode())
        self._tally["cut_off"] += not is_closed
        if event is not None:
            self._tally["repaired_events"] += is_closed
            yield [event]
        else:
            self._tally["unreadable_events"] += is_closed

    def _whole_last(self, text: bytes) -> KernelTraceEvent | None:
        """Return the event that a text begins with, where it is whole and the events end behind it."""
        for match in islice(_CLOSING.finditer(text), TRIES):
            try:
                event = decode_whole(text[: match.start(1)].rstrip(_TRAILING))
            except DECODE_ERRORS:
                continue
            behind = text[match.start() :]
            # All events were read, so a file that ends within what stands behind them is not cut off.
            self._tally["unreadable_metadata"] += not self._closes(behind)
            return event
        return None

    def _closes(self, text: bytes) -> bool:
        """Whether the events end in a text; what stands behind them is read."""
        places = [match.start(1) for match in islice(_CLOSING.finditer(text), TRIES)]
        if self._plain_array and places:
            return True
        for place in places:
            try:
                self._merge(msgspec.json.decode(b'{"traceEvents":[' + text[place:], type=Metadata))
            except DECODE_ERRORS:
                continue
            return True
        is_closed = bool(places) and text.rstrip().endswith(b"}")
        self._tally["unreadable_metadata"] += is_closed
        return is_closed

    def _add_metadata(self, text: bytes) -> None:
        try:
            self._merge(msgspec.json.decode(text, type=Metadata))
        except DECODE_ERRORS:
            self._tally["unreadable_metadata"] += 1

    def _merge(self, found: Metadata) -> None:
        for field in Metadata.__struct_fields__:
            value = getattr(found, field)
            if value is not None:
                setattr(self.metadata, field, value)


def _behind_spaces(text: bytearray, begin: int) -> int:
    spaces = _SPACE.match(text, begin)
    return spaces.end() if spaces else begin


def _stripped(text: bytes, end: int) -> bytes | memoryview:
    """Return a text up to its last event that begins before a place; a view of it, so that a batch is not copied."""
    tail = text[max(end - STRIPPED_AT_ONCE, 0) : end]
    kept = tail.rstrip(_TRAILING)
    return memoryview(text)[: end - len(tail) + len(kept)] if kept else text[:end].rstrip(_TRAILING)
