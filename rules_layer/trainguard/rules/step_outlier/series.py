"""State of a node's steps: one series for each process and mode, all of it bounded.

What is dropped is chosen by name or time, not by arrival: the state is a function of the set of steps.
"""

import math
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.framework_events import BY_NAME, OTHER, EventClass, TimeTable, class_of_phase, classes_of, sum_by
from trainguard.state.histogram import MAX_DURATION_US, DurationHistogram

KEPT_EVENTS = 64
REPORTED_EVENTS = 16


class StepOverlap(msgspec.Struct, array_like=True):
    """Microseconds in slow and in ordinary steps: of the steps themselves, and of events by name or phase."""

    slow_step_us: int = 0
    ordinary_step_us: int = 0
    slow: TimeTable = msgspec.field(default_factory=TimeTable)
    ordinary: TimeTable = msgspec.field(default_factory=TimeTable)

    def fold(self, batch: StepBatch, skipped: int, is_slow: BoolArray, table: EventTable) -> None:
        """Add an object's events during its steps but the first ``skipped``; ``is_slow`` is bool[N - skipped]."""
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


# Steps at a process's start that are left out: compilation, autotuning, cold caches.
WARM_UP_STEPS = 100

MAX_SERIES = 128
MAX_REFUSED = 256
MAX_BINS = 8_192
MAX_BINS_OF_A_SERIES = 256
KEPT_SLOW_STEPS = 32
MAX_NUMBER_LENGTH = 20
# Slow steps that lie further apart are no part of one time of slow steps.
SLOW_APART_US = 5_400_000_000
# Sums of squares outgrow the 64 bits of MessagePack's integers and are kept in two parts.
SQUARES_BASE = 2**62


class SlowStep(msgspec.Struct, array_like=True, order=True):
    """One slow step: epoch microseconds, microseconds, ``step_num`` as the framework wrote it."""

    start_us: int
    duration_us: int
    number: str


class StepSeries(msgspec.Struct, array_like=True):
    """Steps of one process in one mode; ``steps`` and later fields leave out the ``dropped`` ones, and the newest.

    A step counts once another one has followed it: the last one of a job that hangs never ends, and is no slow step.
    ``first_us`` and ``last_us`` are epoch microseconds. ``slow_since_us`` is the first slow step of a row with gaps of
    at most 90 min, ``slow_last_us`` the newest; None and 0 before the first.
    """

    process: str
    mode: str
    dropped: int = 0
    steps: int = 0
    total_us: int = 0
    squares_high: int = 0
    squares_low: int = 0
    shortest_us: int = 0
    longest_us: int = 0
    durations: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    slow: list[SlowStep] = msgspec.field(default_factory=list)
    newest: SlowStep | None = None
    first_us: int | None = None
    last_us: int = 0
    slow_since_us: int | None = None
    slow_last_us: int = 0

    @property
    def seen(self) -> int:
        """Steps that were seen, the newest included."""
        return self.steps + (self.newest is not None)

    def ended(self, batch: StepBatch, skipped: int) -> StepBatch:
        """Return the steps that another one has followed: the newest so far, and those of ``batch`` but its last."""
        held = [] if self.newest is None else [self.newest]
        starts = np.array([*(step.start_us for step in held), *batch.starts_us[skipped:].tolist()], dtype=np.int64)
        lengths = np.array(
            [*(step.duration_us for step in held), *batch.durations_us[skipped:].tolist()], dtype=np.int64
        )
        numbers = (*(step.number for step in held), *batch.numbers[skipped:])
        self.newest = SlowStep(int(starts[-1]), int(lengths[-1]), numbers[-1][:MAX_NUMBER_LENGTH])
        ended = StepBatch(batch.process, batch.mode, starts[:-1], lengths[:-1], numbers[:-1])
        if ended.numbers:
            first, last = int(ended.starts_us.min()), int((ended.starts_us + ended.durations_us).max())
            self.first_us = first if self.first_us is None else min(first, self.first_us)
            self.last_us = max(last, self.last_us)
        return ended

    @property
    def mean_us(self) -> float:
        """Mean duration; the series must have a step."""
        return self.total_us / self.steps

    @property
    def deviation_us(self) -> float:
        """Population standard deviation, from exact sums: sqrt(n * sum(d^2) - sum(d)^2) / n."""
        squares = self.squares_high * SQUARES_BASE + self.squares_low
        return math.sqrt(self.steps * squares - self.total_us**2) / self.steps

    def add(self, durations_us: Sequence[int]) -> None:
        """Count steps (microseconds, 0 to MAX_DURATION_US) of which at least one is given."""
        self.shortest_us = min(durations_us) if not self.steps else min(self.shortest_us, *durations_us)
        self.longest_us = max(self.longest_us, *durations_us)
        self.steps += len(durations_us)
        self.total_us += sum(durations_us)
        squares = self.squares_low + sum(duration * duration for duration in durations_us)
        self.squares_high += squares // SQUARES_BASE
        self.squares_low = squares % SQUARES_BASE
        self.durations.add(np.array(durations_us, dtype=np.int64))

    def note_slow(self, starts_us: IntArray) -> None:
        """Note slow steps, int64[N], epoch microseconds in order of time."""
        if not starts_us.size:
            return
        before = starts_us[0] if self.slow_since_us is None else self.slow_last_us
        first = np.flatnonzero(np.diff(starts_us, prepend=before) > SLOW_APART_US)
        if first.size or self.slow_since_us is None:
            self.slow_since_us = int(starts_us[first[-1] if first.size else 0])
        self.slow_last_us = int(starts_us[-1])

    def slow_above_us(self, stddev: float) -> float:
        """Duration over which a step counts as slow for the report: twice the median, or an outlier if that is less."""
        return min(2.0 * self.durations.quantile(0.5), self.mean_us + stddev * self.deviation_us)


class StepsState(msgspec.Struct, array_like=True):
    """Series in the order of process and mode.

    At most MAX_SERIES are judged, the first by name. ``refused`` holds hashes of the others (at most MAX_REFUSED),
    ``steps_not_judged`` counts their steps.
    """

    series: list[StepSeries] = msgspec.field(default_factory=list)
    refused: list[int] = msgspec.field(default_factory=list)
    steps_not_judged: int = 0
    overlap: StepOverlap = msgspec.field(default_factory=StepOverlap)

    def fold(self, batch: StepBatch, stddev: float, table: EventTable) -> None:
        """Add the steps of one object, in their order, and what its events in ``table`` have in common with them."""
        series = self._series_of(batch)
        if series is None:
            self.steps_not_judged += len(batch.numbers)
            return
        skipped = min(WARM_UP_STEPS - series.dropped, len(batch.numbers))
        series.dropped += skipped
        if skipped == len(batch.numbers):
            return
        ended = series.ended(batch, skipped)
        lengths = np.clip(ended.durations_us, 0, MAX_DURATION_US)
        if lengths.size:
            series.add(lengths.tolist())
            series.durations.limit(self._bins_of_a_series())
        if self.refused or series.steps <= WARM_UP_STEPS:
            return
        above_us = series.slow_above_us(stddev)
        if len(table):
            self.overlap.fold(batch, skipped, batch.durations_us[skipped:] > above_us, table)
        slow = np.flatnonzero(lengths > above_us)
        series.note_slow(ended.starts_us[slow])
        series.slow += [
            SlowStep(
                int(ended.starts_us[index]), int(ended.durations_us[index]), ended.numbers[index][:MAX_NUMBER_LENGTH]
            )
            for index in slow[-KEPT_SLOW_STEPS:].tolist()
        ]
        ranked = sorted((step, rank) for rank, each in enumerate(self.series) for step in each.slow)
        for rank, each in enumerate(self.series):
            each.slow = [step for step, owner in ranked[-KEPT_SLOW_STEPS:] if owner == rank]

    def _series_of(self, batch: StepBatch) -> StepSeries | None:
        for series in self.series:
            if (series.process, series.mode) == (batch.process, batch.mode):
                return series
        sandboxed = StepSeries(batch.process, batch.mode)
        self.series = sorted([*self.series, sandboxed], key=lambda series: (series.process, series.mode))
        if len(self.series) > MAX_SERIES:
            evicted = self.series.pop()
            self._refuse(evicted)
            if evicted is sandboxed:
                return None
        for series in self.series:
            series.durations.limit(self._bins_of_a_series())
        return sandboxed

    def _refuse(self, series: StepSeries) -> None:
        """Count a series without a place; slow steps are given up too, since which were seen depends on arrival."""
        self.steps_not_judged += series.dropped + series.seen
        name = zlib.crc32(f"{series.process} {series.mode}".encode())
        self.refused = sorted({*self.refused, name})[:MAX_REFUSED]
        self.overlap = StepOverlap()
        for kept in self.series:
            kept.slow, kept.slow_since_us, kept.slow_last_us = [], None, 0

    def _bins_of_a_series(self) -> int:
        return min(MAX_BINS_OF_A_SERIES, MAX_BINS // len(self.series))
