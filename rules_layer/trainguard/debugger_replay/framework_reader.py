"""One framework file: a Chrome trace to columns, in the order in which the original's parser appends its events.

The parser keeps three things from file to file: the origin of time, the names of phases, and a stack of open ``B``
events for each phase. What a file needs of them is left open here and filled in by ``framework_stream``.
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
from numpy.typing import NDArray

from trainguard.debugger_replay.source import FrameworkName, Parser
from trainguard.telemetry.snapshots import FloatArray

NOTHING = -1
MAX_TRACE_BYTES = 256 * 1024 * 1024
"""A TensorFlow trace of its largest kind, a million events, unpacked; what is larger is skipped whole."""

UNKNOWN = "Unknown"
"""The name of a phase that no file has named."""

Scalar = str | int | float | bool | None
_PhaseId = int | str


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
    pid: _PhaseId | UnsetType = UNSET
    ts: float | UnsetType = UNSET
    dur: float | UnsetType = UNSET
    args: _Arguments | None = None


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """What a DataLoaderIterInitialize event says; UNSET where it says nothing."""

    pin_memory: Any
    num_workers: Any


@dataclass(slots=True)
class OpenEnd:
    """An ``E`` whose ``B`` is in an earlier file: the event comes before row ``row``, if it comes at all."""

    row: int
    phase_id: _PhaseId
    ts: float
    origin_us: float | None
    phase: str | None
    step: int
    process: int


@dataclass(slots=True)
class Rows:
    """Columns while they grow; N events in file order.

    ``phases``, ``names``, ``steps``, ``processes`` are indices into the file's tables, NOTHING where there is none.
    ``origins`` is NaN and ``phases`` NOTHING where an earlier file decides.
    """

    starts: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    origins: list[float] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrameworkFile:
    """The N events of one framework file.

    Attributes
    ----------
    name : str
        The file's path.
    parser : Parser
    node : str
        ``algo-<n>-<pid>``.
    starts, durations : float64[N]
        Microseconds; ``starts`` is absolute where ``origin_open`` is not set.
    origin_open : bool[N]
        The origin of time is that of an earlier file.
    phases, names, steps, processes : int32[N]
        Indices into the tables; NOTHING where the event has none, or an earlier file names the phase.
    phase_table, name_table : tuple of str
    step_table, process_table : tuple
        ``args.step_num`` and ``args.pid`` as written.
    open_phases : dict
        Row to the phase's id, where an earlier file names the phase.
    loaders : dict
        Row to what the event says of the data loader.
    open_ends : tuple of OpenEnd
    open_begins : tuple of (phase id, ts, name)
        ``B`` events that are left on the stacks, oldest first.
    phase_names : dict
        What the parser's table of phases is updated with after the file.
    last_origin_us : float or None
        The parser's origin of time after the file, None where it stays.
    bad_events : int
        Events that lack what they must have.
    readable : bool
        False when the whole file is skipped: it is no JSON array.
    """

    name: str
    parser: Parser
    node: str
    starts: FloatArray
    durations: FloatArray
    origin_open: NDArray[np.bool_]
    phases: NDArray[np.int32]
    names: NDArray[np.int32]
    steps: NDArray[np.int32]
    processes: NDArray[np.int32]
    phase_table: tuple[str, ...]
    name_table: tuple[str, ...]
    step_table: tuple[Scalar, ...]
    process_table: tuple[Scalar, ...]
    open_phases: dict[int, _PhaseId]
    loaders: dict[int, LoaderSettings]
    open_ends: tuple[OpenEnd, ...]
    open_begins: tuple[tuple[_PhaseId, float, str], ...]
    phase_names: dict[_PhaseId, str]
    last_origin_us: float | None
    bad_events: int
    readable: bool


def read_framework_file(task: tuple[FrameworkName, bytes]) -> FrameworkFile:
    """Read one framework file; a truncated one is skipped whole, as the original does with a local file."""
    name, body = task
    events, bad, readable = _decode(body, tensorflow=name.parser is Parser.TENSORFLOW)
    reading = _Reading(None if name.origin_us is None else float(name.origin_us))
    if name.origin_us is not None:
        reading.phase_names[0] = UNKNOWN
    for event in events:
        bad += not reading.take(event)
    return reading.finish(name, bad, readable)


def _scalar(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value


def _time(written: float) -> float:
    """Return a time; one that no float holds lies beyond all windows."""
    try:
        return float(written)
    except OverflowError:
        return math.inf if written > 0 else -math.inf


class _Index(dict[Any, int]):
    """Numbers values as they are met."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


class _Reading:
    """A parser on its way through one file."""

    def __init__(self, origin_us: float | None) -> None:
        self.origin_us = origin_us
        self.phase_names: dict[_PhaseId, str] = {}
        self.stacks: dict[_PhaseId, list[tuple[float, str]]] = {}
        self.rows = Rows()
        self.phase_index = _Index()
        self.name_index = _Index()
        self.step_index = _Index()
        self.process_index = _Index()
        self.open_phases: dict[int, _PhaseId] = {}
        self.loaders: dict[int, LoaderSettings] = {}
        self.open_ends: list[OpenEnd] = []

    def take(self, event: _Event) -> bool:
        """Fold one event in; False when it lacks what it must have."""
        if event.ph == "X":
            if event.ts is UNSET or event.dur is UNSET or event.name is UNSET or event.pid is UNSET:
                return False
            self._append(event, event.pid, event.name, event.ts, event.dur)
        elif event.ph == "M":
            return self._name(event)
        elif event.ph == "B":
            if event.ts is UNSET or event.name is UNSET or event.pid is UNSET:
                return False
            self.stacks.setdefault(event.pid, []).append((event.ts, event.name))
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
            self.phase_names[event.pid] = UNKNOWN if event.args.name is UNSET else str(event.args.name)
        if event.args is not None and isinstance(event.args.start_time_since_epoch_in_micros, int | float):
            self.origin_us = _time(event.args.start_time_since_epoch_in_micros)
        return True

    def _end(self, event: _Event, phase_id: _PhaseId, ts: float) -> None:
        stack = self.stacks.get(phase_id)
        if stack:
            begin, name = stack.pop()
            if ts >= begin:
                self._append(event, phase_id, name, begin, ts - begin)
            return
        arguments = event.args
        step, process = self._arguments(arguments)
        phase = self.phase_names.get(phase_id)
        row = len(self.rows.starts)
        self.open_ends.append(OpenEnd(row, phase_id, ts, self.origin_us, phase, step, process))

    def _append(self, event: _Event, phase_id: _PhaseId, name: str, ts: float, duration: float) -> None:
        rows = self.rows
        row = len(rows.starts)
        phase = self.phase_names.get(phase_id)
        if phase is None:
            self.open_phases[row] = phase_id
        step, process = self._arguments(event.args)
        if event.args is not None and (event.args.pin_memory is not UNSET or event.args.num_workers is not UNSET):
            self.loaders[row] = LoaderSettings(event.args.pin_memory, event.args.num_workers)
        rows.starts.append(ts)
        rows.durations.append(duration)
        rows.origins.append(np.nan if self.origin_us is None else self.origin_us)
        rows.phases.append(NOTHING if phase is None else self.phase_index[phase])
        rows.names.append(self.name_index[name])
        rows.steps.append(step)
        rows.processes.append(process)

    def _arguments(self, arguments: _Arguments | None) -> tuple[int, int]:
        """Return the numbers of ``step_num`` and ``pid``; 1, "1" and True are three step numbers."""
        if arguments is None:
            return NOTHING, NOTHING
        step, process = _scalar(arguments.step_num), _scalar(arguments.pid)
        return (
            NOTHING if step is UNSET else self.step_index[type(step), step],
            NOTHING if process is UNSET else self.process_index[process],
        )

    def finish(self, name: FrameworkName, bad: int, readable: bool) -> FrameworkFile:
        rows = self.rows
        origins = np.array(rows.origins, dtype=np.float64)
        origin_open = np.isnan(origins)
        starts = np.array(rows.starts, dtype=np.float64)
        with np.errstate(over="ignore"):  # such a start lies beyond all windows
            starts += np.where(origin_open, 0.0, origins)
        return FrameworkFile(
            name=name.name,
            parser=name.parser,
            node=name.node,
            starts=starts,
            durations=np.array(rows.durations, dtype=np.float64),
            origin_open=origin_open,
            phases=np.array(rows.phases, dtype=np.int32),
            names=np.array(rows.names, dtype=np.int32),
            steps=np.array(rows.steps, dtype=np.int32),
            processes=np.array(rows.processes, dtype=np.int32),
            phase_table=tuple(self.phase_index),
            name_table=tuple(self.name_index),
            step_table=tuple(value for _, value in self.step_index),
            process_table=tuple(self.process_index),
            open_phases=self.open_phases,
            loaders=self.loaders,
            open_ends=tuple(self.open_ends),
            open_begins=tuple((phase, ts, of) for phase, stack in self.stacks.items() for ts, of in stack),
            phase_names=self.phase_names,
            last_origin_us=self.origin_us,
            bad_events=bad,
            readable=readable,
        )


_EVENT = msgspec.json.Decoder(_Event)
_EVENTS = msgspec.json.Decoder(list[_Event])
_RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])


class _Trace(msgspec.Struct, rename={"events": "traceEvents"}):
    events: msgspec.Raw


_TRACE = msgspec.json.Decoder(_Trace)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError, EOFError, zlib.error)


def _unzip(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=BytesIO(body)) as packed:
        text = packed.read(MAX_TRACE_BYTES)
        if packed.read(1):
            raise OSError(f"over {MAX_TRACE_BYTES} bytes unpacked")
    return text


def _decode(body: bytes, *, tensorflow: bool) -> tuple[Iterable[_Event], int, bool]:
    """Return the events, how many were bad, and whether the file could be read at all."""
    try:
        text = bytes(_TRACE.decode(_unzip(body)).events) if tensorflow else body
        try:
            return _EVENTS.decode(text), 0, True
        except msgspec.ValidationError:
            raw = _RAW_EVENTS.decode(text)
    except _UNREADABLE:
        return (), 0, False
    events = []
    for item in raw:
        try:
            events.append(_EVENT.decode(item))
        except _UNREADABLE:
            continue
    return events, len(raw) - len(events), True
