"""A training process's own work in each step.

Where a process does not say how long it waits for its peers, it is forward passes, waits for data and the optimizer: a
backward pass ends with everybody's gradients, so that the fastest process has the longest.
"""

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import EventTable
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.framework_events import EventClass, class_of_phase

PEER_WAIT = "peer_wait"
PARTS = ("data_wait", "forward", "backward", "optimizer")
_PHASES = {
    "data_wait": ("DataLoaderIter",),
    "forward": ("Forward-SubModuleInternal",),
    "backward": ("Backward-SubModuleInternal",),
    "optimizer": ("Optimizer",),
}
_ASIDE = ("Checkpoint", "Evaluation")
_PAUSE, _RARE = 4.0, 0.1
_LEAST = 0.05
# Who is late in fewer steps than the rest is late in turn with others, or pauses: a sum over few steps may hide it.
_SHORTER = 0.25


class OwnTime(msgspec.Struct, array_like=True):
    """Steps, and their microseconds: own, waits for peers, the least such waits; ``parts_us`` of own by `PARTS`.

    ``beyond_us`` is own work beyond that of as many short steps: of what a quarter of them take at most.
    """

    steps: int = 0
    own_us: int = 0
    peers_us: int = 0
    least_us: int = 0
    parts_us: list[int] = msgspec.field(default_factory=lambda: [0] * len(PARTS))
    beyond_us: int = 0

    def add(self, other: "OwnTime") -> None:
        self.steps += other.steps
        self.own_us += other.own_us
        self.peers_us += other.peers_us
        self.least_us += other.least_us
        self.parts_us = [held + more for held, more in zip(self.parts_us, other.parts_us, strict=True)]
        self.beyond_us += other.beyond_us


class OwnSteps:
    """Own time of N steps in the order of their ends; ``edges_us`` are the bounds of their periods, int64[N + 1]."""

    def __init__(self, table: EventTable, edges_us: IntArray, training: BoolArray) -> None:
        """Take ``training`` steps, bool[N]; others have periods of their own."""
        on_host, on_gpu = _bounds(table, table.rows_in([PEER_WAIT])), _bounds(table, _on_gpu(table, PEER_WAIT))
        self._edges, self._table = edges_us, table
        peers = np.maximum(self._in_steps(on_host), self._in_steps(on_gpu))
        aside = _bounds(table, table.rows_in(_ASIDE))
        set_aside = self._in_steps(np.concatenate([on_host, aside], axis=1)) - self._in_steps(on_host)
        taken = np.diff(edges_us) - set_aside
        self._peers, self._own = peers, np.maximum(taken - peers, 0.0)
        self._parts = np.stack([self._part(name, on_host, on_gpu) for name in PARTS])
        self.chosen = training & _usual(taken, training)
        self.chosen[:1] = False  # what came before it is in another object

    def _in_steps(self, bounds: IntArray) -> FloatArray:
        """Return how much of each step lies in stretches, int64[2, M], that may overlap: microseconds, float64[N]."""
        bounds = bounds[:, bounds[1] > bounds[0]]
        if not bounds.size:
            return np.zeros(len(self._edges) - 1)
        starts, ends = bounds[:, np.argsort(bounds[0], kind="stable")] - self._edges[0]
        reached = np.maximum.accumulate(ends)
        starts[1:] = np.maximum(starts[1:], reached[:-1])
        new = reached > starts
        knots = np.stack([starts[new], reached[new]], axis=1).ravel()
        lengths = np.diff(knots, prepend=knots[:1])
        lengths[::2] = 0
        covered = np.interp(self._edges - self._edges[0], knots, np.cumsum(lengths))
        inside: FloatArray = np.diff(covered)
        return inside

    def _part(self, name: str, waits_on_host: IntArray, waits_on_gpu: IntArray) -> FloatArray:
        """Return a part of each step without waits for peers, by the processor or the GPU, whichever has more of it."""
        found = np.zeros(len(self._edges) - 1)
        rows = self._table.rows_in(_PHASES[name])
        for bounds, waits in (
            (_bounds(self._table, rows), waits_on_host),
            (_bounds(self._table, _on_gpu(self._table, name)), waits_on_gpu),
        ):
            both = np.concatenate([bounds, waits], axis=1)
            found = np.maximum(found, self._in_steps(both) - self._in_steps(waits))
        return found

    def sums(self, of: BoolArray) -> OwnTime:
        """Return the sums over the chosen ones of steps, bool[N]."""
        used = self.chosen & of
        count = int(np.count_nonzero(used))
        if not count:
            return OwnTime()
        least = float(np.quantile(self._peers[used], _LEAST, method="lower"))
        return OwnTime(
            count,
            round(float(self._own[used].sum())),
            round(float(self._peers[used].sum())),
            round(least * count),
            [round(float(row[used].sum())) for row in self._parts],
            _beyond_us(self._own[used]),
        )


def _beyond_us(own: FloatArray | IntArray) -> int:
    return round(float(own.sum() - np.quantile(own, _SHORTER, method="lower") * own.size))


def _bounds(table: EventTable, rows: IntArray) -> IntArray:
    return np.stack([table.starts_us[rows], table.ends_us[rows]])


def _on_gpu(table: EventTable, *names: str) -> IntArray:
    phases = [phase for phase in table.phases if class_of_phase(phase, table.kind) is EventClass.GPU]
    rows = table.rows_in(phases)
    named = [number for number, each in enumerate(table.names) if each in names]
    found: IntArray = rows[np.isin(table.name_index[rows], named)]
    return found


def _usual(taken: FloatArray, training: BoolArray) -> BoolArray:
    """Return which steps are no pauses, bool[N]; none is one where they are not rare."""
    if not training.any():
        return training
    usual: BoolArray = taken <= _PAUSE * np.median(taken[training])
    is_rare = np.count_nonzero(training & ~usual) <= _RARE * np.count_nonzero(training)
    return usual if is_rare else np.ones_like(usual)


BLOCK_US, BLOCKS = 300_000_000, 12
MOST_PROCESSES = 256
TRAIN = "TRAIN"
_LOADER, _OPTIMIZER = "DataLoaderIter", "Optimizer"


class Pace(msgspec.Struct, array_like=True):
    """Steps and their time, microseconds: in all (with the wait before), own work, and waits for data in that.

    ``timed`` are those of which the waits for peers are known, ``beyond_us`` as in `OwnTime`.
    """

    steps: int = 0
    total_us: int = 0
    own_us: int = 0
    wait_us: int = 0
    timed: OwnTime = msgspec.field(default_factory=OwnTime)
    beyond_us: int = 0

    def add(self, other: "Pace") -> None:
        self.steps += other.steps
        self.total_us += other.total_us
        self.own_us += other.own_us
        self.wait_us += other.wait_us
        self.timed.add(other.timed)
        self.beyond_us += other.beyond_us


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
        timed = None
        if PEER_WAIT in table.phases:
            edges_us = np.maximum.accumulate(np.concatenate([(starts_us - before_us)[:1], ends_us]))
            timed = OwnSteps(table, edges_us, is_training)
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
                _beyond_us(own_us[part]),
            )
            process.whole.add(pace)
            process.blocks.setdefault(block, Pace()).add(pace)
        newest = max(process.blocks)
        process.blocks = {block: pace for block, pace in sorted(process.blocks.items()) if block > newest - BLOCKS}
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])


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

    forward = [phase for phase in table.phases if class_of_phase(phase, table.kind) is EventClass.FORWARD]
    asked = within(table.rows_in([*forward, _OPTIMIZER]))
    taken = within(_on_gpu(table, "forward", "optimizer"))
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
