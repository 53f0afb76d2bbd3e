"""Each GPU of a trace on its own: when it computes, communicates and copies; and the mean over a rank's GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainguard.kernels.columns import Bools, Floats, Ints, Kind, Trace
from trainguard.kernels.intervals import Spans, clipped, intersection, merged, union
from trainguard.kernels.window import Window

LEAST_SHARE = 0.01
"""Of the work of the busiest GPU; one with less is used by the way, as for a context, and is no part of the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime:
    """Stretches of one GPU in the window.

    ``number`` is the trace's, ``counted`` whether the rank's mean has it, ``overlap_ns`` the time in which it computes
    and communicates, ``exposed_memory_ns`` that in which it only copies or sets memory.
    """

    number: int
    counted: bool
    compute: Spans
    communication: Spans
    memcpy: Spans
    memset: Spans
    memory: Spans
    busy: Spans
    overlap_ns: int
    exposed_memory_ns: int

    @property
    def exposed_communication_ns(self) -> int:
        """Time in which it communicates and does not compute."""
        return self.communication.total - self.overlap_ns


def gpu_times(trace: Trace, window: Window, in_window: Bools) -> list[GpuTime]:
    """Return the GPUs with work in the window, by number."""
    numbers = np.unique(trace.gpu.device[in_window]).tolist()
    found = [_gpu(trace, window, in_window & (trace.gpu.device == number), number) for number in numbers]
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


def _gpu(trace: Trace, window: Window, mine: Bools, number: int) -> GpuTime:
    rows, kind = trace.gpu.rows, trace.gpu.kind

    def spans(mask: Bools) -> Spans:
        chosen = mine & mask
        return clipped(merged(rows.start[chosen], rows.end[chosen]), window.start, window.end)

    compute, communication = spans(kind == Kind.COMPUTE), spans(kind == Kind.COMMUNICATION)
    memcpy, memset = spans(kind == Kind.MEMCPY), spans(kind == Kind.MEMSET)
    memory = union(memcpy, memset)
    kernels = union(compute, communication)
    busy = union(kernels, memory)
    return GpuTime(
        number=number,
        counted=True,
        compute=compute,
        communication=communication,
        memcpy=memcpy,
        memset=memset,
        memory=memory,
        busy=busy,
        overlap_ns=intersection(compute, communication).total,
        exposed_memory_ns=busy.total - kernels.total,
    )
