"""One rank's metrics: pure functions over the columns of a trace, in whole nanoseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from trainguard.kernels.columns import BLOCK_UNTIL_READY, Bools, Ints, Rows, Trace, WorkKind
from trainguard.kernels.entries import IdleEntry
from trainguard.kernels.times.gpu_times import GpuStream, TraceGpuTime, breakdown, gpu_times, mean_ns, streams_of
from trainguard.kernels.times.intervals import Spans, clipped, difference, intersection, merged, union
from trainguard.kernels.times.lost import Lost, find_lost
from trainguard.kernels.times.window import TraceWindow, find_operators, find_window

# So long after a synchronizing call the GPU may still be idle because of it.
SYNC_REACH_NS = 1_000_000

# The first classes of a breakdown, those of the GPU; communication that computation covers is computation.
GPU_PARTS = ("compute", "exposed_communication", "memcpy", "memset")

# Calls that wait for the GPU, some implicitly (CUDA C++ Programming Guide, "Implicit Synchronization").
_BLOCKING = frozenset({
    "cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream", "cuMemcpyHtoD", "cuMemcpyDtoH", BLOCK_UNTIL_READY,
    "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cuMemAlloc", "cuMemFree", "cuMemHostAlloc",
    "cuMemFreeHost", "hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree",
})  # fmt: skip

_LOADERS = ("enumerate(DataLoader)", "IteratorGetNext")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """From launching calls to their kernels.

    ``after_call`` and ``after_start`` are from a call's end, and start, to its kernel's start. ``short`` kernels are
    shorter than their call; ``short_calls`` are longer than all that they launched, which a CUDA graph adds up.
    """

    after_call: Ints
    after_start: Ints
    short: Bools
    short_calls: Bools


@dataclass(frozen=True, kw_only=True)
class RankMetrics:
    """A rank's metrics for rules and document; every stretch is clipped to the window.

    Stretches are those of any GPU; what is in nanoseconds is the mean over the GPUs that count; see `TraceGpuTime`.
    ``loading`` is ``loader`` without calls of the runtime, ``sync_reach`` is ``host_sync`` with 1 ms behind each call.
    ``unknown_idle_ns`` is idle time that ``lost`` work may fill.
    """

    trace: Trace
    window: TraceWindow
    in_window: Bools
    busy: Spans
    gpus: Sequence[TraceGpuTime]
    compute_ns: int
    memory_ns: int
    overlap_ns: int
    exposed_communication_ns: int
    exposed_memory_ns: int
    loader_idle_ns: int
    host_idle_ns: int
    delays: Delays
    streams: Sequence[GpuStream]
    waiting_calls: Bools
    host_sync: Spans
    sync_reach: Spans
    sync_idle_ns: int
    unknown_idle_ns: int
    lost: Lost
    loader: Spans
    loading: Spans
    operator: Ints
    operator_id: Ints

    @property
    def idle(self) -> IdleEntry:
        return IdleEntry(
            host_wait_ns=sum(stream.idle.host_wait_ns for stream in self.streams),
            kernel_wait_ns=sum(stream.idle.kernel_wait_ns for stream in self.streams),
            other_ns=sum(stream.idle.other_ns for stream in self.streams),
        )

    @property
    def full_queue_ns(self) -> int:
        return union(*(stream.full(self.window) for stream in self.streams)).total if self.streams else 0

    @property
    def counted(self) -> int:
        """How many GPUs the means are over, at least 1."""
        return max(sum(gpu.counted for gpu in self.gpus), 1)

    @property
    def communication_ns(self) -> int:
        return self.overlap_ns + self.exposed_communication_ns

    @property
    def known_busy_ns(self) -> int:
        """Busy time, and time in which lost work may have run."""
        return self.busy_ns + self.unknown_idle_ns

    @property
    def fed(self) -> tuple[int, float]:
        """The window beside the wait for data, in nanoseconds, and its busy share, lost work included."""
        fed_ns = self.window.length - self.loader_idle_ns
        return fed_ns, self.known_busy_ns / fed_ns if fed_ns else 1.0

    @property
    def busy_ns(self) -> int:
        """Time in which a GPU does anything: it computes, or only communicates, or only copies or sets memory."""
        return self.compute_ns + self.exposed_communication_ns + self.exposed_memory_ns

    def share(self, part_ns: float) -> float:
        return part_ns / self.window.length if self.window.length else 0.0

    def gpu_parts(self, start: Ints, end: Ints, host: Mapping[str, Spans] | None = None) -> dict[str, Ints]:
        """Return the time of the GPU's classes in stretches, then the host's: the mean over GPUs, rounded down."""
        counted = [[gpu.compute, gpu.communication, gpu.memcpy, gpu.memset] for gpu in self.gpus if gpu.counted]
        found = [
            breakdown({**dict(zip(GPU_PARTS, stretches, strict=True)), **(host or {})}, start, end)
            for stretches in counted or [[self.busy] * len(GPU_PARTS)]
        ]
        return {
            name: np.stack([each[name] for each in found]).sum(axis=0, dtype=np.int64) // len(found)
            for name in found[0]
        }

    def step_parts(self, start: Ints, end: Ints) -> dict[str, Ints]:
        """Return the time of each class in stretches, of the GPU and the host, and of none."""
        calls, operators = (_spans(rows, self.window) for rows in (self.trace.launches, self.trace.operators))
        host = {"runtime": calls, "data_loader": self.loader, "cpu_op": operators}
        parts = self.gpu_parts(start, end, host)
        parts["other"] = end - start - sum(parts.values())
        return parts

    def steps_on_gpu(self) -> tuple[Ints, Ints]:
        steps, window = self.window.steps, self.window
        last = np.full(len(steps), np.iinfo(np.int64).min)
        launched = window.step >= 0
        np.maximum.at(last, window.step[launched], self.trace.gpu.end[launched])
        first = max(int(steps.start[0]), self._end_of_earlier_work())
        before = np.concatenate(([first], np.maximum.accumulate(last)[:-1]))
        start = np.maximum(steps.start, before)
        return start, np.maximum(np.maximum(steps.end, last), start)

    def _end_of_earlier_work(self) -> int:
        """Return when the work ends that was launched before the first step and runs before its own; 0 without."""
        rows, window, calls = self.trace.gpu, self.window, self.trace.launches
        own = rows.start[window.step == 0]
        launched = np.where(window.launch >= 0, calls.start[window.launch] if len(calls) else 0, np.int64(-(1 << 62)))
        earlier = (window.step < 0) & (launched < window.steps.start[0])
        mine = rows.end[earlier & (rows.start < own.min())] if len(own) else own
        return int(mine.max()) if len(mine) else 0

    def host_busy(self) -> Spans:
        return union(_spans(self.trace.launches, self.window), _spans(self.trace.operators, self.window))

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Return the metrics of a trace in the window of its steps; zeros without rows for them."""
        window = find_window(trace)
        return cls._in(trace, window, find_operators(trace, window.launch))

    def within(self, window: TraceWindow) -> Self:
        return self._in(self.trace, window, (self.operator, self.operator_id))

    @classmethod
    def _in(cls, trace: Trace, window: TraceWindow, launched_by: tuple[Ints, Ints]) -> Self:
        rows = trace.gpu
        in_window = (rows.end > window.start) & (rows.start < window.end)
        waiting = _waiting_calls(trace, window)
        sync = clipped(merged(trace.launches.start[waiting], trace.launches.end[waiting]), window.start, window.end)
        loader = _named(trace, _LOADERS, window)
        loading = difference(loader, _spans(trace.launches, window)) if len(loader.start) else loader
        lost = find_lost(trace, window.start, window.end)
        gpus = gpu_times(trace, window, in_window, loading, waiting, lost)
        reach = merged(sync.start, np.minimum(sync.end + SYNC_REACH_NS, window.end))
        return cls(
            trace=trace,
            window=window,
            in_window=in_window,
            busy=gpus[0].busy if len(gpus) == 1 else union(*(gpu.busy for gpu in gpus)),
            gpus=gpus,
            compute_ns=mean_ns(gpus, lambda gpu: gpu.compute.total),
            memory_ns=mean_ns(gpus, lambda gpu: gpu.memory.total),
            overlap_ns=mean_ns(gpus, lambda gpu: gpu.overlap_ns),
            exposed_communication_ns=mean_ns(gpus, lambda gpu: gpu.exposed_communication_ns),
            exposed_memory_ns=mean_ns(gpus, lambda gpu: gpu.exposed_memory_ns),
            loader_idle_ns=mean_ns(gpus, lambda gpu: gpu.waits_for_loader.total),
            host_idle_ns=mean_ns(gpus, lambda gpu: gpu.waits_for_host.total),
            delays=_delays(trace, window, in_window),
            streams=streams_of(trace, window, in_window, waiting),
            waiting_calls=waiting,
            host_sync=sync,
            sync_reach=reach,
            sync_idle_ns=mean_ns(gpus, lambda gpu: intersection(reach, gpu.waits_for_host).total),
            unknown_idle_ns=mean_ns(gpus, lambda gpu: gpu.unknown.total),
            lost=lost,
            loader=loader,
            loading=loading,
            operator=launched_by[0],
            operator_id=launched_by[1],
        )


def _spans(rows: Rows, window: TraceWindow) -> Spans:
    return clipped(merged(rows.start, rows.end), window.start, window.end)


def _delays(trace: Trace, window: TraceWindow, in_window: Bools) -> Delays:
    rows, launches = trace.gpu, trace.launches
    known = (window.launch >= 0) & in_window & (trace.gpu.kind <= WorkKind.COMMUNICATION)
    launch = window.launch[known]
    lasted = rows.end[known] - rows.start[known]
    took = launches.end[launch] - launches.start[launch]
    _, first, call = np.unique(launch, return_index=True, return_inverse=True)
    return Delays(
        after_call=np.maximum(rows.start[known] - launches.end[launch], 0),
        after_start=np.maximum(rows.start[known] - launches.start[launch], 0),
        short=lasted < took,
        short_calls=np.bincount(call, weights=lasted, minlength=len(first)) < took[first],
    )


def _waiting_calls(trace: Trace, window: TraceWindow) -> Bools:
    """Return which calls of the window wait for the GPU: by name, and copies that end before their call does.

    An asynchronous copy to pageable memory waits like that: it is what ``.item()`` and ``.cpu()`` do.
    """
    calls = trace.launches
    mask: Bools = np.isin(calls.name, trace.numbers_of(lambda name: "Synchronize" in name or name in _BLOCKING))
    copies = np.flatnonzero((trace.gpu.kind == WorkKind.MEMCPY) & (window.launch >= 0))
    called = window.launch[copies]
    mask[called[trace.gpu.end[copies] <= calls.end[called]]] = True
    return mask & (calls.end > window.start) & (calls.start < window.end)


def _named(trace: Trace, prefixes: tuple[str, ...], window: TraceWindow) -> Spans:
    mask = np.isin(trace.annotations.name, trace.numbers_of(lambda name: name.startswith(prefixes)))
    return clipped(merged(trace.annotations.start[mask], trace.annotations.end[mask]), window.start, window.end)
