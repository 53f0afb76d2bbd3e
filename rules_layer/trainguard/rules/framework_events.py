"""Classes of framework events, and times by name in bounded room: the largest by name, the rest as one sum.

Source: the managed rules' order of phases and file kinds. Timelines of Horovod and SMDataParallel go by their file, so
that a tensor whose name says "gpu" is no GPU operator.
"""

from collections.abc import Sequence
from enum import IntEnum

import msgspec
import numpy as np

from trainguard.formats.profile.events import EventTable
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

_PASSES = {
    "Forward-SubModuleInternal": EventClass.FORWARD,
    "Backward-SubModuleInternal": EventClass.BACKWARD,
}

_FILES = {
    "horovod_timeline": EventClass.HOROVOD,
    "smdataparallel_timeline": EventClass.SMDATAPARALLEL,
}


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
        """Time of all names."""
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
    """Shares of the sum in percent."""
    total = sum(times_us.values())
    return {name: 100.0 * time_us / total for name, time_us in times_us.items()} if total else {}
