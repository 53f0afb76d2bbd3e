"""BatchSize: a batch, or a job, that is too small for the instance.

Source: AWS documentation of BatchSize (the rule fires when the 95th quantiles of CPU utilization, GPU utilization and
GPU memory utilization are all below their thresholds over the window). What is added: start-up, pauses and tail are
left out, all of a node's used GPUs must be low, this must last while the window moves on by twice its length, and it
must have cost enough of the job's time: a batch is too small for a job, and not for its evaluation.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.finding import Fact, Progress
from trainguard.ledger.bucket import Bucket
from trainguard.records import Status
from trainguard.rules.batch_details import BatchDetails, Usage, details_of
from trainguard.rules.batch_size_text import BatchKind, text
from trainguard.rules.details import NodeDetails
from trainguard.rules.paid_time import idle_share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, WindowPoints
from trainguard.rules.quantiles import column_quantiles, counted_boxes
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, ChartLine, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, SMALL_WORK
from trainguard.rules.warm_up import never_collected, node_fact, warming_up
from trainguard.rules.windowing import WindowedRule, WindowParameters, sampled_enough

COSTLY_SHARE = 0.15
"""What has wasted less of the paid time is a phase of a job whose batches are large enough."""


class BatchSizeParameters(WindowParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window_s`` and ``patience_s`` in seconds, or ``window`` and ``patience`` in points."""

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
        """Those of CPU, GPUs and GPU memory."""
        return self.cpu_threshold_p95, self.gpu_threshold_p95, self.gpu_memory_threshold_p95


SPEC = RuleSpec(
    name="BatchSize",
    title="Batch size",
    looks_at="each node's CPU, GPUs and GPU memory",
    fires_when="all stay low: the batch or the job is too small for the instance",
    condition=(
        "95 % of the newest points are below {cpu_threshold_p95} % of CPU, {gpu_threshold_p95} % of GPU and "
        "{gpu_memory_threshold_p95} % of GPU memory, all at once, while the window moves on by twice its length, and "
        "that costs enough"
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
    seen_with=(LOW_GPUS,),
    text=text,
    claims={"": (Bucket.UNEXPLAINED, Bucket.HOST, Bucket.IDLE)},
    details=BatchDetails,
    chart_lines=(
        ChartLine("utilization", "gpu_threshold_p95", "p95"),
        ChartLine("memory", "gpu_memory_threshold_p95", "p95"),
        ChartLine("cpu", "cpu_threshold_p95", "p95 of the mean"),
    ),
    section="trainguard.report.html.sections.batch_size:blocks",
)


class BatchSizeState(msgspec.Struct, array_like=True):
    """Since which kept point the node has been low at every evaluation, and the kept points judged and found low.

    ``begun`` is the kept point at which that began in the data, ``onset`` its time, epoch seconds.
    """

    since: int | None = None
    judged: int = 0
    low: int = 0
    begun: int | None = None
    onset: float | None = None


class BatchSize(WindowedRule[BatchSizeParameters, BatchSizeState]):
    """Fires when neither the CPU nor any used GPU of a node is put to use for long."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = BatchSizeParameters
    state_type = BatchSizeState

    def observe(self, state: BatchSizeState, minute: NodeMinute, parameters: BatchSizeParameters) -> None:
        """Evaluate the node once: a streak goes on while everything is low, and ends at any other answer."""
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
        """Say FIRED for a streak over two windows that has cost enough."""
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
            facts += _lasting_facts(lasting, view, None if lasted else needed)
        if lasted:
            facts.append(node_fact("unused_share", wasted, view, unit="share", threshold=COSTLY_SHARE))
        return RuleResult.of(
            text,
            Status.FIRED if fired else Status.OK,
            kind,
            tuple(facts),
            measured=usage.gpu[busiest],
            threshold=parameters.gpu_threshold_p95,
            worst=usage.gpus[busiest],
            data_points=view.kept_total,
            progress=Progress(
                seen=min(lasting, needed),
                needed=needed,
                streak=lasting,
                window_points=len(usage.window),
                window_start=float(view.kept_times[-len(usage.window)]),
                window_end=float(view.kept_times[-1]),
            ),
            affected_share=seen,
            wasted_share=wasted if fired else None,
            confidence=_room(usage, parameters) if fired else None,
            onset=state.onset if fired else None,
            gpus=usage.gpus if fired else (),
            details=details,
        )

    def _usage(self, view: NodeView, parameters: BatchSizeParameters) -> Usage:
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
        patience = parameters.patience_points(view.interval_s)
        judged = view.kept_total > patience and bool(active.size) and bool(sampled_enough(window).all())
        cpu, *devices = column_quantiles(window, (0.95,))[0].tolist()
        gpus = tuple(view.gpu_names[index] for index in active.tolist())
        return Usage(window, gpus, judged, cpu, devices[: len(gpus)], devices[len(gpus) :])


def _is_low(usage: Usage, parameters: BatchSizeParameters) -> bool:
    """Tell whether every 95th quantile is below its threshold."""
    if not usage.judged:
        return False
    highest = usage.cpu, max(usage.gpu), max(usage.memory)
    return all(high < threshold for high, threshold in zip(highest, parameters.thresholds, strict=True))


def _lasting(state: BatchSizeState, view: NodeView) -> int:
    """Return for how many points the node has been low: of a job that has ended, from the onset on."""
    if state.since is None:
        return 0
    return view.kept_total - (state.since if state.begun is None or not view.closed else state.begun)


def _onset(view: NodeView, usage: Usage, parameters: BatchSizeParameters) -> tuple[int, float | None]:
    """Return the kept point and the time at which what is seen now began.

    That is the beginning of the window, or all points where the GPUs were low in them.
    """
    highest = max(box.p95 for box in counted_boxes(view.gpu_histogram[view.ever_active]))
    if view.first_active_at is not None and highest < parameters.gpu_threshold_p95:
        return 0, view.first_active_at
    points = len(usage.window)
    return view.kept_total - points, float(view.kept_times[-points])


def _room(usage: Usage, parameters: BatchSizeParameters) -> float:
    """Return which share of its threshold the fullest of the three leaves unused: how sure it is the batch."""
    highest = usage.cpu, max(usage.gpu), max(usage.memory)
    return min(1.0 - high / threshold for high, threshold in zip(highest, parameters.thresholds, strict=True))


def _undecided(
    state: BatchSizeState, view: NodeView, usage: Usage, parameters: BatchSizeParameters, details: NodeDetails
) -> RuleResult:
    patience = parameters.patience_points(view.interval_s)
    metric = usage.never_seen
    if metric and not state.judged and view.kept_total > (0 if view.closed else patience):
        return never_collected(metric, view)
    if view.kept_total > patience and view.first_active_at is not None:
        return RuleResult.of(
            text,
            Status.WARMING_UP,
            BatchKind.UNSAMPLED,
            (node_fact("points", view.kept_total, view),),
            data_points=view.kept_total,
            progress=Progress(seen=view.kept_total, needed=patience),
            details=details,
        )
    return warming_up(view.kept_total, patience, view, details)


def _facts_of(usage: Usage, view: NodeView, thresholds: tuple[float, float, float]) -> Iterator[Fact]:
    """Yield the 95th percentiles of the newest window: of CPU, the busiest GPU, and the most active GPU memory."""
    points = len(usage.window)
    where: dict[str, Any] = {
        "node": view.node,
        "start": float(view.kept_times[-points]),
        "end": float(view.kept_times[-1]),
    }
    gpu, memory = max(usage.gpu), max(usage.memory)
    shown = (
        ("core_utilization", usage.cpu, "CPUUtilization", None),
        ("utilization", gpu, "GPUUtilization", usage.gpus[usage.gpu.index(gpu)]),
        ("memory_activity", memory, "GPUMemoryUtilization", usage.gpus[usage.memory.index(memory)]),
    )
    for (name, value, series, device), threshold in zip(shown, thresholds, strict=True):
        yield Fact(
            name=f"p95_{name}_at_work",
            value=value,
            unit="%",
            series=series,
            device=device,
            threshold=threshold,
            **where,
        )
    yield Fact(name="samples", value=points, **where)
    yield Fact(name="window", value=points * _distance_s(view, points), unit="s", **where)


def _distance_s(view: NodeView, points: int) -> float:
    """Return the usual distance of the newest kept points, seconds, as they were sampled."""
    distances = np.sort(np.diff(view.kept_times[-points:]))
    count = distances.size
    return float(distances[(count - 1) // 2] + distances[count // 2]) / 2.0 if count else view.interval_s


def _lasting_facts(points: int, view: NodeView, needed: int | None) -> list[Fact]:
    """Return for how many points all has been low; ``needed`` is from how many on it counts, None where it does."""
    threshold = None if needed is None else float(needed)
    low_s = points * _distance_s(view, len(view.kept_times))
    return [node_fact("points_low", points, view, threshold=threshold), node_fact("low_time", low_s, view, unit="s")]
