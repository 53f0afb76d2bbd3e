"""BatchSize: a batch, or a job, that is too small for the instance. Source: AWS documentation of BatchSize."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.core.finding import Fact, Patience
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import NodeDetails, SeriesDetails
from trainguard.rules.batch_size.text import BatchKind, text
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, WindowPoints
from trainguard.rules.rule_inputs import NodeMinute, NodeView, idle_share_of_paid
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.sample_statistics import column_boxes, column_quantiles, counted_boxes
from trainguard.rules.spec import (
    LOW_GPUS,
    PATIENCE_HELP,
    SMALL_WORK,
    SYSTEM,
    WINDOW_HELP,
    ChartLine,
    ParameterHelp,
    RuleSpec,
)
from trainguard.rules.windows import WindowedRule, WindowParameters, never_collected, sampled_enough, warming_up

MEMORY_NOTE = (
    "GPUMemoryUtilization is how busy the memory controller was, not how much memory was in use: a larger batch may "
    "need more memory than it suggests."
)


@dataclass(frozen=True, slots=True)
class BatchUsage:
    """A node over the newest window of W points.

    ``window`` is float64[W, 1 + 2 A]: mean CPU, then utilization and memory activity of the A ``gpus``, NaN without
    sample.
    """

    window: FloatArray
    gpus: tuple[str, ...]
    judged: bool
    cpu: float
    gpu: list[float]
    memory: list[float]

    @property
    def never_seen(self) -> str | None:
        """The series of which the window has no sample."""
        sampled = ~np.isnan(self.window)
        if not sampled[:, 0].any():
            return "CPUUtilization"
        return None if sampled[:, 1 + len(self.gpus) :].any() else "GPUMemoryUtilization"


class SeriesUsage(msgspec.Struct, frozen=True):
    """The CPU, a GPU or its memory; ``window_p95`` is of the newest window, None where that has no sample."""

    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    upper: float | None
    lower: float | None
    window_p95: float | None


class BatchDetails(SeriesDetails, frozen=True, kw_only=True):
    """A node's ``cpu``, ``gpu0``, ``gpu0_memory`` and so on; ``last_timestamp`` in epoch microseconds."""

    series: dict[str, SeriesUsage]
    memory_note: str
    last_timestamp: int | None


def details_of(view: NodeView, usage: BatchUsage) -> BatchDetails:
    gpus = len(usage.gpus)
    cpu, *memory = column_boxes(usage.window[:, [0, *range(1 + gpus, 1 + 2 * gpus)]])
    utilization = counted_boxes(view.gpu_histogram[view.ever_active])
    boxes = {"cpu": (cpu, usage.cpu)}
    for index, name in enumerate(usage.gpus):
        boxes[name] = (utilization[index], usage.gpu[index])
        boxes[f"{name}_memory"] = (memory[index], usage.memory[index])
    return BatchDetails(
        series={
            name: SeriesUsage(window_p95=None if math.isnan(newest) else newest, **box.shown)
            for name, (box, newest) in boxes.items()
            if box is not None and not math.isnan(box.p50)
        },
        memory_note=MEMORY_NOTE,
        last_timestamp=None if view.watermark_s is None else round(view.watermark_s * 1e6),
    )


# What has wasted less of the paid time is a phase of a job whose batches are large enough.
COSTLY_SHARE = 0.15


class BatchSizeParameters(WindowParameters, frozen=True, kw_only=True):
    default_window_s: ClassVar[float | None] = 250.0
    default_patience_s: ClassVar[float | None] = 50.0

    cpu_threshold_p95: Percent = 70.0
    gpu_threshold_p95: Percent = 70.0
    gpu_memory_threshold_p95: Percent = 70.0
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None
    window: WindowPoints | None = None
    window_s: Positive | None = None

    @property
    def thresholds(self) -> tuple[float, float, float]:
        return self.cpu_threshold_p95, self.gpu_threshold_p95, self.gpu_memory_threshold_p95


# A distance of kept points that is so many times the usual one is a pause, or time without samples.
_PAUSED = 2.1


class BatchSizeState(msgspec.Struct, array_like=True):
    """Since which kept point the node has been low at every evaluation, and the kept points judged and found low."""

    since: int | None = None
    judged: int = 0
    low: int = 0
    begun: int | None = None
    onset: float | None = None


class BatchSize(WindowedRule[BatchSizeParameters, BatchSizeState]):
    spec = RuleSpec(
        name="BatchSize",
        title="Batch size",
        looks_at="each node's CPU, GPUs and GPU memory",
        fires_when="all stay low: the batch or the job is too small for the instance",
        condition=(
            "95 % of the newest points are below {cpu_threshold_p95} % of CPU, {gpu_threshold_p95} % of GPU and "
            "{gpu_memory_threshold_p95} % of GPU memory, all at once, while the window moves on by twice its length, "
            "and that costs enough"
        ),
        measures=(Measure("95th percentile of the busiest GPU's utilization", "%"),),
        parameters={
            "cpu_threshold_p95": ParameterHelp("%", "95th percentile of the cores' mean below which the CPU is unused"),
            "gpu_threshold_p95": ParameterHelp("%", "95th percentile below which a GPU is unused"),
            "gpu_memory_threshold_p95": ParameterHelp("%", "95th percentile below which a GPU's memory is unused"),
            **WINDOW_HELP,
            **PATIENCE_HELP,
        },
        shipped_defaults={"patience_s": 500.0},
        managed_parameters=("cpu_threshold_p95", "gpu_threshold_p95", "gpu_memory_threshold_p95", "patience", "window"),
        inputs=SYSTEM,
        metrics=("CPU", "GPU memory"),
        symptom=SMALL_WORK,
        explains=(LOW_GPUS,),
        changes={"": ChangeCode.RAISE_BATCH_SIZE},
        text=text,
        claims={"": (Bucket.UNEXPLAINED, Bucket.HOST, Bucket.IDLE)},
        details=BatchDetails,
        chart_lines=(
            ChartLine("utilization", "gpu_threshold_p95", "p95"),
            ChartLine("memory", "gpu_memory_threshold_p95", "p95"),
            ChartLine("cpu", "cpu_threshold_p95", "p95 of the mean"),
        ),
        section="trainguard.rules.batch_size.section:blocks",
    )

    def observe(self, state: BatchSizeState, minute: NodeMinute, parameters: BatchSizeParameters) -> None:
        usage = self._usage(minute.view, parameters)
        low = _is_low(usage, parameters)
        if usage.judged:
            state.judged += minute.fresh
        if not low:
            state.since, state.begun, state.onset = None, None, None
            return
        state.low += minute.fresh
        if state.since is None or state.begun is None:
            # What an earlier version stored lacks its beginning, and goes on with that of a new one.
            state.since = minute.view.kept_total if state.since is None else state.since
            state.begun, state.onset = _onset(minute.view, usage, parameters)

    def judge_samples(self, state: BatchSizeState, view: NodeView, parameters: BatchSizeParameters) -> RuleResult:
        usage = self._usage(view, parameters)
        details: NodeDetails = details_of(view, usage) if view.detailed else {}
        if not usage.judged:
            return _undecided(state, view, usage, parameters, details)
        needed = self.lasting_points(parameters, view.interval_s)
        lasting = _lasting(state, view)
        lasted = _is_low(usage, parameters) and lasting >= needed
        seen = state.low / state.judged if state.judged else None
        wasted = idle_share_of_paid(view, view.ever_active, seen or 0.0) or 0.0
        fired = lasted and wasted >= COSTLY_SHARE
        busiest = int(np.argmax(usage.gpu))
        kind = BatchKind.LARGE_ENOUGH
        if state.since is not None:
            kind = BatchKind.TOO_SMALL if fired else BatchKind.SMALL_PART if lasted else BatchKind.NOT_LONG_YET
        facts = [*_facts_of(usage, view, parameters.thresholds)]
        if state.since is not None:
            begun = view.work_fact("points_low", lasting, threshold=float(needed))
            facts += _lasted_facts(state, view) if lasted else [begun]
        if lasted:
            facts.append(view.work_fact("unused_share", wasted, unit="share", threshold=COSTLY_SHARE))
        return RuleResult.of_kind(
            text,
            kind,
            tuple(facts),
            measured=usage.gpu[busiest],
            threshold=parameters.gpu_threshold_p95,
            worst=usage.gpus[busiest],
            data_points=view.kept_total,
            progress=Patience(
                seen=min(lasting, needed),
                needed=needed,
                streak=lasting,
                window_points=len(usage.window),
                window_start=float(view.kept_times[-len(usage.window)]),
                window_end=float(view.kept_times[-1]),
            ),
            affected_share=seen,
            wasted_share=wasted if fired else None,
            confidence=min(1.0 - high / limit for high, limit in _highest(usage, parameters)) if fired else None,
            onset=state.onset if fired else None,
            gpus=usage.gpus if fired else (),
            details=details,
        )

    def _usage(self, view: NodeView, parameters: BatchSizeParameters) -> BatchUsage:
        points = self.window_points(parameters, view.interval_s)
        active = np.flatnonzero(view.ever_active)
        window = np.column_stack(
            [
                view.kept_cpu_mean[-points:],
                view.kept_gpu_utilization[-points:, active],
                view.kept_gpu_memory[-points:, active],
            ]
        )
        patience = parameters.patience_points(view.interval_s)
        judged = view.kept_total > patience and bool(active.size) and bool(sampled_enough(window).all())
        cpu, *devices = column_quantiles(window, (0.95,))[0].tolist()
        gpus = view.used_gpus
        return BatchUsage(window, gpus, judged, cpu, devices[: len(gpus)], devices[len(gpus) :])


def _highest(usage: BatchUsage, parameters: BatchSizeParameters) -> Iterator[tuple[float, float]]:
    """Return the 95th percentiles of CPU, the busiest GPU and the busiest GPU memory, each with its threshold."""
    return zip((usage.cpu, max(usage.gpu), max(usage.memory)), parameters.thresholds, strict=True)


def _is_low(usage: BatchUsage, parameters: BatchSizeParameters) -> bool:
    return usage.judged and all(high < threshold for high, threshold in _highest(usage, parameters))


def _lasting(state: BatchSizeState, view: NodeView) -> int:
    """Return for how many points the node has been low: of a job that has ended, from the onset on."""
    if state.since is None:
        return 0
    return view.kept_total - (state.since if state.begun is None or not view.closed else state.begun)


def _onset(view: NodeView, usage: BatchUsage, parameters: BatchSizeParameters) -> tuple[int, float | None]:
    """Return the onset's kept point and time: the window's beginning, or all points where they are low."""
    highest = max(box.p95 for box in counted_boxes(view.gpu_histogram[view.ever_active]))
    if view.first_active_at is not None and highest < parameters.gpu_threshold_p95:
        return 0, view.first_active_at
    points = len(usage.window)
    return view.kept_total - points, float(view.kept_times[-points])


def _undecided(
    state: BatchSizeState, view: NodeView, usage: BatchUsage, parameters: BatchSizeParameters, details: NodeDetails
) -> RuleResult:
    patience = parameters.patience_points(view.interval_s)
    metric = usage.never_seen
    if metric and not state.judged and view.kept_total > (0 if view.closed else patience):
        return never_collected(metric, view)
    if view.kept_total > patience and view.first_active_at is not None:
        return RuleResult.of_kind(
            text,
            BatchKind.UNSAMPLED,
            (view.work_fact("points", view.kept_total),),
            data_points=view.kept_total,
            progress=Patience(seen=view.kept_total, needed=patience),
            details=details,
        )
    return warming_up(view.kept_total, patience, view, details)


def _facts_of(usage: BatchUsage, view: NodeView, thresholds: tuple[float, float, float]) -> Iterator[Fact]:
    points = len(usage.window)
    where: dict[str, Any] = {"start": float(view.kept_times[-points]), "end": float(view.kept_times[-1])}
    gpu, memory = max(usage.gpu), max(usage.memory)
    shown = (
        ("core_utilization", usage.cpu, "CPUUtilization", None),
        ("utilization", gpu, "GPUUtilization", usage.gpus[usage.gpu.index(gpu)]),
        ("memory_activity", memory, "GPUMemoryUtilization", usage.gpus[usage.memory.index(memory)]),
    )
    for (name, value, series, device), threshold in zip(shown, thresholds, strict=True):
        on = {"series": series, "device": device, "threshold": threshold}
        yield view.work_fact(f"p95_{name}_at_work", value, unit="%", **on, **where)
    yield view.work_fact("samples", points, **where)
    yield view.work_fact("window", _time_s(view, points), unit="s", **where)


def _time_s(view: NodeView, points: int) -> float:
    """Return for how long the newest kept points stand, seconds: each until the next one, but not over a pause."""
    times = view.kept_times[-points:]
    distances = np.diff(times)
    usual = median(distances.tolist()) if distances.size else view.interval_s
    goes_on = max(float(view.watermark_s or times[-1]) - float(times[-1]), view.interval_s)
    return float(np.where(distances > _PAUSED * usual, usual, distances).sum()) + min(usual, goes_on)


def _lasted_facts(state: BatchSizeState, view: NodeView) -> list[Fact]:
    newest = float(view.kept_times[-1])
    onset = newest if state.onset is None else min(state.onset, newest)
    begun = (state.since or 0) if state.begun is None else state.begun
    times: dict[str, Any] = {"start": onset, "end": newest}
    return [
        view.work_fact("points_low", view.kept_total - begun, **times),
        view.work_fact("low_time", newest - onset, unit="s", **times),
    ]
