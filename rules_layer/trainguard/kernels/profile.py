"""A trace to its part of the document: metrics, kernels, steps, findings, quality."""

import re

import numpy as np
from msgspec.structs import replace

from trainguard.kernels.activity import (
    activity,
    device_entries,
    edges_of,
    gpu_idle,
    launches,
    mean_shares,
    shares,
    step_times,
    steps_of,
    streams_entries,
    synchronization,
    temporal,
)
from trainguard.kernels.annotations import annotations_of
from trainguard.kernels.collectives import collective_steps_of, collectives_of
from trainguard.kernels.columns import Ints, Trace
from trainguard.kernels.critical_path import critical_paths
from trainguard.kernels.document import Distribution, Quality, RankProfile
from trainguard.kernels.kernel_table import kernel_lines
from trainguard.kernels.memory_operations import memory_operations
from trainguard.kernels.metrics import rank_metrics
from trainguard.kernels.operators import operators_of, peaks_entry
from trainguard.kernels.rules.finding import Judged
from trainguard.kernels.rules.of_rank import findings_of
from trainguard.kernels.rules.trace_quality import EPOCH_LEAST_NS, damaged, missing

MOST_KERNELS = 1_000
MOST_ANNOTATIONS = 200
MOST_STEPS = 10_000
MOST_STREAMS = 64
MOST_COLLECTIVES = 200
MOST_OPERATORS = 200
MOST_COMPARED, MOST_COMPARED_STEPS = 8, 500
_RANK = re.compile(r"rank[-_ ]?(\d{1,9})", re.IGNORECASE)


def rank_profile(trace: Trace) -> RankProfile:
    """Return the profile of a trace."""
    metrics = rank_metrics(trace)
    judged = Judged(metrics, kernel_lines(metrics))
    return _with_details(_overview(judged), judged)


def _overview(judged: Judged) -> RankProfile:
    trace, metrics, kernels = judged.trace, judged.metrics, judged.kernels
    begins = metrics.window.start + trace.base_ns
    sync, source = synchronization(metrics)
    edges = edges_of(metrics.window)
    steps = steps_of(metrics)
    host_busy = metrics.host_busy()
    return RankProfile(
        trace=trace.name,
        rank=_rank(trace),
        world_size=trace.world_size,
        gpus=[gpu.name for gpu in trace.gpus],
        start_unix_ns=begins if begins >= EPOCH_LEAST_NS else None,
        window_ns=metrics.window.length,
        busy_ns=metrics.busy_ns,
        compute_ns=metrics.compute_ns,
        communication_ns=metrics.communication_ns,
        overlap_ns=metrics.overlap_ns,
        exposed_communication_ns=metrics.exposed_communication_ns,
        memory_ns=metrics.memory_ns,
        exposed_memory_ns=metrics.exposed_memory_ns,
        launch_delay_ns=_distribution(metrics.delays.after_call),
        launch_to_start_ns=_distribution(metrics.delays.after_start),
        synchronization_ns=sync,
        synchronization_source="gpu" if source else "host",
        idle=metrics.idle,
        gpu_idle=gpu_idle(metrics),
        precision=judged.by_precision(),
        tensor_core_ns=judged.tensor_core_ns,
        utilization=mean_shares(metrics.gpus, edges),
        steps=steps[:MOST_STEPS],
        steps_left_out=max(len(steps) - MOST_STEPS, 0),
        kernels=[line.entry() for line in kernels[:MOST_KERNELS]],
        kernels_left_out=max(len(kernels) - MOST_KERNELS, 0),
        memory_operations=memory_operations(metrics),
        annotations=[],
        findings=findings_of(judged),
        quality=Quality(
            missing=[fault.words for fault in missing(judged)],
            damaged=[fault.words for fault in damaged(trace.tally)],
            counts=trace.tally,
            steps_lost=metrics.window.steps_lost,
            is_whole=metrics.window.is_whole,
        ),
        counters=trace.counters,
        step_times=step_times(steps),
        host_busy_ns=host_busy.total,
        host_utilization=shares(host_busy, edges),
        framework=trace.framework.value,
    )


def _with_details(profile: RankProfile, judged: Judged) -> RankProfile:
    metrics = judged.metrics
    annotations, collectives = annotations_of(judged.trace, judged.window), collectives_of(metrics)
    operators, operators_left_out = operators_of(metrics, judged.kernels, MOST_OPERATORS)
    rest, parts = judged.kernels[MOST_KERNELS:], profile.utilization
    return replace(
        profile,
        kernels_left_out_ns=sum(line.total_ns for line in rest),
        kernels_left_out_count=sum(line.count for line in rest),
        active_share=round(sum(part > 0 for part in parts) / len(parts), 4) if parts else None,
        temporal=temporal(metrics),
        activity=activity(metrics),
        communication_kernels_ns=sum(line.total_ns for line in judged.kernels if line.communication),
        eligible_ns=judged.eligible_ns,
        launches=launches(metrics),
        devices=device_entries(metrics),
        streams=streams_entries(metrics, MOST_STREAMS),
        streams_left_out=max(len(metrics.streams) - MOST_STREAMS, 0),
        annotations=annotations[:MOST_ANNOTATIONS],
        annotations_left_out=max(len(annotations) - MOST_ANNOTATIONS, 0),
        collectives=collectives[:MOST_COLLECTIVES],
        collectives_left_out=max(len(collectives) - MOST_COLLECTIVES, 0),
        collective_steps=collective_steps_of(metrics, MOST_COMPARED, MOST_COMPARED_STEPS),
        operators=operators,
        operators_left_out=operators_left_out,
        peaks=peaks_entry(judged.trace.gpus),
        critical_paths=critical_paths(metrics),
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
