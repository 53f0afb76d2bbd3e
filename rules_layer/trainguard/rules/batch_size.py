"""BatchSize: a batch, or a job, that is too small for the instance.

Source: AWS documentation of BatchSize (the rule fires when the 95th quantiles of CPU utilization, GPU utilization and
GPU memory utilization are all below their thresholds over the window). What is added: start-up, pauses and tail are
left out, all of a node's used GPUs must be low, and this must last while the window moves on by twice its length.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.paid_time import idle_share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, RuleParameters, SystemRule, WindowPoints
from trainguard.rules.quantiles import Box, column_boxes, column_quantiles, counted_boxes
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.units import counted, show_duration, show_percent
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.rules.warm_up import never_collected, progress_of, warming_up_reason
from trainguard.rules.windowing import LASTING_WINDOWS, patience_in_points, sampled_enough, window_in_points
from trainguard.telemetry.snapshots import FloatArray

MEMORY_NOTE = (
    "GPUMemoryUtilization is how busy the memory controller was, not how much memory was in use: a larger batch may "
    "need more memory than it suggests."
)


class BatchSizeParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window`` and ``patience`` in points, or in seconds as ``window_s``, ``patience_s``."""

    cpu_threshold_p95: Percent = 70.0
    gpu_threshold_p95: Percent = 70.0
    gpu_memory_threshold_p95: Percent = 70.0
    patience: NonNegativeInt = 100
    patience_s: Positive | None = None
    window: WindowPoints = 500
    window_s: Positive | None = None


SPEC = RuleSpec(
    name="BatchSize",
    title="Batch size",
    looks_at="each node's CPU, GPUs and GPU memory",
    fires_when="neither is put to use for long: the batch or the job is too small for the instance",
    condition=(
        "95 % of the newest points are below {cpu_threshold_p95} % of CPU, {gpu_threshold_p95} % of GPU and "
        "{gpu_memory_threshold_p95} % of GPU memory, all at once, while the window moves on by twice its length"
    ),
    measures=(Measure("95th percentile of the busiest GPU's utilization", "%"),),
    parameters={
        "cpu_threshold_p95": ParameterHelp("%", "95th percentile of the cores' mean below which the CPU is unused"),
        "gpu_threshold_p95": ParameterHelp("%", "95th percentile below which a GPU is unused"),
        "gpu_memory_threshold_p95": ParameterHelp("%", "95th percentile below which a GPU's memory is unused"),
        **WINDOW_HELP,
        **PATIENCE_HELP,
    },
    shipped_defaults={"patience": 1_000},
    managed_parameters=("cpu_threshold_p95", "gpu_threshold_p95", "gpu_memory_threshold_p95", "patience", "window"),
    inputs=SYSTEM,
    metrics=("CPU", "GPU memory"),
    symptom=SMALL_WORK,
    explains=(LOW_GPUS,),
    seen_with=(LOW_GPUS,),
    clause="the batches, or the whole job, were too small for the instance",
    section="trainguard.report.html.sections.batch_size:blocks",
)


class BatchSizeState(msgspec.Struct, array_like=True):
    """Since which kept point the node has been low at every evaluation, and the kept points judged and found low."""

    since: int | None = None
    judged: int = 0
    low: int = 0


@dataclass(frozen=True, slots=True)
class _Usage:
    """What a node did over the newest window of W points.

    ``window`` is float64[W, 1 + 2 A]: mean CPU, then utilization and memory activity of the A ever-active ``gpus``;
    the 95th quantiles are of its columns, NaN where a series has no sample.
    """

    window: FloatArray
    gpus: tuple[str, ...]
    judged: bool
    cpu: float
    gpu: list[float]
    memory: list[float]

    def is_low(self, parameters: BatchSizeParameters) -> bool:
        """Tell whether every 95th quantile is below its threshold."""
        return (
            self.judged
            and self.cpu < parameters.cpu_threshold_p95
            and max(self.gpu) < parameters.gpu_threshold_p95
            and max(self.memory) < parameters.gpu_memory_threshold_p95
        )

    def room(self, parameters: BatchSizeParameters) -> float:
        """Return which share of its threshold the fullest of the three leaves unused: how sure it is the batch."""
        return min(
            1.0 - self.cpu / parameters.cpu_threshold_p95,
            1.0 - max(self.gpu) / parameters.gpu_threshold_p95,
            1.0 - max(self.memory) / parameters.gpu_memory_threshold_p95,
        )


class BatchSize(SystemRule[BatchSizeParameters, BatchSizeState]):
    """Fires when neither the CPU nor any used GPU of a node is put to use for long."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = BatchSizeParameters
    state_type = BatchSizeState

    def clear_after_s(self, parameters: BatchSizeParameters, interval_s: float) -> float:
        """Three windows."""
        return 3.0 * self.window_points(parameters, interval_s) * interval_s

    def window_points(self, parameters: BatchSizeParameters, interval_s: float) -> int:
        """``window``, or ``window_s`` in points, at least 20; RuleConfigError over 2,000."""
        return window_in_points(self.name, parameters.window, parameters.window_s, interval_s)

    def observe(self, state: BatchSizeState, minute: NodeMinute, parameters: BatchSizeParameters) -> None:
        """Evaluate the node once: a streak goes on while everything is low, and ends at any other answer."""
        usage = self._usage(minute.view, parameters)
        low = usage.is_low(parameters)
        if usage.judged:
            state.judged += minute.fresh
        if not low:
            state.since = None
            return
        state.low += minute.fresh
        if state.since is None:
            state.since = minute.view.kept_total

    def judge(self, state: BatchSizeState, view: NodeView, parameters: BatchSizeParameters) -> Judgement:
        """Say FIRED for a streak over two windows."""
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if not view.gpu_names:
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has no GPU.")
        usage = self._usage(view, parameters)
        details = _details(view, usage)
        if not usage.judged:
            return _undecided(state, view, usage, parameters, details)
        window = self.window_points(parameters, view.interval_s)
        lasting = 0 if state.since is None else view.kept_total - state.since
        fired = usage.is_low(parameters) and lasting >= LASTING_WINDOWS * window
        busiest = int(np.argmax(usage.gpu))
        sentence = _sentence(usage, view, parameters)
        if state.since is not None:
            lasted = f"lasted for {counted(lasting, 'point')} ({show_duration(lasting * view.interval_s)})"
            sentence += f"; this has {lasted if lasting else 'just begun'}"
            if not fired:
                sentence += f", and counts from {counted(LASTING_WINDOWS * window, 'point')} on"
        seen = state.low / state.judged if state.judged else None
        return Judgement(
            Status.FIRED if fired else Status.OK,
            f"{sentence}.",
            measured=usage.gpu[busiest],
            threshold=parameters.gpu_threshold_p95,
            worst=usage.gpus[busiest],
            data_points=view.kept_total,
            advice=_advice(usage, view) if fired else None,
            affected_share=seen,
            wasted_share=idle_share_of_paid(view, view.ever_active, seen or 0.0) if fired else None,
            confidence=usage.room(parameters) if fired else None,
            details=details,
        )

    def _usage(self, view: NodeView, parameters: BatchSizeParameters) -> _Usage:
        """Evaluate a node's mean CPU and ever-active GPUs over the newest window, after ``patience`` points."""
        points = self.window_points(parameters, view.interval_s)
        active = np.flatnonzero(view.ever_active)
        window = np.column_stack(
            [
                view.kept_cpu_mean[-points:],
                view.kept_gpu_utilization[-points:, active],
                view.kept_gpu_memory[-points:, active],
            ]
        )
        patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
        judged = view.kept_total > patience and bool(active.size) and bool(sampled_enough(window).all())
        cpu, *devices = column_quantiles(window, (0.95,))[0].tolist()
        gpus = tuple(view.gpu_names[index] for index in active.tolist())
        return _Usage(window, gpus, judged, cpu, devices[: len(gpus)], devices[len(gpus) :])


def _undecided(
    state: BatchSizeState,
    view: NodeView,
    usage: _Usage,
    parameters: BatchSizeParameters,
    details: dict[str, Any],
) -> Judgement:
    patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
    metric = _never_seen(usage)
    if metric and not state.judged and view.kept_total > (0 if view.closed else patience):
        return never_collected(metric, view)
    reason = warming_up_reason(view.kept_total, patience, view)
    if view.kept_total > patience:
        reason = (
            f"too few of the newest points of {view.node} have samples of the CPU and of every used GPU's utilization "
            "and memory activity."
        )
    return Judgement(
        Status.WARMING_UP,
        reason,
        data_points=view.kept_total,
        patience=progress_of(view.kept_total, patience),
        details=details,
    )


def _never_seen(usage: _Usage) -> str | None:
    """Name the metric of which the window has no sample; that a GPU was used says that utilization has some."""
    sampled = ~np.isnan(usage.window)
    if not sampled[:, 0].any():
        return "CPU utilization"
    return None if sampled[:, 1 + len(usage.gpus) :].any() else "GPU memory activity"


def _sentence(usage: _Usage, view: NodeView, parameters: BatchSizeParameters) -> str:
    points = len(usage.window)
    gpu, memory = max(usage.gpu), max(usage.memory)
    busiest, busiest_memory = usage.gpus[usage.gpu.index(gpu)], usage.gpus[usage.memory.index(memory)]
    return (
        f"over the last {points:,} points ({show_duration(points * view.interval_s)}) the 95th percentiles on "
        f"{view.node} are {show_percent(usage.cpu)} of CPU (threshold {show_percent(parameters.cpu_threshold_p95)}), "
        f"at most {show_percent(gpu)} of GPU utilization ({busiest}, threshold "
        f"{show_percent(parameters.gpu_threshold_p95)}) and at most {show_percent(memory)} of GPU memory activity "
        f"({busiest_memory}, threshold {show_percent(parameters.gpu_memory_threshold_p95)})"
    )


def _advice(usage: _Usage, view: NodeView) -> str:
    high = max(usage.gpu)
    return (
        f"Raise the batch size, or take a smaller instance: even the busiest GPU, {usage.gpus[usage.gpu.index(high)]}, "
        f"is at or below {show_percent(high)} in 95 % of the newest points of {view.node}."
    )


def _details(view: NodeView, usage: _Usage) -> dict[str, Any]:
    """Boxes: utilization over all kept points, CPU and memory activity over the newest window."""
    gpus = len(usage.gpus)
    cpu, *memory = column_boxes(usage.window[:, [0, *range(1 + gpus, 1 + 2 * gpus)]])
    utilization = counted_boxes(view.gpu_histogram[view.ever_active])
    boxes = {"cpu": (cpu, usage.cpu)}
    for index, name in enumerate(usage.gpus):
        boxes[name] = (utilization[index], usage.gpu[index])
        boxes[f"{name}_memory"] = (memory[index], usage.memory[index])
    return {
        **{name: _shown(box, newest) for name, (box, newest) in boxes.items() if box is not None},
        "memory_note": MEMORY_NOTE,
        "last_timestamp": None if view.through is None else round(view.through * 1e6),
    }


def _shown(box: Box, newest: float) -> dict[str, float | None]:
    shown = {name: getattr(box, name) for name in ("p25", "p50", "p75", "p95", "upper", "lower")}
    return {**shown, "window_p95": None if math.isnan(newest) else newest}
