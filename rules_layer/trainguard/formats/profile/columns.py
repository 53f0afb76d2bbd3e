"""Decoded trace events to columns: absolute times, phases by their id, pairs of beginning and end joined."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainguard.formats.profile.events import (
    UNKNOWN,
    EventTable,
    LoaderSetup,
    StepBatch,
    TraceArgs,
    TraceEvent,
    decode_trace,
)
from trainguard.formats.profile.keys import EARLIEST_MINUTE
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.formats.profile.system import MAX_NAME_LENGTH, printable, unpack

STEP_PHASE = "Step:ModeKeys"
LOADER_SETUP_PHASE = "DataLoaderIterInitialize"
LOADER_PHASES = frozenset({"DataLoaderIter", "DataLoaderWorker", LOADER_SETUP_PHASE})
MAX_NAMES = 1_024
MAX_PHASES = 256
MAX_SETUPS = 16
OTHER = "other"
_MAX_TIME_US = 2**53
_MAX_SMALL = 2**31
_SLACK_US = 1_000_000
EARLIEST_US = EARLIEST_MINUTE * 1_000_000


def build_columns(
    trace: Sequence[TraceEvent], tally: Counter[str], *, process: str, kind: str, origin_us: int, latest_us: int
) -> tuple[EventTable, tuple[StepBatch, ...], tuple[LoaderSetup, ...]]:
    """Return the events of one object, its training steps by mode, and the data loaders that it set up.

    Times of the object are relative to ``origin_us``, epoch microseconds.
    """
    marks = [event.ph for event in trace]
    metadata = [(position, trace[position]) for position, mark in enumerate(marks) if mark == "M"]
    events, began_at, durations = _complete(trace, marks, tally)
    starts = _origins(metadata, began_at, origin_us) + np.array([event.ts for event in events], dtype=np.float64)
    valid = (starts >= EARLIEST_US) & (durations >= 0) & (durations <= latest_us - starts)
    if not valid.all():
        tally["bad_events"] += int(np.count_nonzero(~valid))
        events = [event for event, keep in zip(events, valid.tolist(), strict=True) if keep]
        starts, durations = starts[valid], durations[valid]
    phases, phase_index = _phases(metadata, events, tally)
    names, name_index = _table([event.name for event in events], MAX_NAMES, "merged_names", tally)
    is_step = np.array([STEP_PHASE in name for name in names], dtype=np.bool_)[name_index]
    is_loader = np.array([phase in LOADER_PHASES for phase in phases], dtype=np.bool_)[phase_index]
    workers, worker_ids = _workers(events, is_step | is_loader)
    table = EventTable(
        process=process,
        kind=kind,
        phases=phases,
        names=names,
        phase_index=phase_index,
        name_index=name_index,
        starts_us=starts.astype(np.int64),
        durations_us=durations.astype(np.int64),
        threads=_threads(events),
        workers=workers,
        worker_ids=worker_ids,
    )
    loaders = table.rows_in([LOADER_SETUP_PHASE])[-MAX_SETUPS:].tolist()
    setups = [_setup(events[row].args or TraceArgs()) for row in loaders]
    return table, _steps(table, events, np.flatnonzero(is_step)), tuple(setups)


def _complete(
    trace: Sequence[TraceEvent], marks: Sequence[str], tally: Counter[str]
) -> tuple[list[TraceEvent], IntArray, FloatArray]:
    """Return the events that end, in the order of their ends, where each began in the file, and its duration."""
    began = ended = [position for position, mark in enumerate(marks) if mark == "X"]
    durations = [trace[position].dur for position in began]
    if "B" in marks or "E" in marks:
        pairs = _pairs(trace, tally)
        began, ended = began + [first for first, _ in pairs], ended + [last for _, last in pairs]
        durations += [trace[last].ts - trace[first].ts for first, last in pairs]
    order = np.argsort(np.array(ended, dtype=np.int64))
    began_at = np.array(began, dtype=np.int64)[order]
    return [trace[position] for position in began_at.tolist()], began_at, np.array(durations, dtype=np.float64)[order]


def _pairs(trace: Sequence[TraceEvent], tally: Counter[str]) -> list[tuple[int, int]]:
    """Join each end to the latest open beginning of its phase and thread."""
    open_at: defaultdict[tuple[int | str, Any], list[int]] = defaultdict(list)
    pairs: list[tuple[int, int]] = []
    for position, event in enumerate(trace):
        if event.ph == "B":
            open_at[event.pid, _thread(event)].append(position)
        elif event.ph == "E":
            waiting = open_at[event.pid, _thread(event)]
            if waiting:
                pairs.append((waiting.pop(), position))
            else:
                tally["unpaired_events"] += 1
    tally["unpaired_events"] += sum(len(waiting) for waiting in open_at.values())
    return pairs


def _origins(metadata: Sequence[tuple[int, TraceEvent]], began_at: IntArray, origin_us: int) -> Any:
    """Return the start time that was last given before each event: a number, or float64[N]."""
    given = [
        (position, event.args.start_time_since_epoch_in_micros)
        for position, event in metadata
        if event.args is not None
    ]
    known = [(position, value) for position, value in given if isinstance(value, int | float)]
    known = [(position, value) for position, value in known if 0 < value < _MAX_TIME_US]
    if not known:
        return float(origin_us)
    values = np.array([float(origin_us), *(float(value) for _, value in known)])
    return values[np.searchsorted([position for position, _ in known], began_at)]


def _phases(
    metadata: Sequence[tuple[int, TraceEvent]], events: Sequence[TraceEvent], tally: Counter[str]
) -> tuple[tuple[str, ...], IntArray]:
    """Return int64[N] rows; a phase that the file does not name is its event's name."""
    named = {
        event.pid: event.args.name
        for _, event in metadata
        if event.name == "process_name"
        and event.args is not None
        and isinstance(event.args.name, str)
        and event.args.name
    }
    try:
        phases = [named[event.pid] for event in events]
    except KeyError:
        phases = [named.get(event.pid) or event.name for event in events]
    return _table(phases, MAX_PHASES, "merged_phases", tally)


def _table(names: Sequence[str], limit: int, what: str, tally: Counter[str]) -> tuple[tuple[str, ...], IntArray]:
    """Return the first ``limit`` - 1 distinct names and OTHER, and int64[N] rows."""
    rows: dict[str, int] = {}
    index = np.array([rows.setdefault(name, len(rows)) for name in names], dtype=np.int64)
    table = [printable(name) for name in list(rows)[:limit]]
    if len(rows) > limit:
        table[-1] = OTHER
        tally[what] += int(np.count_nonzero(index >= limit - 1))
        index = np.minimum(index, limit - 1)
    return tuple(table), index


def _thread(event: TraceEvent) -> Hashable:
    thread = event.tid
    if thread is None and event.args is not None:
        thread = event.args.thread_id if event.args.tid is None else event.args.tid
    return thread if isinstance(thread, int | str) else None


def _threads(events: Sequence[TraceEvent]) -> IntArray:
    rows: dict[Hashable, int] = {}
    try:
        threads = [
            event.tid
            if event.tid is not None or (args := event.args) is None
            else args.thread_id
            if args.tid is None
            else args.tid
            for event in events
        ]
        return np.array([rows.setdefault(thread, len(rows)) for thread in threads], dtype=np.int64)
    except TypeError:  # a list or an object stands where a number should
        rows.clear()
        return np.array([rows.setdefault(_thread(event), len(rows)) for event in events], dtype=np.int64)


def _workers(events: Sequence[TraceEvent], wanted: BoolArray) -> tuple[IntArray, IntArray]:
    workers = np.full(len(events), UNKNOWN, dtype=np.int64)
    worker_ids = workers.copy()
    for row in np.flatnonzero(wanted).tolist():
        args = events[row].args
        if args is not None:
            workers[row], worker_ids[row] = _small(args.pid), _small(args.worker_id)
    return workers, worker_ids


def _small(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_SMALL else UNKNOWN


def _setup(args: TraceArgs) -> LoaderSetup:
    workers = _small(args.num_workers)
    pinned = args.pin_memory if isinstance(args.pin_memory, bool) else None
    return LoaderSetup(_small(args.pid), None if workers == UNKNOWN else workers, pinned)


def _steps(table: EventTable, events: Sequence[TraceEvent], rows: IntArray) -> tuple[StepBatch, ...]:
    modes = table.name_index[rows]
    batches = []
    for mode in sorted(set(modes.tolist()), key=lambda name: table.names[name]):
        chosen = rows[modes == mode]
        batches.append(
            StepBatch(
                process=table.process,
                mode=table.names[mode],
                starts_us=table.starts_us[chosen],
                durations_us=table.durations_us[chosen],
                numbers=tuple(_step_number(events[row]) for row in chosen.tolist()),
            )
        )
    return tuple(batches)


def _step_number(event: TraceEvent) -> str:
    number = None if event.args is None else event.args.step_num
    return "?" if number is None else printable(str(number)[:MAX_NAME_LENGTH])


@dataclass(frozen=True, slots=True)
class FrameworkEvents:
    """What one object holds: steps by mode, all events as columns, data loaders, and what was not used and why."""

    steps: tuple[StepBatch, ...]
    tally: Counter[str] = field(default_factory=Counter)
    table: EventTable = field(default_factory=EventTable)
    loaders: tuple[LoaderSetup, ...] = ()


def read_framework_object(
    key: str, body: bytes, *, process: str, end_us: int, kind: str = "pythontimeline", start_us: int | None = None
) -> FrameworkEvents:
    """Read one object of a timeline, a JSON array or a gzip stream of one, possibly truncated.

    ``end_us`` is the end of the last event as the key names it, epoch microseconds; an event that ends a second later,
    or began before 2015, is left out. ``process`` is ``<node>-<pid>``, ``kind`` the file kind of the key. Times of a
    trace of TensorFlow's profiler are relative to ``start_us`` of its metadata. Raises TelemetryFormatError when
    nothing can be read.
    """
    tally: Counter[str] = Counter()
    trace = decode_trace(key, unpack(key, body, tally, mark=b"{"), tally)
    tally["events"] += len(trace)
    table, steps, loaders = build_columns(
        trace, tally, process=process, kind=kind, origin_us=start_us or 0, latest_us=end_us + _SLACK_US
    )
    return FrameworkEvents(steps, +tally, table, loaders)
