"""What goes on over a rank's window: shares of its parts, sums by activity, launches, streams and GPUs."""

from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import Ints, Kind
from trainguard.kernels.document import StreamEntry
from trainguard.kernels.durations import exact_sum
from trainguard.kernels.entries import (
    ActivityEntry,
    DeviceEntry,
    GpuIdleEntry,
    IdleEntry,
    LaunchEntry,
    TemporalEntry,
)
from trainguard.kernels.gpu_devices import devices_of
from trainguard.kernels.gpu_times import GpuTime, busy_shares
from trainguard.kernels.intervals import Spans, merged
from trainguard.kernels.metrics import RankMetrics
from trainguard.kernels.streams import Idle
from trainguard.kernels.window import Window

BUCKETS = 100
SLOW_CALL_NS, SLOW_START_NS = 50_000, 100_000


def edges_of(window: Window) -> Ints:
    """Return the edges of equal parts of a window; none of a window too short for them."""
    if window.length < BUCKETS:
        return np.empty(0, dtype=np.int64)
    parts = np.arange(BUCKETS + 1, dtype=np.int64)
    # Whole numbers alone: a double does not hold the nanoseconds of the epoch.
    return window.start + window.length // BUCKETS * parts + window.length % BUCKETS * parts // BUCKETS


def shares(spans: Spans, edges: Ints) -> list[float]:
    """Return how much of each part stretches fill, from 0 to 1."""
    if not len(edges):
        return []
    return [round(float(share), 4) for share in spans.within(edges[:-1], edges[1:]) / np.diff(edges)]


def mean_shares(gpus: Sequence[GpuTime], edges: Ints) -> list[float]:
    """Return how busy the GPUs that count are in each part, from 0 to 1: the mean."""
    return [round(float(share), 4) for share in busy_shares(gpus, edges)] if len(edges) else []


def idle_entry(idle: Idle) -> IdleEntry:
    """Return idle time for the document."""
    return IdleEntry(host_wait_ns=idle.host_wait, kernel_wait_ns=idle.kernel_wait, other_ns=idle.other)


def gpu_idle(metrics: RankMetrics) -> GpuIdleEntry:
    """Return the idle time of the GPU by cause."""
    loader, host = metrics.loader_idle_ns, metrics.host_idle_ns
    return GpuIdleEntry(
        loader_ns=loader, host_ns=host, other_ns=metrics.window.length - metrics.busy_ns - loader - host
    )


def streams_entries(metrics: RankMetrics, most: int) -> list[StreamEntry]:
    """Return the busiest streams."""
    window, edges = metrics.window, edges_of(metrics.window)
    return [
        StreamEntry(
            device=stream.device,
            stream=stream.name,
            count=stream.count,
            busy_ns=stream.busy.total,
            idle=idle_entry(stream.idle),
            queue_mean=round(stream.queue.mean(window), 3),
            queue_max=int(stream.queue.most(np.array([window.start, window.end])).max()),
            full_queue_ns=stream.queue.full(window).total,
            queue_series=stream.queue.most(edges).tolist() if len(edges) else [],
        )
        for stream in metrics.streams[:most]
    ]


def device_entries(metrics: RankMetrics) -> list[DeviceEntry]:
    """Return the GPUs with work in the window."""
    times = {gpu.number: gpu for gpu in metrics.gpus}
    edges = edges_of(metrics.window)
    return [
        DeviceEntry(
            device=device.number,
            name=device.name,
            busy_ns=device.busy.total,
            kernel_ns=device.kernels.total,
            utilization=shares(device.busy, edges),
            kernel_utilization=shares(device.kernels, edges),
            sm_efficiency=device.sm_efficiency,
            occupancy=device.occupancy,
            compute_ns=times[device.number].compute.total,
            communication_ns=times[device.number].communication.total,
            overlap_ns=times[device.number].overlap_ns,
            exposed_communication_ns=times[device.number].exposed_communication_ns,
            memory_ns=times[device.number].memory.total,
            exposed_memory_ns=times[device.number].exposed_memory_ns,
            idle_ns=metrics.window.length - device.busy.total,
            counted=times[device.number].counted,
        )
        for device in devices_of(metrics.trace, metrics.window, metrics.in_window)
    ]


def temporal(metrics: RankMetrics) -> TemporalEntry | None:
    """Return the parts of the GPU's span; None without work of a GPU."""
    if not len(metrics.busy.start):
        return None
    span = int(metrics.busy.end[-1] - metrics.busy.start[0])
    return TemporalEntry(
        span_ns=span,
        idle_ns=span - metrics.busy_ns,
        compute_ns=metrics.compute_ns,
        non_compute_ns=metrics.busy_ns - metrics.compute_ns,
    )


def activity(metrics: RankMetrics) -> ActivityEntry:
    """Return the sums of durations by activity."""
    rows, kind = metrics.trace.gpu.rows, metrics.trace.gpu.kind
    lasted = rows.end - rows.start
    waits, window = metrics.trace.waits, metrics.window
    if len(waits):
        mine = (waits.end > window.start) & (waits.start < window.end)
        synchronized = exact_sum((waits.end - waits.start)[mine])
    else:
        synchronized = metrics.host_sync.total
    return ActivityEntry(
        kernel_ns=exact_sum(lasted[metrics.in_window & (kind <= Kind.COMMUNICATION)]),
        memory_ns=exact_sum(lasted[metrics.in_window & (kind >= Kind.MEMCPY)]),
        synchronization_ns=synchronized,
    )


def synchronization(metrics: RankMetrics) -> tuple[int, bool]:
    """Return the time of synchronization and whether the GPU's side recorded it."""
    waits = metrics.trace.waits
    if not len(waits):
        return metrics.host_sync.total, False
    window = metrics.window
    spans = merged(np.maximum(waits.start, window.start), np.minimum(waits.end, window.end))
    return spans.total, True


def launches(metrics: RankMetrics) -> LaunchEntry:
    """Return how the kernels of the window are launched."""
    kernels = metrics.in_window & (metrics.trace.gpu.kind <= Kind.COMMUNICATION)
    launch = metrics.window.launch[kernels]
    called = launch[launch >= 0]
    took = metrics.trace.launches.end[called] - metrics.trace.launches.start[called]
    return LaunchEntry(
        kernels=int(kernels.sum()),
        calls=len(np.unique(called)),
        unlaunched=int((launch < 0).sum()),
        short_kernels=int(metrics.delays.short.sum()),
        slow_calls=int((took > SLOW_CALL_NS).sum()),
        slow_starts=int((metrics.delays.after_call > SLOW_START_NS).sum()),
    )
