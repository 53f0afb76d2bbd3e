"""One framework file: a Chrome trace to columns, in the order of the original's parser.

Origin of time, names of phases and open ``B`` events live on from file to file; ``framework_stream`` fills them in.
"""

import gzip
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.managed.source import FrameworkName, Parser
from trainguard.managed.vocabulary import Vocabulary

NOTHING = -1
# A TensorFlow trace of a million events; a larger one is skipped whole.
MAX_TRACE_BYTES = 256 * 1024 * 1024

UNKNOWN = "Unknown"

Scalar = str | int | float | bool | None
PhaseId = int | str


class _Arguments(msgspec.Struct):
    name: Any = UNSET
    start_time_since_epoch_in_micros: Any = UNSET
    step_num: Any = UNSET
    pid: Any = UNSET
    pin_memory: Any = UNSET
    num_workers: Any = UNSET


class _Event(msgspec.Struct):
    ph: str = ""
    name: str | UnsetType = UNSET
    pid: PhaseId | UnsetType = UNSET
    ts: float | UnsetType = UNSET
    dur: float | UnsetType = UNSET
    args: _Arguments | None = None


# ``pin_memory`` and ``num_workers`` of a DataLoaderIterInitialize event; UNSET where it says nothing.
LoaderSettings = tuple[Any, Any]

# An ``E`` whose ``B`` is in an earlier file: the row behind it, phase id, time, origin, phase, step and process.
#
# Origin and phase are None where an earlier file decides.
OpenEnd = tuple[int, PhaseId, float, float | None, str | None, int, int]


@dataclass(slots=True)
class FrameworkFile:
    """The N events of one framework file, and what the parser keeps of it for the next one.

    ``columns``, float64[7, N], are start (relative to the origin) and duration in microseconds, origin (NaN where an
    earlier file decides), and the places of phase, name, step and process, NOTHING without one. Steps are distinguished
    by type: 1, "1" and True are three. ``open_phases`` and ``loaders`` are by row, ``open_begins``, oldest first, by
    phase id. ``readable`` is False when the whole file is skipped: it is no JSON array.
    """

    name: str
    parser: Parser
    node: str
    origin_us: float | None
    columns: FloatArray = field(default_factory=lambda: np.empty((7, 0)))
    phases: dict[str, int] = field(default_factory=Vocabulary)
    names: dict[str, int] = field(default_factory=Vocabulary)
    steps: dict[tuple[type, Scalar], int] = field(default_factory=Vocabulary)
    processes: dict[Scalar, int] = field(default_factory=Vocabulary)
    open_phases: dict[int, PhaseId] = field(default_factory=dict)
    loaders: dict[int, LoaderSettings] = field(default_factory=dict)
    open_ends: list[OpenEnd] = field(default_factory=list)
    open_begins: dict[PhaseId, list[tuple[float, str]]] = field(default_factory=dict)
    phase_names: dict[PhaseId, str] = field(default_factory=dict)
    bad_events: int = 0
    readable: bool = True


def read_framework_file(task: tuple[FrameworkName, bytes]) -> FrameworkFile:
    """Read one framework file; a truncated one is skipped whole, as the original does with a local file."""
    named, body = task
    file = FrameworkFile(
        named.name, named.parser, named.node, None if named.origin_us is None else float(named.origin_us)
    )
    events, file.bad_events, file.readable = _decode(body, tensorflow=named.parser is Parser.TENSORFLOW)
    if named.origin_us is not None:
        file.phase_names[0] = UNKNOWN
    reading = _Reading(file)
    for event in events:
        file.bad_events += not reading.take(event)
    file.columns = np.array(reading.rows, dtype=np.float64).reshape(-1, 7).T
    return file


def _scalar(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value


def _time(written: float) -> float:
    """Return a time; one that no float holds lies beyond all windows."""
    try:
        return float(written)
    except OverflowError:
        return math.inf if written > 0 else -math.inf


class _Reading:
    def __init__(self, file: FrameworkFile) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._file = file

    def take(self, event: _Event) -> bool:
        """Return False where an event lacks what it must have."""
        if event.ph == "X":
            if event.ts is UNSET or event.dur is UNSET or event.name is UNSET or event.pid is UNSET:
                return False
            self._append(event, event.pid, event.name, event.ts, event.dur)
        elif event.ph == "M":
            return self._name(event)
        elif event.ph == "B":
            if event.ts is UNSET or event.name is UNSET or event.pid is UNSET:
                return False
            self._file.open_begins.setdefault(event.pid, []).append((event.ts, event.name))
        elif event.ph == "E":
            if event.ts is UNSET or event.pid is UNSET:
                return False
            self._end(event, event.pid, event.ts)
        return True

    def _name(self, event: _Event) -> bool:
        if event.name is UNSET or event.pid is UNSET:
            return False
        if event.name == "process_name":
            if event.args is None:
                return False
            self._file.phase_names[event.pid] = UNKNOWN if event.args.name is UNSET else str(event.args.name)
        if event.args is not None and isinstance(event.args.start_time_since_epoch_in_micros, int | float):
            self._file.origin_us = _time(event.args.start_time_since_epoch_in_micros)
        return True

    def _end(self, event: _Event, phase_id: PhaseId, ts: float) -> None:
        file, stack = self._file, self._file.open_begins.get(phase_id)
        if stack:
            begin, name = stack.pop()
            if ts >= begin:
                self._append(event, phase_id, name, begin, ts - begin)
            return
        phase = file.phase_names.get(phase_id)
        file.open_ends.append((len(self.rows), phase_id, ts, file.origin_us, phase, *self._arguments(event.args)))

    def _append(self, event: _Event, phase_id: PhaseId, name: str, ts: float, duration: float) -> None:
        file, row = self._file, len(self.rows)
        phase = file.phase_names.get(phase_id)
        if phase is None:
            file.open_phases[row] = phase_id
        if event.args is not None and (event.args.pin_memory is not UNSET or event.args.num_workers is not UNSET):
            file.loaders[row] = event.args.pin_memory, event.args.num_workers
        origin = math.nan if file.origin_us is None else file.origin_us
        number = NOTHING if phase is None else file.phases[phase]
        self.rows.append((ts, duration, origin, number, file.names[name], *self._arguments(event.args)))

    def _arguments(self, arguments: _Arguments | None) -> tuple[int, int]:
        """Return the places of ``step_num`` and ``pid``."""
        if arguments is None:
            return NOTHING, NOTHING
        step, process = _scalar(arguments.step_num), _scalar(arguments.pid)
        return (
            NOTHING if step is UNSET else self._file.steps[type(step), step],
            NOTHING if process is UNSET else self._file.processes[process],
        )


_EVENT = msgspec.json.Decoder(_Event)
_EVENTS = msgspec.json.Decoder(list[_Event])
_RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])


_TRACE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError, EOFError, zlib.error, KeyError)


def _unzip(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=BytesIO(body)) as packed:
        text = packed.read(MAX_TRACE_BYTES)
        if packed.read(1):
            raise OSError(f"over {MAX_TRACE_BYTES} bytes unpacked")
    return text


def _decode(body: bytes, *, tensorflow: bool) -> tuple[Iterable[_Event], int, bool]:
    """Return the events, how many were bad, and whether the file could be read at all."""
    try:
        text = bytes(_TRACE.decode(_unzip(body))["traceEvents"]) if tensorflow else body
        try:
            return _EVENTS.decode(text), 0, True
        except msgspec.ValidationError:
            raw = _RAW_EVENTS.decode(text)
    except _DECODE_ERRORS:
        return (), 0, False
    events = []
    for item in raw:
        try:
            events.append(_EVENT.decode(item))
        except _DECODE_ERRORS:
            continue
    return events, len(raw) - len(events), True
