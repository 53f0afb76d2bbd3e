"""Classes of framework events, times by name in bounded room, the training loop of each process, and minutes of a node.

Of names the largest are kept, the rest as one sum. Source: the managed rules' order of phases and file kinds. Timelines
of Horovod and SMDataParallel go by their file, so that a tensor whose name says "gpu" is no GPU operator.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.formats.profile.snapshots import IntArray


class EventClass(IntEnum):
    """Classes of events, in stored order."""

    CPU = 0
    GPU = 1
    STEP = 2
    FORWARD = 3
    BACKWARD = 4
    GENERAL = 5
    HOROVOD = 6
    SMDATAPARALLEL = 7


CLASS_LABELS = (
    "CPU operators",
    "GPU operators",
    "steps",
    "forward pass",
    "backward pass",
    "general",
    "Horovod",
    "SMDataParallel",
)

BY_NAME = frozenset({EventClass.CPU, EventClass.GPU, EventClass.HOROVOD, EventClass.SMDATAPARALLEL})

_PASSES = {"Forward-SubModuleInternal": EventClass.FORWARD, "Backward-SubModuleInternal": EventClass.BACKWARD}

_FILES = {"horovod_timeline": EventClass.HOROVOD, "smdataparallel_timeline": EventClass.SMDATAPARALLEL}


def class_of_phase(phase: str, kind: str) -> EventClass:
    """Return the class of the events of a phase in a file of some kind; the first that fits."""
    if kind in _FILES:
        return _FILES[kind]
    lowered = phase.lower()
    if "cpu" in lowered:
        return EventClass.CPU
    if "gpu" in lowered:
        return EventClass.GPU
    if "Step" in phase:
        return EventClass.STEP
    return _PASSES.get(phase, EventClass.GENERAL)


def classes_of(table: EventTable) -> IntArray:
    """Return the EventClass of each event, int64[N]."""
    classes = [int(class_of_phase(phase, table.kind)) for phase in table.phases]
    return np.array(classes, dtype=np.int64)[table.phase_index]


OTHER = "other"


class TimeTable(msgspec.Struct, array_like=True):
    """Microseconds by name, ascending by name; ``other_us`` is the time of all names that had no place."""

    names: list[str] = msgspec.field(default_factory=list)
    times_us: list[int] = msgspec.field(default_factory=list)
    other_us: int = 0

    @property
    def total_us(self) -> int:
        return sum(self.times_us) + self.other_us

    def add(self, names: Sequence[str], times_us: Sequence[int], *, limit: int) -> None:
        """Add times (> 0) of names; afterwards at most ``limit`` names are kept, those with the most time."""
        if not names:
            return
        totals = dict(zip(self.names, self.times_us, strict=True))
        for name, time_us in zip(names, times_us, strict=True):
            if name == OTHER:
                self.other_us += time_us
            else:
                totals[name] = totals.get(name, 0) + time_us
        kept = sorted(totals, key=lambda name: (-totals[name], name))[:limit]
        self.other_us += sum(totals.values()) - sum(totals[name] for name in kept)
        self.names = sorted(kept)
        self.times_us = [totals[name] for name in self.names]

    def top(self, count: int) -> dict[str, int]:
        """Microseconds of the ``count`` names with the most time, most first, and of ``other`` where there are more."""
        pairs = zip(self.names, self.times_us, strict=True)
        ranked = sorted(pairs, key=lambda pair: -pair[1])
        rest = sum(time_us for _, time_us in ranked[count:]) + self.other_us
        return {**dict(ranked[:count]), **({OTHER: rest} if rest else {})}


def sum_by(names: Sequence[str], index: IntArray, times_us: IntArray) -> tuple[list[str], list[int]]:
    """Sum times (int64[N], microseconds) by name, of which ``index`` (int64[N]) are rows; leave out names without."""
    sums = np.bincount(index, weights=times_us, minlength=len(names))
    rows = np.flatnonzero(sums >= 1.0).tolist()
    return [names[row] for row in rows], [int(sums[row]) for row in rows]


def percentages(times_us: dict[str, int]) -> dict[str, float]:
    total = sum(times_us.values())
    return {name: 100.0 * time_us / total for name, time_us in times_us.items()} if total else {}


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


class OfProcess(Protocol):
    process: str


Known = TypeVar("Known", bound=OfProcess)


def admitted(known: list[Known], process: str, new: Callable[[str], Known]) -> Known | None:
    """Find or admit a process; None when a node already has MAX_PROCESSES."""
    found = next((each for each in known if each.process == process), None)
    if found is None and len(known) < MAX_PROCESSES:
        found = new(process)
        known.append(found)
    return found


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
        sums = np.bincount(classes[within], weights=times, minlength=len(CLASS_LABELS)).astype(np.int64).tolist()
        profile.classes_us = [before + added for before, added in zip(profile.classes_us, sums, strict=True)]
        profile.phases.add(*sum_by(table.phases, table.phase_index[within], times), limit=PHASES_OF_A_MINUTE)
        if loop is not None and loop.last_minute < minute:
            loop.last_minute = minute
            profile.processes += 1
    return [by_minute[minute] for minute in sorted(by_minute)]
