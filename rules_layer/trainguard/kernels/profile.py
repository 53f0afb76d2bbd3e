"""A trace to its part of the document: metrics, kernels, steps, findings, quality."""

import re

import numpy as np

from trainguard.kernels.columns import Ints, Kind, Trace
from trainguard.kernels.document import (
    AnnotationEntry,
    Distribution,
    IdleEntry,
    KernelEntry,
    MemoryEntry,
    Quality,
    RankProfile,
    StepEntry,
)
from trainguard.kernels.findings.finding import Judged
from trainguard.kernels.findings.rules import findings_of
from trainguard.kernels.findings.steps_and_trace import EPOCH_LEAST_NS, damaged, missing
from trainguard.kernels.intervals import merged
from trainguard.kernels.kernel_table import KernelTable, kernel_table
from trainguard.kernels.metrics import RankMetrics, rank_metrics
from trainguard.plain_text import one_line

MOST_KERNELS = 1_000
MOST_ANNOTATIONS = 200
MOST_STEPS = 10_000
BUCKETS = 100
_RANK = re.compile(r"rank[-_ ]?(\d{1,9})", re.IGNORECASE)
_NUMBERED = re.compile(r"[#_\- ]?\d+$")


def rank_profile(trace: Trace) -> RankProfile:
    """Return the profile of a trace."""
    metrics = rank_metrics(trace)
    judged = Judged(metrics, kernel_table(metrics))
    begins = metrics.window.start + trace.base_ns
    sync, source = _synchronization(metrics)
    return RankProfile(
        trace=trace.name,
        rank=_rank(trace),
        world_size=trace.world_size,
        gpus=[gpu.name for gpu in trace.gpus],
        start_unix_ns=begins if begins >= EPOCH_LEAST_NS else None,
        window_ns=metrics.window.length,
        busy_ns=metrics.busy.total,
        compute_ns=metrics.compute.total,
        communication_ns=metrics.communication.total,
        overlap_ns=metrics.overlap_ns,
        exposed_communication_ns=metrics.exposed_communication_ns,
        memory_ns=metrics.memory.total,
        exposed_memory_ns=metrics.exposed_memory_ns,
        launch_delay_ns=_distribution(metrics.delays.after_call),
        launch_to_start_ns=_distribution(metrics.delays.after_start),
        synchronization_ns=sync,
        synchronization_source="gpu" if source else "host",
        idle=IdleEntry(
            host_wait_ns=metrics.idle.host_wait,
            kernel_wait_ns=metrics.idle.kernel_wait,
            other_ns=metrics.idle.other,
        ),
        precision={precision.value: total for precision, total in judged.table.by_precision().items()},
        tensor_core_ns=judged.table.tensor_core_ns,
        utilization=_utilization(metrics),
        steps=_steps(metrics)[:MOST_STEPS],
        kernels=_kernels(judged.table),
        kernels_left_out=max(len(judged.table.lines) - MOST_KERNELS, 0),
        memory_operations=_memory(metrics),
        annotations=_annotations(metrics),
        findings=findings_of(judged),
        quality=Quality(missing=missing(judged), damaged=damaged(trace.tally), counts=trace.tally),
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


def _synchronization(metrics: RankMetrics) -> tuple[int, bool]:
    """Return the time of synchronization and whether the GPU's side recorded it."""
    waits = metrics.trace.waits
    if not len(waits):
        return metrics.host_sync.total, False
    window = metrics.window
    spans = merged(np.maximum(waits.start, window.start), np.minimum(waits.end, window.end))
    return spans.total, True


def _utilization(metrics: RankMetrics) -> list[float]:
    if metrics.window.length < BUCKETS:
        return []
    edges = np.linspace(metrics.window.start, metrics.window.end, BUCKETS + 1).astype(np.int64)
    busy = metrics.busy.within(edges[:-1], edges[1:])
    return [round(float(share), 4) for share in busy / np.diff(edges)]


def _steps(metrics: RankMetrics) -> list[StepEntry]:
    steps, window = metrics.window.steps, metrics.window
    if not len(steps):
        return []
    last = np.full(len(steps), np.iinfo(np.int64).min)
    launched = window.step >= 0
    np.maximum.at(last, window.step[launched], metrics.trace.gpu.rows.end[launched])
    before = np.concatenate(([steps.start[0]], np.maximum.accumulate(last)[:-1]))
    start = np.maximum(steps.start, before)
    end = np.maximum(np.maximum(steps.end, last), start)
    parts = {name: spans.within(start, end) for name, spans in metrics.breakdown.items()}
    parts["other"] = end - start - sum(parts.values())
    return [
        StepEntry(
            number=int(steps.number[place]),
            start_ns=int(steps.start[place]) - window.start,
            duration_ns=int(steps.end[place] - steps.start[place]),
            gpu_duration_ns=int(end[place] - start[place]),
            breakdown={name: int(values[place]) for name, values in parts.items()},
        )
        for place in range(len(steps))
    ]


def _kernels(table: KernelTable) -> list[KernelEntry]:
    return [
        KernelEntry(
            name=line.name,
            count=line.count,
            total_ns=line.total_ns,
            mean_ns=line.mean_ns,
            min_ns=line.min_ns,
            max_ns=line.max_ns,
            p99_ns=line.p99_ns,
            precision=line.says.precision.value,
            tensor_core=line.says.tensor_core,
            communication=line.communication,
        )
        for line in table.lines[:MOST_KERNELS]
    ]


def _memory(metrics: RankMetrics) -> list[MemoryEntry]:
    gpu = metrics.trace.gpu
    chosen = metrics.in_window & (gpu.kind >= Kind.MEMCPY)
    found = []
    for name in np.unique(gpu.rows.name[chosen]):
        mine = chosen & (gpu.rows.name == name)
        sizes = gpu.size[mine]
        found.append(
            MemoryEntry(
                name=metrics.trace.names[int(name)],
                count=int(mine.sum()),
                total_ns=int((gpu.rows.end[mine] - gpu.rows.start[mine]).sum()),
                bytes=sum(sizes.tolist()) if (sizes >= 0).all() else None,
            )
        )
    return sorted(found, key=lambda each: (-each.total_ns, each.name))


def _annotations(metrics: RankMetrics) -> list[AnnotationEntry]:
    marks = metrics.trace.annotations
    groups: dict[str, list[int]] = {}
    for name, lasted in zip(marks.name.tolist(), (marks.end - marks.start).tolist(), strict=True):
        text = metrics.trace.names[name]
        groups.setdefault(_NUMBERED.sub("", text) or text, []).append(lasted)
    found = [
        AnnotationEntry(
            name=one_line(name),
            count=len(each),
            total_ns=sum(each),
            min_ns=min(each),
            median_ns=round(float(np.median(each))),
            max_ns=max(each),
        )
        for name, each in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.total_ns, each.name))[:MOST_ANNOTATIONS]
