"""What the framework did in each of the newest 30 minutes of event time, for the question of what goes with a fault."""

import msgspec
import numpy as np

from trainguard.rules.framework_classes import CLASS_LABELS
from trainguard.rules.framework_loop import ProcessLoop
from trainguard.rules.time_table import TimeTable, sum_by
from trainguard.telemetry.events import EventTable
from trainguard.telemetry.snapshots import IntArray

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
