"""A node's training processes' time by their own events: steps, waits for data and peers, checkpoints, evaluation.

Events that overlap count once, and each moment for one kind: a wait for data in an evaluation is a wait for data.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.formats.profile.snapshots import BoolArray, IntArray
from trainguard.state.time_grid import TimeGrid, by_unit

# Columns of the grid: milliseconds of all processes together. The first three exclude each other.
DATA, CHECKPOINT, EVALUATION, TRAIN, PEERS = range(5)

MOST_PROCESSES = 128
_DATA_PHASES = ("DataLoaderIter", "DataLoaderIterInitialize")
_PHASES = {DATA: _DATA_PHASES, CHECKPOINT: ("Checkpoint",), EVALUATION: ("Evaluation",)}
_TRAIN, _PEER_WAIT = "TRAIN", "peer_wait"
# So much of a process's steps wait for peers as long as communication takes, or shorter.
_LEAST = 0.05
# What lasts longer, or begins so long before the newest event of its object, has no time that could be used.
_LONGEST_MS = 24 * 3_600_000

_DIGITS = 15


class ProcessTime(msgspec.Struct, array_like=True):
    """One process: its first and last event, epoch milliseconds, its training steps, and whether it saves or evaluates.

    ``first_number`` and ``last_number`` are the lowest and the highest number of a training step, -1 without one. Of
    ``timed`` training steps waits for peers are known, microseconds; ``least_us`` are as many of the shortest.
    """

    first_ms: int
    last_ms: int
    steps: int = 0
    first_number: int = -1
    last_number: int = -1
    saves: bool = False
    evaluates: bool = False
    timed: int = 0
    waited_us: int = 0
    least_us: int = 0
    waits_on_gpu: bool = False


class StepTime(msgspec.Struct, array_like=True):
    """The time of a node's processes over the job; of more processes than there is room for, the first by name."""

    grid: TimeGrid = msgspec.field(default_factory=TimeGrid)
    processes: dict[str, ProcessTime] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.grid.columns) == PEERS:  # of before waits for peers were kept
            self.grid.columns.append([0] * len(self.grid.columns[0]))
        if len(self.grid.columns) not in {0, PEERS + 1} or len(self.processes) > MOST_PROCESSES:
            raise ValueError("the time of steps has other columns than kinds of time, or too many processes")

    def fold(self, events: FrameworkEvents) -> None:
        stretches = _stretches(events)
        ends = [int(each[:, 1].max()) for each in stretches if each.size]
        if not ends:
            return
        stretches = [_usable(each, max(ends)) for each in stretches]
        self._note(events, stretches)
        data, saved, evaluated, train, peers = (_union(each) for each in stretches)
        kinds = [data, _less(saved, data), _less(evaluated, _union(np.concatenate([data, saved]))), train, peers]
        units, values = [], []
        for kind, each in enumerate(kinds):
            _, at, _, lengths = by_unit(each[:, 0], each[:, 1])
            units.append(at)
            values.append([lengths if kind == column else np.zeros_like(lengths) for column in range(PEERS + 1)])
        columns = [np.concatenate([row[column] for row in values]) for column in range(PEERS + 1)]
        self.grid.add(np.concatenate(units), columns)

    def _note(self, events: FrameworkEvents, stretches: Sequence[IntArray]) -> None:
        found = np.concatenate(stretches)
        name = events.steps[0].process if events.steps else events.table.process
        if not found.size:
            return
        first, last = int(found[:, 0].min()), int(found[:, 1].max())
        process = self.processes.setdefault(name, ProcessTime(first, last))
        process.first_ms, process.last_ms = min(process.first_ms, first), max(process.last_ms, last)
        process.saves |= bool(stretches[CHECKPOINT].size)
        process.evaluates |= bool(stretches[EVALUATION].size)
        training = [batch for batch in events.steps if _TRAIN in batch.mode]
        process.steps += sum(len(batch.numbers) for batch in training)
        numbers = [number for batch in training for number in _numbers(batch.numbers)]
        if numbers:
            lowest = min(numbers) if process.first_number < 0 else min(process.first_number, *numbers)
            process.first_number, process.last_number = lowest, max(process.last_number, *numbers)
        self._note_waits(process, events, training)
        self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])

    @staticmethod
    def _note_waits(process: ProcessTime, events: FrameworkEvents, training: Sequence[StepBatch]) -> None:
        table, rows = events.table, _peer_waits(events.table)
        if not rows.size or not training:
            return
        waits = _union(np.stack([table.starts_us[rows], table.ends_us[rows]], axis=1))
        starts = np.concatenate([batch.starts_us for batch in training])
        waited = _within(waits, starts, starts + np.concatenate([batch.durations_us for batch in training]))
        process.timed += starts.size
        process.waited_us += int(waited.sum())
        process.least_us += int(np.quantile(waited, _LEAST, method="lower")) * starts.size
        process.waits_on_gpu |= bool({table.phases[at] for at in table.phase_index[rows].tolist()} - {_PEER_WAIT})


def _peer_waits(table: EventTable) -> IntArray:
    """Return the rows of waits for peers, on the processor and on a GPU, int64[M]."""
    named = [number for number, name in enumerate(table.names) if name == _PEER_WAIT]
    rows: IntArray = np.flatnonzero(np.isin(table.name_index, named))
    return rows


def _within(stretches: IntArray, starts: IntArray, ends: IntArray) -> IntArray:
    """Return how much of disjoint stretches in order lies from each start to its end, int64[N]."""
    knots = stretches.ravel()
    lengths = np.diff(knots, prepend=knots[:1])
    lengths[::2] = 0
    reached = np.cumsum(lengths)
    origin = int(knots[0])
    until = np.interp(ends - origin, knots - origin, reached)
    within: IntArray = np.rint(until - np.interp(starts - origin, knots - origin, reached)).astype(np.int64)
    return within


def _stretches(events: FrameworkEvents) -> list[IntArray]:
    """Return when each kind of time was, epoch milliseconds, int64[N, 2] each, in the order of the columns."""
    table = events.table
    found = []
    for kind in (DATA, CHECKPOINT, EVALUATION):
        rows = table.rows_in(_PHASES[kind]) if len(table) else np.zeros(0, dtype=np.int64)
        found.append(_milliseconds(table.starts_us[rows], table.durations_us[rows]))
    found.append(np.zeros((0, 2), dtype=np.int64))
    for batch in events.steps:
        kind = TRAIN if _TRAIN in batch.mode else EVALUATION
        found[kind] = np.concatenate([found[kind], _milliseconds(batch.starts_us, batch.durations_us)])
    rows = _peer_waits(table)
    return [*found, _milliseconds(table.starts_us[rows], table.durations_us[rows])]


def _milliseconds(starts_us: IntArray, durations_us: IntArray) -> IntArray:
    stretches: IntArray = np.stack([starts_us, starts_us + durations_us], axis=1) // 1_000
    return stretches


def _usable(stretches: IntArray, newest_ms: int) -> IntArray:
    used: IntArray = stretches[stretches[:, 0] >= newest_ms - _LONGEST_MS]
    return used


def _union(stretches: IntArray) -> IntArray:
    """Return the disjoint stretches, in order, that cover the same time, int64[M, 2]."""
    if not stretches.size:
        return stretches
    order = np.argsort(stretches[:, 0], kind="stable")
    starts, reached = stretches[order, 0], np.maximum.accumulate(stretches[order, 1])
    first = np.concatenate([[0], np.flatnonzero(starts[1:] > reached[:-1]) + 1])
    last = np.append(first[1:], starts.size) - 1
    joined: IntArray = np.stack([starts[first], reached[last]], axis=1)
    return joined


def _less(stretches: IntArray, taken: IntArray) -> IntArray:
    """Return what is left of disjoint stretches without other disjoint ones, both in order, int64[M, 2]."""
    if not stretches.size or not taken.size:
        return stretches
    cuts = np.unique(np.concatenate([stretches.ravel(), taken.ravel()]))
    starts, ends = cuts[:-1], cuts[1:]
    left = _covers(stretches, starts) & ~_covers(taken, starts)
    parts: IntArray = np.stack([starts[left], ends[left]], axis=1)
    return parts


def _covers(stretches: IntArray, points: IntArray) -> BoolArray:
    place = np.searchsorted(stretches[:, 0], points, side="right") - 1
    covered: BoolArray = (place >= 0) & (points < stretches[np.maximum(place, 0), 1])
    return covered


def _numbers(written: Sequence[str]) -> list[int]:
    return [int(each) for each in written if each.isascii() and each.isdecimal() and len(each) <= _DIGITS]
