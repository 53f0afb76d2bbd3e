"""Each GPU of a trace on its own: when it computes, communicates and copies, and why it is idle.

A gap ends with the GPU's next row. Until the call that launched it ends (until it starts, where the call waits for its
own work), the GPU waits for the host, or for the loader while the host waits for data; from then on for something else.
What lost work may fill is idle for no known reason. Each stream has its own gaps by cause, and the length of its queue
of launches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trainguard.kernels.columns import Bools, Floats, Ints, Numbers, Trace, WorkKind
from trainguard.kernels.entries import IdleEntry
from trainguard.kernels.times.intervals import Spans, clipped, difference, gaps, intersection, merged, union
from trainguard.kernels.times.lost import Lost
from trainguard.kernels.times.window import TraceWindow

# Of the work of the busiest GPU; one with less is used by the way, as for a context, and is no part of the mean.
LEAST_SHARE = 0.01


# Stretches of a `TraceGpuTime` that a rule may explain.
GpuPart = Literal["surely_idle", "waits_for_loader", "waits_for_host", "communication_alone", "memory_alone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGpuTime:
    """Stretches of one GPU in the window; ``counted`` says whether the rank's mean has it.

    ``overlap_ns`` is time in which it computes and communicates, ``exposed_memory_ns`` that with copies or sets alone.
    ``waits_for_loader``, ``waits_for_host`` and ``waits_for_other`` are all of its idle time, by cause. In ``unknown``,
    a part of the last, it may have done work that the trace lost.
    """

    number: int
    counted: bool
    compute: Spans
    communication: Spans
    memcpy: Spans
    memset: Spans
    memory: Spans
    kernels: Spans
    busy: Spans
    overlap_ns: int
    exposed_memory_ns: int
    waits_for_loader: Spans
    waits_for_host: Spans
    waits_for_other: Spans
    unknown: Spans

    @property
    def surely_idle(self) -> Spans:
        return difference(self.idle, self.unknown)

    @property
    def idle(self) -> Spans:
        return union(self.waits_for_loader, self.waits_for_host, self.waits_for_other)

    @property
    def communication_alone(self) -> Spans:
        return difference(self.communication, self.compute)

    @property
    def memory_alone(self) -> Spans:
        return difference(self.memory, self.kernels)

    @property
    def exposed_communication_ns(self) -> int:
        return self.communication.total - self.overlap_ns


def gpu_times(
    trace: Trace, window: TraceWindow, in_window: Bools, loading: Spans, waiting: Bools, lost: Lost
) -> list[TraceGpuTime]:
    """Return the GPUs with work in the window, by number.

    In ``loading`` the host waits for the data loader; ``waiting`` are its calls that wait for the GPU.
    """
    numbers = np.unique(trace.gpu.device[in_window]).tolist()
    found = [_gpu(trace, window, in_window, number, loading, waiting, lost) for number in numbers]
    most = max((each.busy.total for each in found), default=0)
    return [replace(each, counted=each.busy.total >= LEAST_SHARE * most) for each in found]


def mean_ns(gpus: Sequence[TraceGpuTime], part: Callable[[TraceGpuTime], int]) -> int:
    """Return the mean of a part over the GPUs that count, rounded down; 0 without one."""
    values = [part(gpu) for gpu in gpus if gpu.counted]
    return sum(values) // len(values) if values else 0


def mean_within(gpus: Sequence[TraceGpuTime], part: GpuPart, start: Ints, end: Ints) -> Floats:
    """Return the mean time of a part in each stretch, over the GPUs that count."""
    found = [getattr(gpu, part).within(start, end) for gpu in gpus if gpu.counted]
    return np.mean(found, axis=0) if found else np.zeros(len(start))


def busy_shares(gpus: Sequence[TraceGpuTime], edges: Ints) -> Floats:
    """Return the mean busy share of the GPUs that count, in each part between edges."""
    lasted = np.diff(edges)
    shares = [gpu.busy.within(edges[:-1], edges[1:]) / lasted for gpu in gpus if gpu.counted]
    return np.mean(shares, axis=0) if shares else np.zeros(len(lasted))


def breakdown(classes: Mapping[str, Spans], start: Ints, end: Ints) -> dict[str, Ints]:
    """Return the time of each class in stretches; each moment counts for the first class that has it."""
    parts: dict[str, Ints] = {}
    taken = Spans(start[:0], start[:0])
    before = np.zeros(len(start), dtype=np.int64)
    for name, spans in classes.items():
        taken = union(taken, spans)
        until = taken.within(start, end)
        parts[name] = until - before
        before = until
    return parts


def _gpu(
    trace: Trace, window: TraceWindow, in_window: Bools, number: int, loading: Spans, waiting: Bools, lost: Lost
) -> TraceGpuTime:
    rows, kind = trace.gpu, trace.gpu.kind
    mine = in_window & (rows.device == number)

    def spans(mask: Bools) -> Spans:
        chosen = mine & mask
        return clipped(merged(rows.start[chosen], rows.end[chosen]), window.start, window.end)

    compute, communication = spans(kind == WorkKind.COMPUTE), spans(kind == WorkKind.COMMUNICATION)
    memcpy, memset = spans(kind == WorkKind.MEMCPY), spans(kind == WorkKind.MEMSET)
    memory = union(memcpy, memset)
    kernels = union(compute, communication)
    busy = union(kernels, memory)
    idle = gaps(busy, window.start, window.end)
    unknown = _lost_idle(trace, window, number, idle, lost)
    until_launch, unsaid = until_launched(trace, window, trace.gpu.device == number, idle, waiting)
    # Where the launch of the next work is unknown, a wait for data still explains the gap, and nothing else does.
    explained = difference(union(until_launch, unsaid), unknown)
    waits_for_loader = intersection(loading, explained)
    waits_for_host = difference(difference(until_launch, unknown), waits_for_loader)
    return TraceGpuTime(
        number=number,
        counted=True,
        compute=compute,
        communication=communication,
        memcpy=memcpy,
        memset=memset,
        memory=memory,
        kernels=kernels,
        busy=busy,
        overlap_ns=intersection(compute, communication).total,
        exposed_memory_ns=busy.total - kernels.total,
        waits_for_loader=waits_for_loader,
        waits_for_host=waits_for_host,
        waits_for_other=difference(idle, union(waits_for_loader, waits_for_host)),
        unknown=unknown,
    )


def until_launched(trace: Trace, window: TraceWindow, rows: Bools, idle: Spans, waiting: Bools) -> tuple[Spans, Spans]:
    """Return gaps between some rows up to the launch of the next one, and those of which nothing says when it was."""
    mine = np.flatnonzero(rows)
    mine = mine[np.argsort(trace.gpu.start[mine], kind="stable")]
    place = np.searchsorted(trace.gpu.start[mine], idle.end, side="left")
    follows = place < len(mine)
    launch = np.full(len(idle.end), -1, dtype=np.int64)
    launch[follows] = window.launch[mine[place[follows]]]
    called = launch >= 0
    until = idle.start.copy()
    until[called] = launched_at(trace, launch[called], waiting)
    nothing_follows = ~follows & bool((window.launch[mine] >= 0).any())
    until[nothing_follows] = idle.end[nothing_follows]
    known = called | nothing_follows
    found = merged(idle.start, np.clip(until, idle.start, idle.end))
    return found, Spans(idle.start[~known], idle.end[~known])


def _lost_idle(trace: Trace, window: TraceWindow, number: int, idle: Spans, lost: Lost) -> Spans:
    """Return the idle time of a GPU that lost work may fill: all of it, where nothing says when that ran."""
    if lost.unplaced and lost.matters:
        return idle
    mine = (trace.gpu.device == number) & (window.launch >= 0)
    launched = trace.launches.start[window.launch[mine]]
    return intersection(idle, lost.stretches(launched, trace.gpu.start[mine], window.end))


# A gap of less than that between kernels that were already launched is the GPU's own.
KERNEL_WAIT_NS = 30_000

# So many launches wait in a stream's queue before the next one blocks the host.
FULL_QUEUE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStream:
    """A stream of a GPU: its number of rows in the window, and their metrics.

    From each ``time`` on (int64, rising), ``length`` launches (int32) wait in its queue.
    """

    device: int
    name: str
    count: int
    busy: Spans
    idle: IdleEntry
    time: Ints
    length: Numbers

    def full(self, window: TraceWindow) -> Spans:
        over = np.flatnonzero(self.length[:-1] >= FULL_QUEUE)
        return clipped(merged(self.time[over], self.time[over + 1]), window.start, window.end)

    def mean_queue(self, window: TraceWindow) -> float:
        if not len(self.time) or not window.length:
            return 0.0
        edges = np.clip(self.time, window.start, window.end)
        return float((self.length[:-1] * np.diff(edges)).sum()) / window.length

    def longest_queues(self, edges: Ints) -> list[int]:
        first = np.maximum(np.searchsorted(self.time, edges[:-1], side="right") - 1, 0)
        last = np.searchsorted(self.time, edges[1:], side="left")
        return [int(self.length[one:other].max()) if one < other else 0 for one, other in zip(first, last, strict=True)]


def streams_of(trace: Trace, window: TraceWindow, in_window: Bools, waiting: Bools) -> list[GpuStream]:
    rows = trace.gpu
    order = np.lexsort((rows.start, rows.lane, trace.gpu.device))
    found = []
    changes = np.flatnonzero(np.diff(rows.lane[order]) | np.diff(trace.gpu.device[order])) + 1
    for mine in np.split(order, changes):
        inside = mine[in_window[mine]]
        if len(inside):
            time, length = _queue(trace, window, mine)
            found.append(
                GpuStream(
                    device=int(trace.gpu.device[mine[0]]),
                    name=trace.names[int(rows.lane[mine[0]])],
                    count=len(inside),
                    busy=clipped(merged(rows.start[inside], rows.end[inside]), window.start, window.end),
                    idle=_idle(trace, window, inside, waiting),
                    time=time,
                    length=length,
                )
            )
    return sorted(found, key=lambda each: (-each.busy.total, each.device, each.name))


def _idle(trace: Trace, window: TraceWindow, mine: Ints, waiting: Bools) -> IdleEntry:
    """Return the gaps between a stream's rows, which are in order of their start, by cause.

    Until the next row is launched the host is late. What is left of a gap is the GPU's own, if it is short.
    """
    rows = trace.gpu
    before = np.maximum.accumulate(rows.end[mine])[:-1]
    start = np.maximum(rows.start[mine][1:], before)
    launch = window.launch[mine][1:]
    until = before.copy()
    until[launch >= 0] = launched_at(trace, launch[launch >= 0], waiting)
    until = np.clip(until, before, start)
    left = start - until
    short = left < KERNEL_WAIT_NS
    return IdleEntry(
        host_wait_ns=int((until - before).sum()),
        kernel_wait_ns=int(left[short].sum()),
        other_ns=int(left[~short].sum()),
    )


def launched_at(trace: Trace, calls: Ints, waiting: Bools) -> Ints:
    """Return when calls have launched: at their end, or at their start where they wait for what they launch."""
    return np.where(waiting[calls], trace.launches.start[calls], trace.launches.end[calls])


def _queue(trace: Trace, window: TraceWindow, mine: Ints) -> tuple[Ints, Numbers]:
    """Return times and lengths of a stream's queue: a call is in it from its start to that of its first row."""
    known = mine[window.launch[mine] >= 0]
    calls, first = np.unique(window.launch[known], return_index=True)  # rows are in order of their start
    called = trace.launches.start[calls]
    times = np.concatenate((called, np.maximum(trace.gpu.start[known][first], called)))
    change = np.repeat(np.array((1, -1), dtype=np.int8), len(calls))
    order = np.lexsort((change, times))
    return times[order], np.cumsum(change[order], dtype=np.int32)
