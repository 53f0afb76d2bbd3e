"""A training process's own work in each step.

Where a process does not say how long it waits for its peers, it is forward passes, waits for data and the optimizer: a
backward pass ends with everybody's gradients, so that the fastest process has the longest.
"""

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import EventTable
from trainguard.formats.profile.snapshots import BoolArray, IntArray
from trainguard.rules.framework_events import EventClass, class_of_phase
from trainguard.rules.straggler.own_time import OwnSteps, OwnTime, knows_waits

BLOCK_US, BLOCKS = 300_000_000, 12
MOST_PROCESSES = 256
TRAIN = "TRAIN"
_LOADER, _OPTIMIZER = "DataLoaderIter", "Optimizer"
_ON_GPU = frozenset({"forward", "optimizer"})


class Pace(msgspec.Struct, array_like=True):
    """Steps and their time, microseconds: in all (with the wait before), own work, and waits for data in that.

    ``timed`` are those of which the waits for peers are known.
    """

    steps: int = 0
    total_us: int = 0
    own_us: int = 0
    wait_us: int = 0
    timed: OwnTime = msgspec.field(default_factory=OwnTime)

    def add(self, other: "Pace") -> None:
        self.steps += other.steps
        self.total_us += other.total_us
        self.own_us += other.own_us
        self.wait_us += other.wait_us
        self.timed.add(other.timed)


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
        starts_us = np.concatenate([batch.starts_us for batch in events.steps])
        durations_us = np.concatenate([batch.durations_us for batch in events.steps])
        is_training = np.concatenate([np.full(len(batch.numbers), TRAIN in batch.mode) for batch in events.steps])
        order = np.argsort(starts_us + durations_us, kind="stable")
        starts_us, durations_us = starts_us[order], durations_us[order]
        ends_us = starts_us + durations_us
        own_us, wait_us, before_us = _work(starts_us, ends_us, table)
        is_training = is_training[order]
        timed = _timed(table, starts_us - before_us, ends_us, is_training)
        chosen = is_training & ((own_us > 0) | (timed is not None))
        if not chosen.any():
            return
        process = self.processes.setdefault(events.steps[0].process, ProcessPace())
        blocks = ends_us // BLOCK_US
        for block in np.unique(blocks[chosen]).tolist():
            part = chosen & (blocks == block)
            pace = Pace(
                int(np.count_nonzero(part)),
                int((durations_us + before_us)[part].sum()),
                int(own_us[part].sum()),
                int(wait_us[part].sum()),
                OwnTime() if timed is None else timed.sums(part),
            )
            process.whole.add(pace)
            process.blocks.setdefault(block, Pace()).add(pace)
        newest = max(process.blocks)
        process.blocks = {block: pace for block, pace in sorted(process.blocks.items()) if block > newest - BLOCKS}
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])


def _timed(table: EventTable, starts_us: IntArray, ends_us: IntArray, training: BoolArray) -> OwnSteps | None:
    if not knows_waits(table):
        return None
    edges_us = np.maximum.accumulate(np.concatenate([starts_us[:1], ends_us]))
    return OwnSteps(table, edges_us, training)


def _work(starts_us: IntArray, ends_us: IntArray, table: EventTable) -> tuple[IntArray, IntArray, IntArray]:
    """Return the own work of steps (int64[N], in order of time), their waits for data, and those before them.

    In microseconds, int64[N] each. What lies before a step is the last wait before it, and counts in the second, too.
    """

    def sums(place: IntArray, durations_us: IntArray) -> IntArray:
        total = np.zeros(ends_us.size, dtype=np.int64)
        np.add.at(total, place, durations_us)
        return total

    def within(rows: IntArray) -> IntArray:
        place = np.searchsorted(ends_us, table.starts_us[rows], side="right")
        inside = place < ends_us.size
        inside[inside] &= starts_us[place[inside]] <= table.starts_us[rows][inside]
        return sums(place[inside], table.self_us[rows][inside])

    classes = {phase: class_of_phase(phase, table.kind) for phase in table.phases}
    asked = within(table.rows_in([*(phase for phase in classes if classes[phase] is EventClass.FORWARD), _OPTIMIZER]))
    rows = table.rows_in([phase for phase in classes if classes[phase] is EventClass.GPU])
    named = [number for number, name in enumerate(table.names) if name in _ON_GPU]
    taken = within(rows[np.isin(table.name_index[rows], named)])
    rows = table.rows_in([_LOADER])
    place = np.searchsorted(ends_us, table.ends_us[rows], side="left")
    known = place < ends_us.size
    rows, place = rows[known], place[known]
    inside = table.starts_us[rows] >= starts_us[place]
    before, steps = rows[~inside], place[~inside]
    order = np.argsort(table.ends_us[before], kind="stable")
    last = np.zeros(ends_us.size, dtype=np.int64)
    last[steps[order]] = table.durations_us[before][order]
    waits = sums(place[inside], table.durations_us[rows][inside]) + last
    return np.maximum(asked, taken) + waits, waits, last
