"""The streams of a rank's GPUs: when each is busy, why it is idle between, and how long its queue of launches is."""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Trace
from trainguard.kernels.entries import IdleEntry
from trainguard.kernels.intervals import Spans, clipped, merged
from trainguard.kernels.window import Window

KERNEL_WAIT_NS = 30_000
"""A gap of less than that between kernels that were already launched is the GPU's own."""

FULL_QUEUE = 1_024
"""So many launches wait in a stream's queue before the next one blocks the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream of a GPU: its number of rows in the window, and their metrics.

    From each ``time`` on (int64, rising), ``length`` launches wait in its queue.
    """

    device: int
    name: str
    count: int
    busy: Spans
    idle: IdleEntry
    time: Ints
    length: Ints

    def full(self, window: Window) -> Spans:
        """Return when the queue is full."""
        over = np.flatnonzero(self.length[:-1] >= FULL_QUEUE)
        return clipped(merged(self.time[over], self.time[over + 1]), window.start, window.end)

    def mean_queue(self, window: Window) -> float:
        """Return the mean over the window's time; 0 without time."""
        if not len(self.time) or not window.length:
            return 0.0
        edges = np.clip(self.time, window.start, window.end)
        return float((self.length[:-1] * np.diff(edges)).sum()) / window.length

    def longest_queues(self, edges: Ints) -> list[int]:
        """Return the longest queue between each edge and the next."""
        first = np.maximum(np.searchsorted(self.time, edges[:-1], side="right") - 1, 0)
        last = np.searchsorted(self.time, edges[1:], side="left")
        return [int(self.length[one:other].max()) if one < other else 0 for one, other in zip(first, last, strict=True)]


def streams_of(trace: Trace, window: Window, in_window: Bools) -> list[Stream]:
    """Return the streams with work in the window, the busiest first."""
    rows = trace.gpu.rows
    order = np.lexsort((rows.start, rows.lane, trace.gpu.device))
    found = []
    changes = np.flatnonzero(np.diff(rows.lane[order]) | np.diff(trace.gpu.device[order])) + 1
    for mine in np.split(order, changes):
        inside = mine[in_window[mine]]
        if len(inside):
            time, length = _queue(trace, window, mine)
            found.append(
                Stream(
                    device=int(trace.gpu.device[mine[0]]),
                    name=trace.names[int(rows.lane[mine[0]])],
                    count=len(inside),
                    busy=clipped(merged(rows.start[inside], rows.end[inside]), window.start, window.end),
                    idle=_idle(trace, window, inside),
                    time=time,
                    length=length,
                )
            )
    return sorted(found, key=lambda each: (-each.busy.total, each.device, each.name))


def _idle(trace: Trace, window: Window, mine: Ints) -> IdleEntry:
    """Return the gaps between a stream's rows, which are in order of their start, by cause.

    The host was late where the next row was launched after the last one had ended. Else a short gap is the GPU's own.
    """
    rows, launches = trace.gpu.rows, trace.launches
    before = np.maximum.accumulate(rows.end[mine])[:-1]
    gap = np.maximum(rows.start[mine][1:] - before, 0)
    launch = window.launch[mine][1:]
    launched = np.where(launch >= 0, launches.start[launch] if len(launches) else 0, -(1 << 62))
    late = launched > before
    short = ~late & (gap < KERNEL_WAIT_NS)
    return IdleEntry(
        host_wait_ns=int(gap[late].sum()),
        kernel_wait_ns=int(gap[short].sum()),
        other_ns=int(gap[~late & ~short].sum()),
    )


def _queue(trace: Trace, window: Window, mine: Ints) -> tuple[Ints, Ints]:
    """Return times and lengths of a stream's queue: a call is in it from its start to that of its first row."""
    known = mine[window.launch[mine] >= 0]
    calls, first = np.unique(window.launch[known], return_index=True)  # rows are in order of their start
    times = np.concatenate((trace.launches.start[calls], trace.gpu.rows.start[known][first]))
    change = np.concatenate((np.ones(len(calls), np.int64), np.full(len(calls), -1)))
    order = np.lexsort((change, times))
    return times[order], np.cumsum(change[order])
