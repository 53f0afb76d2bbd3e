"""Events of one framework object as columns: what the process did, when, and on which thread.

An object may lack its end while it is written: what is whole is used, the rest counted. A list or an object in the
place of a number or a text is not read: decoded it could take twenty times its bytes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.profile.snapshots import BoolArray, IntArray
from trainguard.formats.profile.system import DECODE_ERRORS


def self_times(partitions: IntArray, starts_us: IntArray, durations_us: IntArray) -> IntArray:
    """Return the time of each interval in which it is the innermost one of its lane: int64[N].

    ``partitions`` are lanes, int64[N]; starts and durations (>= 0) are int64[N]. Boundaries cut a lane into pieces; a
    piece belongs to the latest interval that began at its depth, so that the sum over a lane is the length of its
    union.
    """
    order = np.lexsort((-durations_us, starts_us, partitions))
    partition, start, duration = partitions[order], starts_us[order], durations_us[order]
    ends = start + duration
    alone = (partition[1:] != partition[:-1]) | (ends[:-1] <= start[1:])
    if alone.all():
        return durations_us.copy()
    # Only lanes in which an interval begins before its predecessor ends are cut.
    number = np.concatenate(([0], np.cumsum(partition[1:] != partition[:-1])))
    nested = (np.bincount(number[1:], weights=~alone, minlength=int(number[-1]) + 1) > 0)[number]
    times = duration.copy()
    rows = np.flatnonzero(nested & (duration > 0))
    times[rows] = _innermost(partition[rows], start[rows], ends[rows])
    result = np.empty_like(times)
    result[order] = times
    return result


def _innermost(partition: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """Return `self_times` of N intervals of some length, sorted by lane, start and longest first."""
    count = start.size
    times = np.concatenate((start, end))
    opens = np.concatenate((np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)))
    rows = np.concatenate((np.arange(count), np.arange(count)))
    order = np.lexsort((rows, opens, times, np.concatenate((partition, partition))))
    times, opens, rows = times[order], opens[order], rows[order]
    depth = np.cumsum(2 * opens - 1)
    # Sorted by depth, every group begins with an opening, so the latest opening can be carried forward.
    by_depth = np.lexsort((np.arange(depth.size), depth))
    carried = np.maximum.accumulate(np.where(opens[by_depth] == 1, np.arange(by_depth.size), 0))
    owner = np.empty_like(rows)
    owner[by_depth] = rows[by_depth][carried]
    open_pieces = depth[:-1] > 0
    pieces = np.where(open_pieces, np.diff(times), 0)
    result: IntArray = np.bincount(owner[:-1], weights=pieces, minlength=count).astype(np.int64)
    return result


UNKNOWN = -1


def _nothing() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class EventTable:
    """N events with a beginning and an end, in file order (by their end); columns are int64[N].

    ``process`` is ``<node>-<pid or rank>``, ``kind`` the key's file kind. Times are (epoch) microseconds; ``threads``
    are meaningful within the object. ``workers`` (process id of the event) and ``worker_ids`` are -1 where the event
    has none, and filled for steps and loader events alone.
    """

    process: str = ""
    kind: str = ""
    phases: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    phase_index: IntArray = field(default_factory=_nothing)
    name_index: IntArray = field(default_factory=_nothing)
    starts_us: IntArray = field(default_factory=_nothing)
    durations_us: IntArray = field(default_factory=_nothing)
    threads: IntArray = field(default_factory=_nothing)
    workers: IntArray = field(default_factory=_nothing)
    worker_ids: IntArray = field(default_factory=_nothing)

    def __len__(self) -> int:
        return int(self.starts_us.size)

    @cached_property
    def ends_us(self) -> IntArray:
        """Ends, epoch microseconds, int64[N]."""
        ends: IntArray = self.starts_us + self.durations_us
        return ends

    @cached_property
    def self_us(self) -> IntArray:
        """Time of each event that none of the events nested in it on its thread has, microseconds, int64[N]."""
        partitions = self.phase_index * (int(self.threads.max(initial=0)) + 1) + self.threads
        return self_times(partitions, self.starts_us, self.durations_us)

    def rows_in(self, phases: Iterable[str]) -> IntArray:
        """Rows whose phase is one of ``phases``, int64[M]."""
        wanted = set(phases)
        chosen = [index for index, phase in enumerate(self.phases) if phase in wanted]
        return np.flatnonzero(np.isin(self.phase_index, chosen)) if chosen else _nothing()

    def rows_named(self, rows: IntArray, word: str) -> BoolArray:
        """Whether the name of each of ``rows`` (int64[M]) has a word in it, bool[M]."""
        return np.array([word in name for name in self.names], dtype=np.bool_)[self.name_index[rows]]


@dataclass(frozen=True, slots=True)
class LoaderSetup:
    """A PyTorch data loader as its process set it up; None where the event does not say."""

    pid: int
    num_workers: int | None
    pin_memory: bool | None


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps of one process and mode that one framework object holds, in file order (by their end).

    ``process`` is ``<node>-<pid or rank>``, ``mode`` the step event's name, as ``Step:ModeKeys.TRAIN``. Times,
    int64[N], are (epoch) microseconds. ``numbers`` are ``step_num`` as written, ``?`` where the event has none.
    """

    process: str
    mode: str
    starts_us: NDArray[np.int64]
    durations_us: NDArray[np.int64]
    numbers: tuple[str, ...]


# A larger event with lists or objects where none belong is bad.
MAX_EVENT_BYTES = 64 * 1024

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


E = TypeVar("E")


class _TraceFile(msgspec.Struct, Generic[E]):
    events: list[E] = msgspec.field(name="traceEvents")


_ARRAY = msgspec.json.Decoder(list[TraceEvent])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(TraceEvent)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])
_FILE = msgspec.json.Decoder(_TraceFile[TraceEvent])
_RAW_FILE = msgspec.json.Decoder(_TraceFile[msgspec.Raw])
_LIST_KEY = b'"traceEvents"'


def decode_trace(key: str, text: bytes, tally: Counter[str]) -> list[TraceEvent]:
    """Decode an object's text; counts ``bad_events``, raises TelemetryFormatError when the text is no trace at all."""
    if not text:
        return []
    is_file = text.lstrip()[:1] == b"{"
    try:
        return _FILE.decode(text).events if is_file else _ARRAY.decode(text)
    except DECODE_ERRORS:
        pass
    decoded: list[TraceEvent] = []
    for event in _split(key, text, is_file=is_file):
        try:
            decoded.append(_decode_event(event))
        except DECODE_ERRORS:
            tally["bad_events"] += 1
    return decoded


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
