"""Each GPU of a trace on its own: when it computes, communicates and copies, and why it is idle.

A gap ends with the GPU's next row. Until the call that launched it ends, the GPU waits for the host, or for the loader
while the host waits for data; from then on for something else. This is the split of HolisticTraceAnalysis' idle
breakdown, by GPU and not by stream.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainguard.kernels.columns import Bools, Floats, Ints, Kind, Trace
from trainguard.kernels.intervals import Spans, clipped, difference, gaps, intersection, merged, union
from trainguard.kernels.window import Window

LEAST_SHARE = 0.01
"""Of the work of the busiest GPU; one with less is used by the way, as for a context, and is no part of the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime:
    """Stretches of one GPU in the window; ``counted`` says whether the rank's mean has it.

    ``overlap_ns`` is time in which it computes and communicates, ``exposed_memory_ns`` that with copies or sets alone.
    ``waits_for_loader``, ``waits_for_host`` and ``waits_for_other`` are all of its idle time, by cause.
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

    @property
    def idle(self) -> Spans:
        """When it does nothing."""
        return union(self.waits_for_loader, self.waits_for_host, self.waits_for_other)

    @property
    def communication_alone(self) -> Spans:
        """When it communicates and does not compute."""
        return difference(self.communication, self.compute)

    @property
    def memory_alone(self) -> Spans:
        """When it only copies or sets memory."""
        return difference(self.memory, self.kernels)

    @property
    def exposed_communication_ns(self) -> int:
        """Time in which it communicates and does not compute."""
        return self.communication.total - self.overlap_ns


def gpu_times(trace: Trace, window: Window, in_window: Bools, loading: Spans) -> list[GpuTime]:
    """Return the GPUs with work in the window, by number; ``loading`` is when the host waits for the data loader."""
    numbers = np.unique(trace.gpu.device[in_window]).tolist()
    found = [_gpu(trace, window, in_window & (trace.gpu.device == number), number, loading) for number in numbers]
    most = max((each.busy.total for each in found), default=0)
    return [replace(each, counted=each.busy.total >= LEAST_SHARE * most) for each in found]


def mean_ns(gpus: Sequence[GpuTime], part: Callable[[GpuTime], int]) -> int:
    """Return the mean of a part over the GPUs that count, rounded down; 0 without one."""
    values = [part(gpu) for gpu in gpus if gpu.counted]
    return sum(values) // len(values) if values else 0


def busy_shares(gpus: Sequence[GpuTime], edges: Ints) -> Floats:
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


def _gpu(trace: Trace, window: Window, mine: Bools, number: int, loading: Spans) -> GpuTime:
    rows, kind = trace.gpu.rows, trace.gpu.kind

    def spans(mask: Bools) -> Spans:
        chosen = mine & mask
        return clipped(merged(rows.start[chosen], rows.end[chosen]), window.start, window.end)

    compute, communication = spans(kind == Kind.COMPUTE), spans(kind == Kind.COMMUNICATION)
    memcpy, memset = spans(kind == Kind.MEMCPY), spans(kind == Kind.MEMSET)
    memory = union(memcpy, memset)
    kernels = union(compute, communication)
    busy = union(kernels, memory)
    idle = gaps(busy, window.start, window.end)
    launched, known = _launched_at(trace, window, number, idle)
    until_launch = merged(idle.start, np.clip(launched, idle.start, idle.end))
    # Where the launch of the next work is unknown, a wait for data still explains the gap, and nothing else does.
    unknown = Spans(idle.start[~known], idle.end[~known])
    waits_for_loader = intersection(loading, union(until_launch, unknown))
    waits_for_host = difference(until_launch, waits_for_loader)
    return GpuTime(
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
    )


def _launched_at(trace: Trace, window: Window, number: int, idle: Spans) -> tuple[Ints, Bools]:
    mine = np.flatnonzero(trace.gpu.device == number)
    mine = mine[np.argsort(trace.gpu.rows.start[mine], kind="stable")]
    place = np.searchsorted(trace.gpu.rows.start[mine], idle.end, side="left")
    follows = place < len(mine)
    launch = np.full(len(idle.end), -1, dtype=np.int64)
    launch[follows] = window.launch[mine[place[follows]]]
    called = launch >= 0
    ended = idle.start.copy()
    ended[called] = trace.launches.end[launch[called]]
    nothing_follows = ~follows & bool((window.launch[mine] >= 0).any())
    ended[nothing_follows] = idle.end[nothing_follows]
    return ended, called | nothing_follows
