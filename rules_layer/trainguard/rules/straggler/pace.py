"""A training process's own work in each step: forward passes, waits for data and the optimizer.

A backward pass ends with everybody's gradients, so that the fastest process has the longest: it is left out.
"""

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import EventTable
from trainguard.formats.profile.snapshots import BoolArray, IntArray
from trainguard.rules.framework_events import EventClass, class_of_phase

BLOCK_US, BLOCKS = 300_000_000, 12
MOST_PROCESSES = 256
TRAIN = "TRAIN"
_LOADER, _OPTIMIZER = "DataLoaderIter", "Optimizer"
_ON_GPU = frozenset({"forward", "optimizer"})


class Pace(msgspec.Struct, array_like=True):
    """Steps and their time, microseconds: in all (with the wait before), own work, and waits for data in that."""

    steps: int = 0
    total_us: int = 0
    own_us: int = 0
    wait_us: int = 0

    def add(self, steps: int, total_us: int, own_us: int, wait_us: int) -> None:
        self.steps += steps
        self.total_us += total_us
        self.own_us += own_us
        self.wait_us += wait_us


class ProcessPace(msgspec.Struct, array_like=True):
    """One process: its whole job, and its newest blocks of five minutes by their number since the epoch."""

    whole: Pace = msgspec.field(default_factory=Pace)
    blocks: dict[int, Pace] = msgspec.field(default_factory=dict)


class PaceState(msgspec.Struct, array_like=True):
    """Processes of a node by name; of more than there is room for, the first by name."""

    processes: dict[str, ProcessPace] = msgspec.field(default_factory=dict)

    def fold(self, events: FrameworkEvents) -> None:
        table = events.table
        if not len(table) or not events.steps:
            return
        steps = _Steps.of(events)
        own_us, wait_us, before_us = steps.work(table)
        chosen = steps.is_training & (own_us > 0)
        if not chosen.any():
            return
        process = self.processes.setdefault(events.steps[0].process, ProcessPace())
        blocks = steps.ends_us // BLOCK_US
        for block in np.unique(blocks[chosen]).tolist():
            part = chosen & (blocks == block)
            counts = (
                int(np.count_nonzero(part)),
                int((steps.durations_us + before_us)[part].sum()),
                int(own_us[part].sum()),
                int(wait_us[part].sum()),
            )
            process.whole.add(*counts)
            process.blocks.setdefault(block, Pace()).add(*counts)
        newest = max(process.blocks)
        process.blocks = {block: pace for block, pace in sorted(process.blocks.items()) if block > newest - BLOCKS}
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])


class _Steps(msgspec.Struct, frozen=True):
    """The N steps of an object in order of time, int64[N], and which of them train, bool[N]."""

    starts_us: IntArray
    ends_us: IntArray
    durations_us: IntArray
    is_training: BoolArray

    @classmethod
    def of(cls, events: FrameworkEvents) -> "_Steps":
        starts = np.concatenate([batch.starts_us for batch in events.steps])
        durations = np.concatenate([batch.durations_us for batch in events.steps])
        training = np.concatenate([np.full(len(batch.numbers), TRAIN in batch.mode) for batch in events.steps])
        order = np.argsort(starts + durations, kind="stable")
        return cls(starts[order], (starts + durations)[order], durations[order], training[order])

    def work(self, table: EventTable) -> tuple[IntArray, IntArray, IntArray]:
        """Return each step's own work, its waits for data, and those before it, microseconds, int64[N] each."""
        passes = [phase for phase in table.phases if class_of_phase(phase, table.kind) is EventClass.FORWARD] + [
            _OPTIMIZER
        ]
        asked = self._within(table, table.rows_in(passes))
        on_gpu = [phase for phase in table.phases if class_of_phase(phase, table.kind) is EventClass.GPU]
        rows = table.rows_in(on_gpu)
        named = [number for number, name in enumerate(table.names) if name in _ON_GPU]
        taken = self._within(table, rows[np.isin(table.name_index[rows], named)])
        waits, before = self._waits(table)
        return np.maximum(asked, taken) + waits, waits, before

    def _within(self, table: EventTable, rows: IntArray) -> IntArray:
        place = np.searchsorted(self.ends_us, table.starts_us[rows], side="right")
        inside = place < self.ends_us.size
        inside[inside] &= self.starts_us[place[inside]] <= table.starts_us[rows][inside]
        return self._sums(place[inside], table.self_us[rows][inside])

    def _waits(self, table: EventTable) -> tuple[IntArray, IntArray]:
        """Return the waits for data in each step with the last one before it, and that one alone."""
        rows = table.rows_in([_LOADER])
        place = np.searchsorted(self.ends_us, table.ends_us[rows], side="left")
        known = place < self.ends_us.size
        rows, place = rows[known], place[known]
        inside = table.starts_us[rows] >= self.starts_us[place]
        found = self._sums(place[inside], table.durations_us[rows][inside])
        before, steps = rows[~inside], place[~inside]
        order = np.argsort(table.ends_us[before], kind="stable")
        last = np.zeros(self.ends_us.size, dtype=np.int64)
        last[steps[order]] = table.durations_us[before][order]
        return found + last, last

    def _sums(self, place: IntArray, durations_us: IntArray) -> IntArray:
        sums = np.zeros(self.ends_us.size, dtype=np.int64)
        np.add.at(sums, place, durations_us)
        return sums
