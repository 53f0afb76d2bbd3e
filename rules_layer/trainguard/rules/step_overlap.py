"""What the framework does while steps are slow, against what it does in ordinary steps.

Each event's overlap with the steps of its own object counts, not its full length; of nested operators, the part that is
their own. An event in another object than the step, such as one of a Horovod timeline, is not compared.
"""

import msgspec
import numpy as np

from trainguard.rules.framework_classes import BY_NAME, EventClass, class_of_phase, classes_of
from trainguard.rules.time_table import OTHER, TimeTable, sum_by
from trainguard.telemetry.events import EventTable
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray
from trainguard.telemetry.steps import StepBatch

KEPT_EVENTS = 64
REPORTED_EVENTS = 16


class StepOverlap(msgspec.Struct, array_like=True):
    """Microseconds in slow and in ordinary steps: of the steps themselves, and of events by name or phase."""

    slow_step_us: int = 0
    ordinary_step_us: int = 0
    slow: TimeTable = msgspec.field(default_factory=TimeTable)
    ordinary: TimeTable = msgspec.field(default_factory=TimeTable)

    def fold(self, batch: StepBatch, skipped: int, is_slow: BoolArray, table: EventTable) -> None:
        """Add the events of an object during its steps; the first ``skipped`` steps are left out, ``is_slow`` the rest.

        ``is_slow`` is bool[N - skipped].
        """
        starts, ends = _disjoint(batch.starts_us[skipped:], batch.durations_us[skipped:])
        lengths = ends - starts
        self.slow_step_us += int(lengths[is_slow].sum())
        self.ordinary_step_us += int(lengths[~is_slow].sum())
        rows = np.flatnonzero(classes_of(table) != EventClass.STEP)
        if not rows.size:
            return
        names, index = _labels(table)
        own_share = table.self_us[rows] / np.maximum(table.durations_us[rows], 1)
        begin, end = table.starts_us[rows], table.ends_us[rows]
        for chosen, times in ((is_slow, self.slow), (~is_slow, self.ordinary)):
            if chosen.any():
                overlap = _overlap(begin, end, starts[chosen], ends[chosen])
                weighted = np.rint(overlap * own_share).astype(np.int64)
                times.add(*sum_by(names, index[rows], weighted), limit=KEPT_EVENTS)

    def most_grown(self) -> tuple[str, float, float] | None:
        """Return the event whose share of the time grows most in slow steps, and both shares in percent."""
        return next((row for row in self.compared() if row[1] > row[2]), None)

    def compared(self) -> list[tuple[str, float, float]]:
        """Return events with their share of slow and of ordinary steps, the largest difference first."""
        if not (self.slow_step_us and self.ordinary_step_us):
            return []
        slow, ordinary = _shares(self.slow, self.slow_step_us), _shares(self.ordinary, self.ordinary_step_us)
        rows = [(name, slow.get(name, 0.0), ordinary.get(name, 0.0)) for name in sorted({*slow, *ordinary} - {OTHER})]
        return sorted(rows, key=lambda row: -abs(row[1] - row[2]))[:REPORTED_EVENTS]


def _shares(times: TimeTable, steps_us: int) -> dict[str, float]:
    return {name: 100.0 * time_us / steps_us for name, time_us in times.top(KEPT_EVENTS).items()}


def _labels(table: EventTable) -> tuple[list[str], IntArray]:
    """Return names, and int64[N] rows of them: the event's own name for operators, its phase for the rest."""
    by_name = np.array([class_of_phase(phase, table.kind) in BY_NAME for phase in table.phases], dtype=np.bool_)
    index = np.where(by_name[table.phase_index], table.name_index, len(table.names) + table.phase_index)
    return [*table.names, *table.phases], index


def _disjoint(starts: IntArray, durations: IntArray) -> tuple[IntArray, IntArray]:
    """Return starts and ends of steps, cut so that none begins before the one before it ends."""
    reached = np.maximum.accumulate(starts + durations)
    begins = np.minimum(np.maximum(starts, np.concatenate((starts[:1], reached[:-1]))), reached)
    return begins, reached


def _overlap(begin: IntArray, end: IntArray, starts: IntArray, ends: IntArray) -> FloatArray:
    """Microseconds that each event (N) has in common with disjoint steps (M > 0, in order of time), float64[N]."""
    origin = starts[0]
    knots = np.stack((starts, ends), axis=1).ravel() - origin
    within = np.stack((np.zeros_like(starts), ends - starts), axis=1).ravel().cumsum()
    overlap: FloatArray = np.interp(end - origin, knots, within) - np.interp(begin - origin, knots, within)
    return overlap
