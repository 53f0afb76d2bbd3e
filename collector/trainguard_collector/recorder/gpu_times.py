"""How long phases took on the GPU.

Nothing waits for the GPU: events are read in a later step. Their time follows from an anchor: no event happens before
the processor asked for it, so the latest such bound is the anchor's time.
"""

from collections import deque
from typing import Any, NamedTuple, Optional

from trainguard_collector.recorder.harmless import module
from trainguard_collector.recorder.timeline import EventLog

MOST_PENDING = 1_024
# 32-bit floats in milliseconds are coarser than 4 microseconds farther from the anchor.
NEW_ANCHOR_MS = 30_000.0

_MOST_PER_POLL = 64


class Mark(NamedTuple):
    """An event on the current stream, and when the processor asked for it (nanoseconds, monotonic)."""

    event: Any
    at_ns: int


class GpuTimes:
    def __init__(self, cuda: Any, log: EventLog) -> None:
        self._cuda, self._log = cuda, log
        self._label = f"GPU-functions-dev:{cuda.current_device()}"
        self._free: list[Any] = []
        self._pending: deque[tuple[str, Mark, Mark]] = deque()
        self._anchor: Optional[Any] = None
        self._anchor_ns = 0
        self.dropped = 0

    def mark(self, at_ns: int) -> Optional[Mark]:
        """Record an event; None while a CUDA graph is captured, and when too many wait to be read."""
        if len(self._pending) >= MOST_PENDING or self._cuda.is_current_stream_capturing():
            self.dropped += 1
            return None
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return Mark(event, at_ns)

    def span(self, name: str, first: Optional[Mark], last: Optional[Mark]) -> None:
        """Take what lies between two marks as the time of a phase."""
        if first is not None and last is not None:
            self._pending.append((name, first, last))

    def poll(self) -> None:
        """Read the spans that the GPU has finished, a bounded number."""
        for _ in range(_MOST_PER_POLL):
            if not self._pending or not self._pending[0][2].event.query():
                return
            self._read(*self._pending.popleft())

    def _read(self, name: str, first: Mark, last: Mark) -> None:
        if self._anchor is None:
            self._anchor, self._anchor_ns = first.event, first.at_ns
            after_ms = 0.0
        else:
            after_ms = self._anchor.elapsed_time(first.event)
            self._anchor_ns = max(self._anchor_ns, first.at_ns - round(after_ms * 1e6))
        began_ns = self._anchor_ns + round(after_ms * 1e6)
        ended_ns = began_ns + round(first.event.elapsed_time(last.event) * 1e6)
        self._log.add((self._label, name, began_ns, ended_ns, "", 0))
        self._free.append(last.event)
        if after_ms > NEW_ANCHOR_MS:
            self._free.append(self._anchor)
            self._anchor, self._anchor_ns = first.event, began_ns
        elif first.event is not self._anchor:
            self._free.append(first.event)


def gpu_times(log: EventLog) -> Optional[GpuTimes]:
    """Return the times of this process's GPU; None where it uses none through torch."""
    torch = module("torch")
    cuda = getattr(torch, "cuda", None)
    return GpuTimes(cuda, log) if cuda is not None and cuda.is_initialized() else None
