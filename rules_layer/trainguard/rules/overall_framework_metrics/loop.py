"""The training loop of each process of a node, and what the framework did in each of the newest 30 minutes of it."""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.formats.profile.snapshots import IntArray
from trainguard.rules.framework_events import CLASS_LABELS, TimeTable, sum_by

MAX_PROCESSES = 128


class ProcessLoop(msgspec.Struct, array_like=True):
    """One process; times in epoch microseconds, ``last_minute`` the newest epoch minute in which it had an event."""

    process: str
    first_us: int | None = None
    last_us: int = 0
    covered_us: int = 0
    last_minute: int = 0

    @property
    def wall_us(self) -> int:
        """First step's start to last step's end, microseconds."""
        return 0 if self.first_us is None else self.last_us - self.first_us

    @property
    def others_us(self) -> int:
        """Part of the wall time in which no step ran, microseconds."""
        return max(self.wall_us - self.covered_us, 0)

    def fold(self, batches: Sequence[StepBatch]) -> None:
        """Add the steps of the process's next object; what overlaps in time counts once."""
        if not batches:
            return
        starts = np.concatenate([batch.starts_us for batch in batches])
        ends = starts + np.concatenate([batch.durations_us for batch in batches])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        reached = np.maximum.accumulate(np.concatenate(([self.last_us], ends)))
        self.covered_us += int(np.maximum(ends - np.maximum(starts, reached[:-1]), 0).sum())
        first = int(starts[0])
        self.first_us = first if self.first_us is None else min(first, self.first_us)
        self.last_us = int(reached[-1])


def loop_of(loops: list[ProcessLoop], process: str) -> ProcessLoop | None:
    """Find or admit a process; None when a node already has MAX_PROCESSES."""
    for loop in loops:
        if loop.process == process:
            return loop
    if len(loops) == MAX_PROCESSES:
        return None
    loops.append(ProcessLoop(process))
    return loops[-1]


RECENT_MINUTES = 30
PHASES_OF_A_MINUTE = 8
MINUTE_US = 60_000_000


class MinuteProfile(msgspec.Struct, array_like=True):
    """One epoch minute of a node: how many processes had events, microseconds by class, and of the largest phases."""

    minute: int
    processes: int = 0
    classes_us: list[int] = msgspec.field(default_factory=lambda: [0] * len(CLASS_LABELS))
    phases: TimeTable = msgspec.field(default_factory=TimeTable)


def fold_minutes(
    minutes: list[MinuteProfile], loop: ProcessLoop | None, table: EventTable, classes: IntArray
) -> list[MinuteProfile]:
    """Add the part that each event (``classes`` int64[N]) has in each minute; return the newest minutes, in order."""
    starts, ends = table.starts_us, table.ends_us
    last = int((ends.max() - 1) // MINUTE_US)
    floor = max([last, *(profile.minute for profile in minutes)]) - RECENT_MINUTES + 1
    by_minute = {profile.minute: profile for profile in minutes if profile.minute >= floor}
    own_share = table.self_us / np.maximum(table.durations_us, 1)
    first = max(int(starts.min() // MINUTE_US), floor)
    for minute in range(first, last + 1):
        lower = minute * MINUTE_US
        overlap = np.minimum(ends, lower + MINUTE_US) - np.maximum(starts, lower)
        within = np.flatnonzero(overlap > 0)
        if not within.size:
            continue
        profile = by_minute.setdefault(minute, MinuteProfile(minute))
        times = np.rint(overlap[within] * own_share[within]).astype(np.int64)
        _add(profile, table, classes[within], within, times)
        if loop is not None and loop.last_minute < minute:
            loop.last_minute = minute
            profile.processes += 1
    return [by_minute[minute] for minute in sorted(by_minute)]


def _add(profile: MinuteProfile, table: EventTable, classes: IntArray, rows: IntArray, times: IntArray) -> None:
    sums = np.bincount(classes, weights=times, minlength=len(CLASS_LABELS)).astype(np.int64).tolist()
    profile.classes_us = [before + added for before, added in zip(profile.classes_us, sums, strict=True)]
    names, totals = sum_by(table.phases, table.phase_index[rows], times)
    profile.phases.add(names, totals, limit=PHASES_OF_A_MINUTE)
