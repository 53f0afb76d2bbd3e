"""Framework files to windows: the events that a query for [s, e] returns, in the original's order.

A query reads its files again from the first to the last, parser by parser; origins, phase names and stacks of open
events live on from file to file and from query to query. Nothing of that matters for files that name their own origin
and phases and close what they open, which are taken as they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainguard.debugger_replay.framework_reader import NOTHING, UNKNOWN, FrameworkFile, LoaderSettings, OpenEnd, Scalar
from trainguard.debugger_replay.source import Parser
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray


class Vocabulary(dict[Any, int]):
    """Numbers values as they are met, over the whole job; ``known`` reads the numbers back."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Any] = []

    def __missing__(self, value: Any) -> int:
        self[value] = len(self.known)
        self.known.append(value)
        return self[value]


@dataclass(frozen=True, slots=True)
class Words:
    """What the numbers in a window's columns mean; grows with the job and is shared by its windows."""

    nodes: list[str]
    phases: list[str]
    names: list[str]
    steps: list[tuple[type, Scalar]]
    processes: list[Scalar]


@dataclass(frozen=True, slots=True)
class FrameworkWindow:
    """The N framework events of a window, in the order in which the original's rules see them.

    Attributes
    ----------
    starts, ends : float64[N]
        Epoch microseconds.
    durations : float64[N]
    nodes, phases, names : int64[N]
        Numbers into ``words``.
    steps, processes : int64[N]
        ``args.step_num`` and ``args.pid``; NOTHING (-1) where the event has none.
    horovod : bool[N]
        The event's ``file_type`` is empty, which is so for Horovod because of a class bug.
    loaders : dict
        Row to what the event says of the data loader.
    """

    starts: FloatArray
    ends: FloatArray
    durations: FloatArray
    nodes: IntArray
    phases: IntArray
    names: IntArray
    steps: IntArray
    processes: IntArray
    horovod: BoolArray
    loaders: dict[int, LoaderSettings]
    words: Words

    def __len__(self) -> int:
        return int(self.starts.size)


@dataclass(frozen=True, slots=True)
class _Events:
    """Resolved events of one file: rows of eight numbers as columns, in order."""

    columns: FloatArray
    loaders: dict[int, LoaderSettings]


_START, _END, _DURATION, _NODE, _PHASE, _NAME, _STEP, _PROCESS = range(8)


@dataclass(slots=True)
class _ParserState:
    origin_us: float = 0.0
    phase_names: dict[int | str, str] = field(default_factory=dict)
    stacks: dict[int | str, list[tuple[float, str]]] = field(default_factory=dict)


class FrameworkStream:
    """The five parsers of the original, with what they remember.

    Parameters
    ----------
    tally : Counter
        Counts what was not used, by reason.
    """

    def __init__(self, tally: Counter[str]) -> None:
        self._tally = tally
        self._states = {parser: _ParserState() for parser in Parser}
        self._vocabularies = [Vocabulary() for _ in range(5)]
        self._nodes, self._phases, self._names, self._steps, self._processes = self._vocabularies
        self._words = Words(*(vocabulary.known for vocabulary in self._vocabularies))
        self._settled: dict[str, _Events] = {}

    def window(self, files: Sequence[FrameworkFile], start_us: int, end_us: int) -> FrameworkWindow:
        """Answer the query [start_us, end_us] from its files, which are in order of (time, path)."""
        present = {file.name for file in files}
        self._settled = {name: events for name, events in self._settled.items() if name in present}
        parts: list[_Events] = []
        horovod: list[int] = []
        for parser in Parser:
            for file in files:
                if file.parser is parser:
                    events = _cut(self._read(file), start_us, end_us)
                    parts.append(events)
                    horovod.append(events.columns.shape[1] if parser is Parser.HOROVOD else 0)
        return self._joined(parts, horovod)

    def _joined(self, parts: list[_Events], horovod: list[int]) -> FrameworkWindow:
        columns = np.concatenate([part.columns for part in parts], axis=1) if parts else np.empty((8, 0))
        loaders: dict[int, LoaderSettings] = {}
        offset = 0
        for part in parts:
            loaders.update({offset + row: settings for row, settings in part.loaders.items()})
            offset += part.columns.shape[1]
        whole = columns[_NODE:].astype(np.int64)
        flags = [np.full(part.columns.shape[1], bool(count)) for part, count in zip(parts, horovod, strict=True)]
        return FrameworkWindow(
            starts=columns[_START],
            ends=columns[_END],
            durations=columns[_DURATION],
            nodes=whole[0],
            phases=whole[1],
            names=whole[2],
            steps=whole[3],
            processes=whole[4],
            horovod=np.concatenate(flags) if flags else np.empty(0, dtype=np.bool_),
            loaders=loaders,
            words=self._words,
        )

    def _read(self, file: FrameworkFile) -> _Events:
        """Let the file's parser read it once more, and return what it appends."""
        state = self._states[file.parser]
        events = self._settled.get(file.name)
        if events is None:
            events = self._resolve(file, state)
            if not (file.open_ends or file.open_phases or file.origin_open.any()):
                self._settled[file.name] = events
        state.phase_names.update(file.phase_names)
        for phase_id, ts, name in file.open_begins:
            state.stacks.setdefault(phase_id, []).append((ts, name))
        if file.last_origin_us is not None:
            state.origin_us = file.last_origin_us
        return events

    def _resolve(self, file: FrameworkFile, state: _ParserState) -> _Events:
        columns = np.empty((8, len(file.starts)))
        columns[_START] = file.starts + np.where(file.origin_open, state.origin_us, 0.0)
        columns[_END] = columns[_START] + file.durations
        columns[_DURATION] = file.durations
        columns[_NODE] = self._nodes[file.node]
        phases = _renumbered(file.phases, [self._phases[phase] for phase in file.phase_table])
        for row, phase_id in file.open_phases.items():
            phases[row] = self._phases[state.phase_names.get(phase_id, UNKNOWN)]
        columns[_PHASE] = phases
        columns[_NAME] = _renumbered(file.names, [self._names[name] for name in file.name_table])
        steps = [self._steps[type(step), step] for step in file.step_table]
        processes = [self._processes[process] for process in file.process_table]
        columns[_STEP] = _renumbered(file.steps, steps)
        columns[_PROCESS] = _renumbered(file.processes, processes)
        if not file.open_ends:
            return _Events(columns, file.loaders)
        return self._with_open_ends(file, columns, state, steps, processes)

    def _with_open_ends(
        self, file: FrameworkFile, columns: FloatArray, state: _ParserState, steps: list[int], processes: list[int]
    ) -> _Events:
        """Put events in whose ``B`` is on a stack; one that would end before it began is lost with its ``B``."""
        rows, found = [], []
        for end in file.open_ends:
            stack = state.stacks.get(end.phase_id)
            if not stack:
                self._tally["ends_without_begin"] += 1
                continue
            begin, name = stack.pop()
            origin = state.origin_us if end.origin_us is None else end.origin_us
            start, stop = origin + begin, origin + end.ts
            if stop < start:
                continue
            phase = self._phases[end.phase or state.phase_names.get(end.phase_id, UNKNOWN)]
            step, process = _numbers(end, steps, processes)
            rows.append(end.row)
            found.append((start, stop, stop - start, self._nodes[file.node], phase, self._names[name], step, process))
        loaders = {row + int(np.searchsorted(rows, row, side="right")): of for row, of in file.loaders.items()}
        inserted = np.array(found, dtype=np.float64).reshape(-1, 8).T
        return _Events(np.insert(columns, rows, inserted, axis=1), loaders)


def _numbers(end: OpenEnd, steps: list[int], processes: list[int]) -> tuple[int, int]:
    return (
        NOTHING if end.step == NOTHING else steps[end.step],
        NOTHING if end.process == NOTHING else processes[end.process],
    )


def _renumbered(column: NDArray[np.int32], numbers: list[int]) -> IntArray:
    """Turn a file's numbers into the job's; NOTHING stays."""
    return np.array([*numbers, NOTHING], dtype=np.int64)[column]


def _cut(events: _Events, start_us: int, end_us: int) -> _Events:
    """Keep what neither ends before the window nor starts after it; a closed window, so an edge is in two."""
    columns = events.columns
    inside = (columns[_END] >= start_us) & (columns[_START] <= end_us)
    if inside.all():
        return events
    place = np.cumsum(inside) - 1
    loaders = {int(place[row]): settings for row, settings in events.loaders.items() if inside[row]}
    return _Events(columns[:, inside], loaders)
