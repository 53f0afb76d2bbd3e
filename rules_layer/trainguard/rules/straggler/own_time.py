"""What a process does itself in its steps, where it says how long it waits for its peers.

A step reaches from the end of the one before to its own end: all ranks have the same steps, whatever part is slow. Own
time is that without waits for peers, checkpoints and evaluation. Steps of over four times the usual length are pauses
of the whole job, where they are rare, and are left out.
"""

import msgspec
import numpy as np

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


class OwnTime(msgspec.Struct, array_like=True):
    """Steps, and their microseconds: own, waits for peers, the least such waits; ``parts_us`` of own by `PARTS`."""

    steps: int = 0
    own_us: int = 0
    peers_us: int = 0
    least_us: int = 0
    parts_us: list[int] = msgspec.field(default_factory=lambda: [0] * len(PARTS))

    def add(self, other: "OwnTime") -> None:
        self.steps += other.steps
        self.own_us += other.own_us
        self.peers_us += other.peers_us
        self.least_us += other.least_us
        self.parts_us = [held + more for held, more in zip(self.parts_us, other.parts_us, strict=True)]


class OwnSteps:
    """Own time of N steps in the order of their ends; ``edges_us`` are the bounds of their periods, int64[N + 1]."""

    def __init__(self, table: EventTable, edges_us: IntArray, training: BoolArray) -> None:
        """Take ``training`` steps, bool[N]; others have periods of their own."""
        on_host, on_gpu = self._waits(table)
        self._edges, self._table = edges_us, table
        peers = np.maximum(self._in_steps(on_host), self._in_steps(on_gpu))
        aside = _bounds(table, table.rows_in(_ASIDE))
        set_aside = self._in_steps(np.concatenate([on_host, aside], axis=1)) - self._in_steps(on_host)
        taken = np.diff(edges_us) - set_aside
        self._peers, self._own = peers, np.maximum(taken - peers, 0.0)
        self._parts = np.stack([self._part(name, on_host, on_gpu) for name in PARTS])
        self.chosen = training & _usual(taken, training)
        self.chosen[:1] = False  # what came before it is in another object

    @staticmethod
    def _waits(table: EventTable) -> tuple[IntArray, IntArray]:
        gpu = _on_gpu(table, PEER_WAIT)
        host = table.rows_in([PEER_WAIT])
        return _bounds(table, host), _bounds(table, gpu)

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
        )


def knows_waits(table: EventTable) -> bool:
    return PEER_WAIT in table.phases


def _bounds(table: EventTable, rows: IntArray) -> IntArray:
    return np.stack([table.starts_us[rows], table.ends_us[rows]])


def _on_gpu(table: EventTable, name: str) -> IntArray:
    phases = [phase for phase in table.phases if class_of_phase(phase, table.kind) is EventClass.GPU]
    rows = table.rows_in(phases)
    named = [number for number, each in enumerate(table.names) if each == name]
    found: IntArray = rows[np.isin(table.name_index[rows], named)]
    return found


def _usual(taken: FloatArray, training: BoolArray) -> BoolArray:
    """Return which steps are no pauses, bool[N]; none is one where they are not rare."""
    if not training.any():
        return training
    usual: BoolArray = taken <= _PAUSE * np.median(taken[training])
    is_rare = np.count_nonzero(training & ~usual) <= _RARE * np.count_nonzero(training)
    return usual if is_rare else np.ones_like(usual)
