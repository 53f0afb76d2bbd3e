"""The ceiling on stops in memory."""

import threading

from trainguard.actions.ceiling import Stop, admit
from trainguard.adapters.memory.faults import Faults


class MemoryStopBudget:
    """Twin of DynamoStopBudget; thread-safe, its conditional write is atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._stops: dict[str, Stop] = {}

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        """Take one of ``limit`` stops within the hour before ``now``; False when none is left."""
        with self._faults.call("StopBudget.take"), self._lock:
            granted = admit(self._stops, fire_id, job, now=now, limit=limit)
            if granted is not None:
                self._stops = granted
            return granted is not None
