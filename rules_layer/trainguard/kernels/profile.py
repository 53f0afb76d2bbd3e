"""A trace to its part of the document: metrics, kernels, steps, findings, quality."""

import re
from typing import Literal

import numpy as np

from trainguard.core.units import faults_counted
from trainguard.kernels.columns import Bools, Ints, Trace, WorkKind
from trainguard.kernels.critical_path import critical_paths
from trainguard.kernels.device_entries import ActivityEntry, DeviceEntry, LaunchEntry, TemporalEntry
from trainguard.kernels.document import Distribution, Quality, RankProfile, StepEntry, StepTimes, StreamEntry
from trainguard.kernels.entries import GpuIdleEntry
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.memory.history import memory_entry
from trainguard.kernels.memory.names import rank_of
from trainguard.kernels.memory.snapshot import MemorySnapshot
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.rollups.rollup import rollup_of
from trainguard.kernels.rules.finding import JudgedRank, time_of
from trainguard.kernels.rules.registry import findings_of, memory_findings
from trainguard.kernels.rules.trace_quality import EPOCH_LEAST_NS, damaged, missing
from trainguard.kernels.times.gpu_times import busy_shares
from trainguard.kernels.times.intervals import Spans, merged
from trainguard.kernels.times.metrics import RankMetrics
from trainguard.kernels.times.window import TraceWindow
from trainguard.kernels.typical import StepTable
from trainguard.kernels.work import (
    annotations_of,
    collective_steps_of,
    collectives_of,
    distinct,
    durations,
    exact_sum,
    memory_operations,
    weighted,
)

MOST_KERNELS = 1_000
MOST_ANNOTATIONS = 200
MOST_STEPS = 10_000
MOST_STREAMS = 64
MOST_COLLECTIVES = 200
MOST_OPERATORS = 200
MOST_COMPARED, MOST_COMPARED_STEPS = 8, 500
_RANK = re.compile(r"rank[-_ ]?(\d{1,9})", re.IGNORECASE)


def rank_profile(trace: Trace) -> RankProfile:
    judged = JudgedRank.of(trace)
    kernels, rest = judged.kernels[:MOST_KERNELS], judged.kernels[MOST_KERNELS:]
    begins = judged.window.start + trace.base_ns
    synchronization_ns, source = _synchronization(judged)
    edges = _edges(judged.window)
    utilization = [round(float(share), 4) for share in busy_shares(judged.gpus, edges)] if len(edges) else []
    steps, host_busy = _steps(judged), judged.host_busy()
    host_times = durations(np.array([step.duration_ns for step in steps], dtype=np.int64))
    gpu_times = durations(np.array([step.gpu_duration_ns for step in steps], dtype=np.int64))
    annotations, collectives = annotations_of(trace, judged.window), collectives_of(judged)
    peaks = peaks_entry(trace.gpus)
    return RankProfile(
        trace=trace.name,
        rank=_rank(trace),
        world_size=trace.world_size,
        gpus=[gpu.name for gpu in trace.gpus],
        start_unix_ns=begins if begins >= EPOCH_LEAST_NS else None,
        window_ns=judged.window.length,
        busy_ns=judged.busy_ns,
        compute_ns=judged.compute_ns,
        communication_ns=judged.communication_ns,
        overlap_ns=judged.overlap_ns,
        exposed_communication_ns=judged.exposed_communication_ns,
        memory_ns=judged.memory_ns,
        exposed_memory_ns=judged.exposed_memory_ns,
        launch_delay_ns=_distribution(judged.delays.after_call),
        launch_to_start_ns=_distribution(judged.delays.after_start),
        synchronization_ns=synchronization_ns,
        synchronization_source=source,
        idle=judged.idle,
        gpu_idle=GpuIdleEntry(
            loader_ns=judged.loader_idle_ns,
            host_ns=judged.host_idle_ns,
            other_ns=judged.window.length - judged.busy_ns - judged.loader_idle_ns - judged.host_idle_ns,
        ),
        precision=judged.by_precision(),
        tensor_core_ns=judged.tensor_core_ns,
        eligible_ns=judged.eligible_ns,
        utilization=utilization,
        active_share=round(sum(part > 0 for part in utilization) / len(utilization), 4) if utilization else None,
        temporal=_temporal(judged),
        activity=_activity(judged),
        steps=steps[:MOST_STEPS],
        steps_left_out=max(len(steps) - MOST_STEPS, 0),
        step_times=None if host_times is None or gpu_times is None else StepTimes(host=host_times, gpu=gpu_times),
        kernels=[line.entry() for line in kernels],
        kernels_left_out=len(rest),
        kernels_left_out_ns=time_of(rest),
        kernels_left_out_count=sum(line.count for line in rest),
        communication_kernels_ns=time_of(line for line in judged.kernels if line.communication),
        launches=_launches(judged),
        memory_operations=memory_operations(judged),
        annotations=annotations[:MOST_ANNOTATIONS],
        annotations_left_out=max(len(annotations) - MOST_ANNOTATIONS, 0),
        collectives=collectives[:MOST_COLLECTIVES],
        collectives_left_out=max(len(collectives) - MOST_COLLECTIVES, 0),
        collective_steps=collective_steps_of(judged, MOST_COMPARED, MOST_COMPARED_STEPS),
        devices=_devices(judged),
        streams=_streams(judged),
        streams_left_out=max(len(judged.streams) - MOST_STREAMS, 0),
        operators=[called.entry for called in judged.operators[:MOST_OPERATORS]],
        operators_left_out=max(len(judged.operators) - MOST_OPERATORS, 0),
        peaks=peaks,
        rollup=rollup_of(judged, judged.kernels, peaks),
        critical_paths=critical_paths(judged),
        host_busy_ns=host_busy.total,
        host_utilization=_shares(host_busy, edges),
        findings=findings_of(judged),
        quality=Quality(
            missing=[fault.words for fault in missing(judged)],
            damaged=[fault.words for fault in damaged(trace.tally)],
            counts=trace.tally,
            steps_lost=judged.window.steps_lost,
            is_whole=judged.window.is_whole and not judged.lost.matters,
            work_lost=judged.lost.count,
        ),
        counters=trace.counters,
        framework=trace.framework.value,
        typical_step=StepTable.of(judged).entry(judged),
        software=trace.software,
        memory=judged.memory,
    )


def snapshot_profile(snapshot: MemorySnapshot) -> SnapshotProfile:
    memory = [*snapshot.memory, *(memory_entry(each) for each in snapshot.histories)]
    return SnapshotProfile(
        trace=snapshot.name,
        rank=rank_of(snapshot.name),
        memory=memory,
        findings=memory_findings(memory),
        damaged=[faults_counted(count, what) for what, count in snapshot.tally.items()],
    )


def _rank(trace: Trace) -> int | None:
    if trace.rank is not None:
        return trace.rank
    match = _RANK.search(trace.name.rpartition("/")[2])
    return int(match[1]) if match else None


def _distribution(values: Ints) -> Distribution | None:
    if not len(values):
        return None
    return Distribution(median=round(float(np.median(values))), p90=round(float(np.percentile(values, 90))))


BUCKETS = 100
SLOW_CALL_NS, SLOW_START_NS = 50_000, 100_000


def _edges(window: TraceWindow) -> Ints:
    """Return the edges of equal parts of a window; none of a window too short for them."""
    if window.length < BUCKETS:
        return np.empty(0, dtype=np.int64)
    parts = np.arange(BUCKETS + 1, dtype=np.int64)
    # Whole numbers alone: a double does not hold the nanoseconds of the epoch.
    return window.start + window.length // BUCKETS * parts + window.length % BUCKETS * parts // BUCKETS


def _shares(spans: Spans, edges: Ints) -> list[float]:
    if not len(edges):
        return []
    return [round(float(share), 4) for share in spans.within(edges[:-1], edges[1:]) / np.diff(edges)]


def _streams(metrics: RankMetrics) -> list[StreamEntry]:
    window, edges = metrics.window, _edges(metrics.window)
    return [
        StreamEntry(
            device=stream.device,
            stream=stream.name,
            count=stream.count,
            busy_ns=stream.busy.total,
            idle=stream.idle,
            queue_mean=round(stream.mean_queue(window), 3),
            queue_max=max(stream.longest_queues(np.array([window.start, window.end]))),
            full_queue_ns=stream.full(window).total,
            queue_series=stream.longest_queues(edges),
        )
        for stream in metrics.streams[:MOST_STREAMS]
    ]


def _devices(metrics: RankMetrics) -> list[DeviceEntry]:
    edges, trace, window = _edges(metrics.window), metrics.trace, metrics.window
    found = []
    for each in metrics.gpus:
        kernels = metrics.in_window & (trace.gpu.device == each.number) & (trace.gpu.kind <= WorkKind.COMMUNICATION)
        lasted = trace.gpu.end[kernels] - trace.gpu.start[kernels]
        occupied = weighted(trace.gpu.occupancy[kernels], lasted)
        found.append(
            DeviceEntry(
                device=each.number,
                name=trace.gpus[each.number].name if 0 <= each.number < len(trace.gpus) else "",
                busy_ns=each.busy.total,
                kernel_ns=each.kernels.total,
                utilization=_shares(each.busy, edges),
                kernel_utilization=_shares(each.kernels, edges),
                sm_efficiency=_sm_efficiency(trace, window, kernels),
                occupancy=None if occupied is None else round(occupied / 100, 4),
                compute_ns=each.compute.total,
                communication_ns=each.communication.total,
                overlap_ns=each.overlap_ns,
                exposed_communication_ns=each.exposed_communication_ns,
                memory_ns=each.memory.total,
                exposed_memory_ns=each.exposed_memory_ns,
                idle_ns=window.length - each.busy.total,
                counted=each.counted,
            )
        )
    return found


def _temporal(metrics: RankMetrics) -> TemporalEntry | None:
    if not len(metrics.busy.start):
        return None
    span = int(metrics.busy.end[-1] - metrics.busy.start[0])
    return TemporalEntry(
        span_ns=span,
        idle_ns=span - metrics.busy_ns,
        compute_ns=metrics.compute_ns,
        non_compute_ns=metrics.busy_ns - metrics.compute_ns,
    )


def _activity(metrics: RankMetrics) -> ActivityEntry:
    rows, kind = metrics.trace.gpu, metrics.trace.gpu.kind
    lasted = rows.end - rows.start
    waits, window = metrics.trace.waits, metrics.window
    if len(waits):
        mine = (waits.end > window.start) & (waits.start < window.end)
        synchronized = exact_sum((waits.end - waits.start)[mine])
    else:
        synchronized = metrics.host_sync.total
    return ActivityEntry(
        kernel_ns=exact_sum(lasted[metrics.in_window & (kind <= WorkKind.COMMUNICATION)]),
        memory_ns=exact_sum(lasted[metrics.in_window & (kind >= WorkKind.MEMCPY)]),
        synchronization_ns=synchronized,
    )


def _synchronization(metrics: RankMetrics) -> tuple[int, Literal["gpu", "host"]]:
    waits = metrics.trace.waits
    if not len(waits):
        return metrics.host_sync.total, "host"
    window = metrics.window
    spans = merged(np.maximum(waits.start, window.start), np.minimum(waits.end, window.end))
    return spans.total, "gpu"


def _launches(metrics: RankMetrics) -> LaunchEntry:
    kernels = metrics.in_window & (metrics.trace.gpu.kind <= WorkKind.COMMUNICATION)
    launch = metrics.window.launch[kernels]
    called = launch[launch >= 0]
    took = metrics.trace.launches.end[called] - metrics.trace.launches.start[called]
    return LaunchEntry(
        kernels=int(kernels.sum()),
        calls=distinct(called),
        unlaunched=int((launch < 0).sum()),
        short_kernels=int(metrics.delays.short.sum()),
        slow_calls=int((took > SLOW_CALL_NS).sum()),
        slow_starts=int((metrics.delays.after_call > SLOW_START_NS).sum()),
    )


def _sm_efficiency(trace: Trace, window: TraceWindow, kernels: Bools) -> float | None:
    """Return the share of multiprocessors with a block, over the window: blocks of kernels at once add up, up to 1."""
    known = kernels & ~np.isnan(trace.gpu.blocks_per_sm)
    if not known.any() or not window.length:
        return None
    start = np.maximum(trace.gpu.start[known], window.start)
    end = np.maximum(np.minimum(trace.gpu.end[known], window.end), start)
    blocks = np.minimum(trace.gpu.blocks_per_sm[known], 1.0)
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    filled = np.cumsum(np.concatenate((blocks, -blocks))[order])[:-1]
    return round(float((np.clip(filled, 0, 1) * np.diff(times[order])).sum()) / window.length, 4)


def _steps(metrics: RankMetrics) -> list[StepEntry]:
    steps, window = metrics.window.steps, metrics.window
    if not len(steps):
        return []
    gpu = metrics.trace.gpu
    start, end = metrics.steps_on_gpu()
    parts = metrics.step_parts(start, end)
    kernels = np.bincount(
        window.step[(window.step >= 0) & (gpu.kind <= WorkKind.COMMUNICATION)], minlength=len(steps)
    ).tolist()
    return [
        StepEntry(
            number=int(steps.number[place]),
            start_ns=int(steps.start[place]) - window.start,
            duration_ns=int(steps.end[place] - steps.start[place]),
            gpu_duration_ns=int(end[place] - start[place]),
            breakdown={name: int(values[place]) for name, values in parts.items()},
            kernels=kernels[place],
        )
        for place in range(len(steps))
    ]
