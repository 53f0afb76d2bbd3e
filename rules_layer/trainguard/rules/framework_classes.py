"""What kind of work an event of the framework is, from its phase and the kind of its file.

Source: the ladder by which the managed rules sort framework events. Timelines of Horovod and SMDataParallel are known
by their file here, so that a tensor whose name says "gpu" is no GPU operator.
"""

from enum import IntEnum

import numpy as np

from trainguard.telemetry.events import EventTable
from trainguard.telemetry.snapshots import IntArray


class EventClass(IntEnum):
    """Classes of events, in the order in which they are stored."""

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
"""Classes whose events are told apart by their own name; those of the others by their phase."""

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
