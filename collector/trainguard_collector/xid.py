"""XID errors of an NVIDIA GPU: what its driver reports of faults, as events."""

from collections import Counter
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.metrics import Values

_MOST_EVENTS = 64
"""So many are taken at once; a GPU that fails sends more than anyone reads."""

_MOST_CODES = 16
_LOST = 15


class Xids:
    """Counts the events since the sampler started."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._events: Any = None
        self._newest = 0
        self._counts: Counter[int] = Counter()

    def read(self, _: float) -> Values:
        """Yield the newest XID, 0 before the first, and how often each one came."""
        if self._events is None:
            self._events = self._register()
        for _ in range(_MOST_EVENTS):
            xid = self._next()
            if xid is None:
                break
            self._newest = xid
            if xid in self._counts or len(self._counts) < _MOST_CODES:
                self._counts[xid] += 1
        yield "XID", "", float(self._newest)
        for xid, count in self._counts.items():
            yield f"XIDCount{xid}", "", float(count)

    def _register(self) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
        except Exception:
            with suppress(Exception):
                nvml.nvmlEventSetFree(events)
            raise
        return events

    def _next(self) -> Optional[int]:
        nvml = self._nvml
        try:
            return int(nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
        except nvml.NVMLError as fault:
            # A set says so of any lost GPU; which one it is, its own metrics say.
            if fault.value in (nvml.NVML_ERROR_TIMEOUT, _LOST):
                return None
            raise
