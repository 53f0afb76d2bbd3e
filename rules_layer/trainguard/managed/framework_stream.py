"""Framework files to windows: the events that a query for [s, e] returns, in the original's order.

A query reads its files again, parser by parser; origins, phase names and stacks of open events live on. Files that name
and close all by themselves are taken as they are.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.managed.framework_reader import NOTHING, UNKNOWN, FrameworkFile, LoaderSettings, PhaseId, Scalar
from trainguard.managed.source import Parser
from trainguard.managed.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ManagedWords:
    """What the numbers in a window's columns mean; grows with the job and is shared by its windows."""

    nodes: list[str]
    phases: list[str]
    names: list[str]
    steps: list[tuple[type, Scalar]]
    processes: list[Scalar]


@dataclass(frozen=True, slots=True)
class FrameworkWindow:
    """The N framework events of a window, in the order in which the original's rules see them.

    Times, float64[N], are epoch microseconds; nodes, phases and names, int64[N], number into ``words``; steps and
    processes are NOTHING (-1) where the event has none. ``horovod``, bool[N], is an empty ``file_type``, by a class
    bug. ``loaders`` are by row.
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
    words: ManagedWords

    def __len__(self) -> int:
        return int(self.starts.size)


_Events = tuple[FloatArray, dict[int, LoaderSettings]]

_START, _END, _DURATION, _NODE, _PHASE, _NAME, _STEP, _PROCESS = range(8)


class ManagedFrameworkStream:
    """The five parsers of the original, with what they remember; ``tally`` counts what was not used."""

    def __init__(self, tally: Counter[str]) -> None:
        self._tally = tally
        self._origins_us = dict.fromkeys(Parser, 0.0)
        self._phase_names: dict[Parser, dict[PhaseId, str]] = {parser: {} for parser in Parser}
        self._stacks: dict[Parser, dict[PhaseId, list[tuple[float, str]]]] = {
            parser: defaultdict(list) for parser in Parser
        }
        self._vocabularies = [Vocabulary() for _ in range(5)]
        self._nodes, self._phases, self._names, self._steps, self._processes = self._vocabularies
        self._words = ManagedWords(*(vocabulary.known for vocabulary in self._vocabularies))
        self._settled: dict[str, _Events] = {}

    def window(self, files: Sequence[FrameworkFile], start_us: int, end_us: int) -> FrameworkWindow:
        """Answer the query [start_us, end_us] from its files, which are in order of (time, path)."""
        present = {file.name for file in files}
        self._settled = {name: events for name, events in self._settled.items() if name in present}
        ordered = sorted(files, key=lambda file: file.parser)
        parts = [_cut(self._read(file), start_us, end_us) for file in ordered]
        columns = np.concatenate([np.empty((8, 0)), *(part for part, _ in parts)], axis=1)
        sizes = [part.shape[1] for part, _ in parts]
        loaders: dict[int, LoaderSettings] = {}
        for offset, (_, found) in zip(np.cumsum([0, *sizes]).tolist(), parts, strict=False):
            loaders.update({offset + row: settings for row, settings in found.items()})
        nodes, phases, names, steps, processes = columns[_NODE:].astype(np.int64)
        return FrameworkWindow(
            starts=columns[_START],
            ends=columns[_END],
            durations=columns[_DURATION],
            nodes=nodes,
            phases=phases,
            names=names,
            steps=steps,
            processes=processes,
            horovod=np.repeat(np.array([file.parser is Parser.HOROVOD for file in ordered], dtype=np.bool_), sizes),
            loaders=loaders,
            words=self._words,
        )

    def _read(self, file: FrameworkFile) -> _Events:
        """Let the file's parser read it once more, and return what it appends."""
        events = self._settled.get(file.name)
        if events is None:
            events = self._resolve(file)
            if not (file.open_ends or file.open_phases or np.isnan(file.columns[2]).any()):
                self._settled[file.name] = events
        self._phase_names[file.parser].update(file.phase_names)
        for phase_id, begins in file.open_begins.items():
            self._stacks[file.parser][phase_id].extend(begins)
        if file.origin_us is not None:
            self._origins_us[file.parser] = file.origin_us
        return events

    def _resolve(self, file: FrameworkFile) -> _Events:
        known = self._phase_names[file.parser]
        starts, durations, origins, *places = file.columns
        phases, names, steps, processes = (column.astype(np.int64) for column in places)
        columns = np.empty((8, len(starts)))
        with np.errstate(over="ignore"):  # such a start lies beyond all windows
            columns[_START] = starts + np.where(np.isnan(origins), self._origins_us[file.parser], origins)
        columns[_END] = columns[_START] + durations
        columns[_DURATION] = durations
        columns[_NODE] = self._nodes[file.node]
        columns[_PHASE] = _renumbered(phases, [self._phases[phase] for phase in file.phases])
        for row, phase_id in file.open_phases.items():
            columns[_PHASE, row] = self._phases[known.get(phase_id, UNKNOWN)]
        columns[_NAME] = _renumbered(names, [self._names[name] for name in file.names])
        step_numbers = [self._steps[step] for step in file.steps]
        process_numbers = [self._processes[process] for process in file.processes]
        columns[_STEP] = _renumbered(steps, step_numbers)
        columns[_PROCESS] = _renumbered(processes, process_numbers)
        if not file.open_ends:
            return columns, file.loaders
        return self._with_open_ends(file, columns, step_numbers, process_numbers)

    def _with_open_ends(
        self, file: FrameworkFile, columns: FloatArray, steps: list[int], processes: list[int]
    ) -> _Events:
        """Put events in whose ``B`` is on a stack; one that would end before it began is lost with its ``B``."""
        rows, found = [], []
        for row, phase_id, ended, of_file, named, step, process in file.open_ends:
            stack = self._stacks[file.parser].get(phase_id)
            if not stack:
                self._tally["ends_without_begin"] += 1
                continue
            begin, name = stack.pop()
            origin = self._origins_us[file.parser] if of_file is None else of_file
            start, stop = origin + begin, origin + ended
            if stop < start:
                continue
            phase = self._phases[named or self._phase_names[file.parser].get(phase_id, UNKNOWN)]
            numbers = (self._nodes[file.node], phase, self._names[name], [*steps, NOTHING][step])
            rows.append(row)
            found.append((start, stop, stop - start, *numbers, [*processes, NOTHING][process]))
        loaders = {row + int(np.searchsorted(rows, row, side="right")): of for row, of in file.loaders.items()}
        inserted = np.array(found, dtype=np.float64).reshape(-1, 8).T
        return np.insert(columns, rows, inserted, axis=1), loaders


def _renumbered(places: IntArray, numbers: list[int]) -> IntArray:
    """NOTHING, which is the last place, stays."""
    return np.array([*numbers, NOTHING], dtype=np.int64)[places]


def _cut(events: _Events, start_us: int, end_us: int) -> _Events:
    """Cut to a closed window, so that an edge is in two."""
    columns, loaders = events
    inside = (columns[_END] >= start_us) & (columns[_START] <= end_us)
    if inside.all():
        return events
    place = np.cumsum(inside) - 1
    return columns[:, inside], {int(place[row]): settings for row, settings in loaders.items() if inside[row]}
