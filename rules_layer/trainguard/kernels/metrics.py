"""One rank's metrics: pure functions over the columns of a trace, in whole nanoseconds."""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Kind, Trace
from trainguard.kernels.intervals import Spans, clipped, difference, intersection, merged, union
from trainguard.kernels.window import Window, find_window

KERNEL_WAIT_NS = 30_000
"""A gap of less than that between kernels that were already launched is the GPU's own."""

FULL_QUEUE = 1_024
"""So many launches wait in a stream's queue before the next one blocks the host."""

SYNC_REACH_NS = 1_000_000
"""So long after a synchronizing call the GPU may still be idle because of it."""

_BLOCKING = ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream", "cuMemcpyHtoD", "cuMemcpyDtoH")
_LOADER = "enumerate(DataLoader)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """From a launching call's end, and from its start, to its kernel; which kernels are shorter than their call."""

    after_call: Ints
    after_start: Ints
    short: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The gaps of each stream by cause, added up over the streams."""

    host_wait: int
    kernel_wait: int
    other: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.host_wait + self.kernel_wait + self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMetrics:
    """What the rules and the document of a rank are made from; every stretch is clipped to the window."""

    trace: Trace
    window: Window
    in_window: Bools
    compute: Spans
    communication: Spans
    memory: Spans
    busy: Spans
    delays: Delays
    idle: Idle
    host_sync: Spans
    sync_idle_ns: int
    loader: Spans
    breakdown: dict[str, Spans]
    full_queue_ns: int

    @property
    def overlap_ns(self) -> int:
        """Time in which the GPU computes and communicates."""
        return intersection(self.compute, self.communication).total

    @property
    def exposed_communication_ns(self) -> int:
        """Time in which the GPU communicates and does not compute."""
        return self.communication.total - self.overlap_ns

    @property
    def exposed_memory_ns(self) -> int:
        """Time in which the GPU only copies or sets memory."""
        return difference(self.memory, union(self.compute, self.communication)).total

    def share(self, part_ns: float) -> float:
        """Return a part of the window as a share; 0 for a window of no length."""
        return part_ns / self.window.length if self.window.length else 0.0


def rank_metrics(trace: Trace) -> RankMetrics:
    """Return the metrics of a trace; zeros where it has no rows for them."""
    window = find_window(trace)
    rows, kind = trace.gpu.rows, trace.gpu.kind
    in_window = (rows.end > window.start) & (rows.start < window.end)

    def spans(mask: Bools) -> Spans:
        return clipped(merged(rows.start[mask], rows.end[mask]), window.start, window.end)

    compute = spans(kind == Kind.COMPUTE)
    communication = spans(kind == Kind.COMMUNICATION)
    memory = spans(kind >= Kind.MEMCPY)
    busy = union(compute, communication, memory)
    sync = _host_sync(trace, window)
    reach = merged(sync.start, np.minimum(sync.end + SYNC_REACH_NS, window.end))
    loader = _named(trace, _LOADER, window)
    return RankMetrics(
        trace=trace,
        window=window,
        in_window=in_window,
        compute=compute,
        communication=communication,
        memory=memory,
        busy=busy,
        delays=_delays(trace, window, in_window),
        idle=_idle(trace, window, in_window),
        host_sync=sync,
        sync_idle_ns=difference(reach, busy).total,
        loader=loader,
        breakdown=_breakdown(trace, window, compute, communication, loader),
        full_queue_ns=_full_queue(trace, window),
    )


def _delays(trace: Trace, window: Window, in_window: Bools) -> Delays:
    rows, launches = trace.gpu.rows, trace.launches
    known = (window.launch >= 0) & in_window & (trace.gpu.kind <= Kind.COMMUNICATION)
    launch = window.launch[known]
    return Delays(
        after_call=np.maximum(rows.start[known] - launches.end[launch], 0),
        after_start=np.maximum(rows.start[known] - launches.start[launch], 0),
        short=(rows.end[known] - rows.start[known]) < (launches.end[launch] - launches.start[launch]),
    )


def _idle(trace: Trace, window: Window, in_window: Bools) -> Idle:
    """Return the idle time of the streams by cause.

    The host was late where the next kernel was launched after the last one had ended. Else a short gap is the GPU's
    own, and a longer one has another cause, such as a wait for an event of another stream.
    """
    rows = trace.gpu.rows
    sums = {"host_wait": 0, "kernel_wait": 0, "other": 0}
    for lane, device in sorted(
        set(zip(rows.lane[in_window].tolist(), trace.gpu.device[in_window].tolist(), strict=True))
    ):
        mine = np.flatnonzero(in_window & (rows.lane == lane) & (trace.gpu.device == device))
        mine = mine[np.argsort(rows.start[mine], kind="stable")]
        before = np.maximum.accumulate(rows.end[mine])[:-1]
        gap = np.maximum(rows.start[mine][1:] - before, 0)
        launch = window.launch[mine][1:]
        launched = np.where(launch >= 0, trace.launches.start[launch] if len(trace.launches) else 0, -(1 << 62))
        late = launched > before
        short = ~late & (gap < KERNEL_WAIT_NS)
        sums["host_wait"] += int(gap[late].sum())
        sums["kernel_wait"] += int(gap[short].sum())
        sums["other"] += int(gap[~late & ~short].sum())
    return Idle(**sums)


def _host_sync(trace: Trace, window: Window) -> Spans:
    """Return when the host waited for the GPU."""
    waits = [
        place for place, name in enumerate(trace.names) if "Synchronize" in name or name in _BLOCKING
    ]  # fmt: skip
    mask = np.isin(trace.launches.name, np.array(waits, dtype=np.int64))
    return clipped(merged(trace.launches.start[mask], trace.launches.end[mask]), window.start, window.end)


def _named(trace: Trace, prefix: str, window: Window) -> Spans:
    names = [place for place, name in enumerate(trace.names) if name.startswith(prefix)]
    mask = np.isin(trace.annotations.name, np.array(names, dtype=np.int64))
    return clipped(merged(trace.annotations.start[mask], trace.annotations.end[mask]), window.start, window.end)


def _breakdown(trace: Trace, window: Window, compute: Spans, communication: Spans, loader: Spans) -> dict[str, Spans]:
    """Return stretches by class; each moment is in the first class that has it, so that the parts add up."""
    rows, kind = trace.gpu.rows, trace.gpu.kind
    classes = {
        "compute": compute,
        "exposed_communication": communication,
        "memcpy": merged(rows.start[kind == Kind.MEMCPY], rows.end[kind == Kind.MEMCPY]),
        "memset": merged(rows.start[kind == Kind.MEMSET], rows.end[kind == Kind.MEMSET]),
        "runtime": merged(trace.launches.start, trace.launches.end),
        "data_loader": loader,
        "cpu_op": merged(trace.operators.start, trace.operators.end),
    }
    parts: dict[str, Spans] = {}
    taken = merged(np.empty(0, np.int64), np.empty(0, np.int64))
    for name, spans in classes.items():
        part = clipped(spans, window.start, window.end)
        parts[name] = difference(part, taken)
        taken = union(taken, part)
    return parts


def _full_queue(trace: Trace, window: Window) -> int:
    """Return how long a stream's queue was full: what was launched there and has not begun."""
    rows = trace.gpu.rows
    known = window.launch >= 0
    full: list[Spans] = []
    for lane in np.unique(rows.lane[known]):
        mine = np.flatnonzero(known & (rows.lane == lane))
        if len(mine) < FULL_QUEUE:
            continue
        times = np.concatenate((trace.launches.start[window.launch[mine]], rows.start[mine]))
        change = np.concatenate((np.ones(len(mine), np.int64), np.full(len(mine), -1)))
        order = np.lexsort((change, times))
        waiting, times = np.cumsum(change[order]), times[order]
        over = np.flatnonzero(waiting[:-1] >= FULL_QUEUE)
        full.append(merged(times[over], times[over + 1]))
    return clipped(union(*full), window.start, window.end).total if full else 0
