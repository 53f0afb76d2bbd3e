"""LowGPUUtilization: GPUs that are not busy, or not steadily so.

Source: AWS documentation of LowGPUUtilization (a 95th quantile below threshold_p95 says that utilization is low; above
it, a 5th quantile below threshold_p5 says that it fluctuates). What is added: the kind must last while the window moves
on by twice its length, pauses are left out, and a node that idles is a finding of its own.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import IdleNode, Judgement, Measure
from trainguard.rules.paid_time import idle_share_of_paid, share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, RuleParameters, SystemRule, WindowPoints
from trainguard.rules.quantiles import column_quantiles, counted_boxes
from trainguard.rules.spans import (
    LASTING_WINDOWS,
    patience_in_points,
    progress_of,
    sampled_enough,
    warming_up_reason,
    window_in_points,
)
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, NO_REASON
from trainguard.rules.units import counted, show_duration, show_percent
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.telemetry.snapshots import BoolArray

Kind = Literal["under", "fluctuating"]

IDLE_FINDING_S = 1_200.0
"""A node that is idle for longer is a finding of its own; up to here it is start-up, a pause or the tail."""


class LowGPUUtilizationParameters(RuleParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window`` and ``patience`` in points, or in seconds as ``window_s``, ``patience_s``."""

    threshold_p95: Percent = 70.0
    threshold_p5: Percent = 10.0
    window: WindowPoints = 500
    window_s: Positive | None = None
    patience: NonNegativeInt = 1_000
    patience_s: Positive | None = None


P95 = Measure("95th percentile of GPU utilization", "%")
P5 = Measure("5th percentile of GPU utilization", "%")
IDLE_TIME = Measure("time without a GPU in use", "min")


def _clause(judgement: Judgement, _: int) -> str:
    node = "a node" if judgement.worst is None else judgement.worst.partition("/")[0]
    if judgement.idle_node == "never used":
        return f"the GPUs of {node} were never used"
    if judgement.idle_node == "idle":
        return f"the GPUs of {node} stopped working"
    return f"the GPUs were not kept busy, {NO_REASON}"


SPEC = RuleSpec(
    name="LowGPUUtilization",
    title="GPU utilization",
    looks_at="each node's GPUs",
    fires_when="a GPU stays under-utilised or keeps fluctuating; a node idles or was never used",
    condition=(
        "95 % of a GPU's newest points stay below {threshold_p95} %, or 5 % of them below {threshold_p5} %, at "
        "every evaluation while the window moves on by twice its length; or all GPUs of a node idle for 20 min"
    ),
    measures=(P95, P5, IDLE_TIME),
    parameters={
        "threshold_p95": ParameterHelp("%", "a GPU whose 95th percentile is below it is under-utilised"),
        "threshold_p5": ParameterHelp("%", "else, one whose 5th percentile is below it fluctuates"),
        **WINDOW_HELP,
        **PATIENCE_HELP,
    },
    managed_parameters=("threshold_p95", "threshold_p5", "window", "patience"),
    inputs=SYSTEM,
    symptom=LOW_GPUS,
    clause=_clause,
    section="trainguard.report.html.sections.low_gpu_utilization:blocks",
)


class Streak(msgspec.Struct, array_like=True):
    """Since which kept point a GPU has been of one kind at every evaluation."""

    kind: Kind
    since: int


class LowGPUUtilizationState(msgspec.Struct, array_like=True):
    """One streak for each GPU that is of some kind now, in the GPUs' order; at most the node's GPUs.

    ``judged`` counts the kept points that were added at evaluations which judged some GPU, ``low`` those of them at
    which a GPU was of some kind.
    """

    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    judged: int = 0
    low: int = 0


@dataclass(frozen=True, slots=True)
class _Usage:
    """What one ever-active GPU did over the newest window; ``kind`` is None while nothing is wrong or not judged."""

    gpu: str
    points: int
    judged: bool
    p95: float
    p5: float
    kind: Kind | None


class LowGPUUtilization(SystemRule[LowGPUUtilizationParameters, LowGPUUtilizationState]):
    """Fires for a GPU that is under-utilised or fluctuates for long, and for a node that idles or was never used."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LowGPUUtilizationParameters
    state_type = LowGPUUtilizationState

    def clear_after_s(self, parameters: LowGPUUtilizationParameters, interval_s: float) -> float:
        """Three windows."""
        return 3.0 * self.window_points(parameters, interval_s) * interval_s

    def window_points(self, parameters: LowGPUUtilizationParameters, interval_s: float) -> int:
        """``window``, or ``window_s`` in points, at least 20; RuleConfigError over 2,000."""
        return window_in_points(self.name, parameters.window, parameters.window_s, interval_s)

    def observe(
        self, state: LowGPUUtilizationState, minute: NodeMinute, parameters: LowGPUUtilizationParameters
    ) -> None:
        """Evaluate every GPU once: a streak goes on while the kind stays the same, and ends at any other answer."""
        view = minute.view
        streaks = {}
        usages = self._usages(view, parameters)
        for usage in usages:
            if usage.kind is None:
                continue
            streak = state.streaks.get(usage.gpu)
            if streak is None or streak.kind != usage.kind:
                streak = Streak(usage.kind, view.kept_total)
            streaks[usage.gpu] = streak
        state.streaks = streaks
        state.judged += minute.fresh if any(usage.judged for usage in usages) else 0
        state.low += minute.fresh if streaks else 0

    def judge(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> Judgement:
        """Say FIRED for a streak over two windows, or for a node idle over 20 minutes."""
        if view.through is None:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        if not view.gpu_names:
            return Judgement(Status.NOT_APPLICABLE, f"{view.node} has no GPU.")
        usages = self._usages(view, parameters)
        details = _details(view, usages)
        if view.idle_run_s > IDLE_FINDING_S:
            return _judge_idle(view, details)
        if not any(usage.judged for usage in usages):
            return _warming_up(view, usages, parameters, details)
        return self._judge_streaks(state, view, usages, parameters, details)

    def _usages(self, view: NodeView, parameters: LowGPUUtilizationParameters) -> list[_Usage]:
        """Evaluate each ever-active GPU over the last window of kept points, once it has more than ``patience``."""
        if not view.gpu_names:
            return []
        patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
        values = view.kept_gpu_utilization[-self.window_points(parameters, view.interval_s) :]
        sampled = sampled_enough(values).tolist()
        points = view.gpu_histogram.sum(axis=1).tolist()
        highs, lows = column_quantiles(values, (0.95, 0.05)).tolist()
        usages = []
        for index in np.flatnonzero(view.ever_active).tolist():
            judged = points[index] > patience and sampled[index]
            p95, p5 = highs[index], lows[index]
            kind: Kind | None = None
            if judged and p95 < parameters.threshold_p95:
                kind = "under"
            elif judged and p5 < parameters.threshold_p5:
                kind = "fluctuating"
            usages.append(_Usage(view.gpu_names[index], points[index], judged, p95, p5, kind))
        return usages

    def _judge_streaks(
        self,
        state: LowGPUUtilizationState,
        view: NodeView,
        usages: list[_Usage],
        parameters: LowGPUUtilizationParameters,
        details: dict[str, Any],
    ) -> Judgement:
        window = self.window_points(parameters, view.interval_s)
        lasting = {gpu: view.kept_total - streak.since for gpu, streak in state.streaks.items()}
        judged = [usage for usage in usages if usage.judged]
        fired = [usage for usage in judged if lasting.get(usage.gpu, 0) >= LASTING_WINDOWS * window]
        low = [usage for usage in judged if usage.kind is not None]
        worst = min(fired or low or judged, key=lambda usage: (usage.p95, usage.p5))
        sentence = _sentence(worst, view, min(window, len(view.kept_times)), parameters)
        if worst.gpu in lasting:
            points = lasting[worst.gpu]
            lasted = f"for {counted(points, 'point')} ({show_duration(points * view.interval_s)})"
            sentence += f", {lasted if points else 'just now'}"
            if not fired:
                sentence += f"; that counts from {counted(LASTING_WINDOWS * window, 'point')} on"
        if len(fired) > 1:
            sentence += f"; {len(fired)} GPUs of {view.node} are low"
        fluctuating = worst.kind == "fluctuating"
        seen = state.low / state.judged if state.judged else None
        return Judgement(
            Status.FIRED if fired else Status.OK,
            f"{sentence}.",
            measured=worst.p5 if fluctuating else worst.p95,
            threshold=parameters.threshold_p5 if fluctuating else parameters.threshold_p95,
            measure=P5 if fluctuating else P95,
            worst=worst.gpu,
            data_points=view.kept_total,
            advice=_advice(worst, view) if fired else None,
            affected_share=seen,
            wasted_share=idle_share_of_paid(view, _chosen(view, fired), seen or 0.0) if fired else None,
            details=details,
        )


def _chosen(view: NodeView, usages: list[_Usage]) -> BoolArray:
    """Tell which of the node's GPUs ``usages`` speak of: bool[G]."""
    return np.isin(view.gpu_names, [usage.gpu for usage in usages])


def _advice(worst: _Usage, view: NodeView) -> str:
    if worst.kind == "fluctuating":
        return (
            f"Look for what {worst.gpu} on {view.node} waits for again and again, idle at {show_percent(worst.p5)} and "
            f"then busy at {show_percent(worst.p95)}: data, checkpoints, other workers or blocking calls between steps."
        )
    return (
        f"Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have "
        f"nothing more to do, take a smaller instance: {worst.gpu} on {view.node} leaves "
        f"{show_percent(100.0 - worst.p95)} or more unused in 95 % of the newest points."
    )


def _warming_up(
    view: NodeView, usages: list[_Usage], parameters: LowGPUUtilizationParameters, details: dict[str, Any]
) -> Judgement:
    patience = patience_in_points(parameters.patience, parameters.patience_s, view.interval_s)
    points = max((usage.points for usage in usages), default=0)
    reason = warming_up_reason(points, patience, view)
    progress = progress_of(points, patience)
    return Judgement(Status.WARMING_UP, reason, data_points=points, patience=progress, details=details)


def _judge_idle(view: NodeView, details: dict[str, Any]) -> Judgement:
    idle = show_duration(view.idle_run_s)
    kind: IdleNode
    if view.first_active_at is None:
        kind, reason = "never used", f"no GPU of {view.node} was used in the {idle} since its first sample"
        advice = f"Check that the script places the model on the GPUs of {view.node}: {idle} were paid for without use."
    else:
        kind, reason = "idle", f"every GPU of {view.node} has been idle for {idle}"
        advice = (
            f"Check whether the job hangs on {view.node}, and stop it if it does: {idle} were paid for without use."
        )
    idle_share = share_of_paid(view, view.idle_run_s)
    return Judgement(
        Status.FIRED,
        f"{kind}: {reason} (allowed {show_duration(IDLE_FINDING_S)}).",
        measured=view.idle_run_s / 60.0,
        threshold=IDLE_FINDING_S / 60.0,
        measure=IDLE_TIME,
        data_points=view.kept_total,
        advice=advice,
        affected_share=idle_share,
        wasted_share=idle_share,
        idle_node=kind,
        details={**details, "finding": kind},
    )


def _sentence(usage: _Usage, view: NodeView, window: int, parameters: LowGPUUtilizationParameters) -> str:
    span = f"the last {window:,} points ({show_duration(window * view.interval_s)})"
    high = f"{show_percent(usage.p95)} (threshold {show_percent(parameters.threshold_p95)})"
    low = f"{show_percent(usage.p5)} (threshold {show_percent(parameters.threshold_p5)})"
    where = f"{usage.gpu} on {view.node}"
    if usage.kind == "under":
        return f"{where}: 95 % of {span} are at or below {high}"
    if usage.kind == "fluctuating":
        return f"{where}: of {span} the busiest 5 % are at or above {high}, but the idlest 5 % at or below {low}"
    return f"{where}, the least busy GPU: over {span} the 95th percentile is {high} and the 5th {low}"


def _details(view: NodeView, usages: list[_Usage]) -> dict[str, Any]:
    """Numbers for the report: quantiles of the newest window, and the box of all kept points."""
    boxes = dict(zip(view.gpu_names, counted_boxes(view.gpu_histogram), strict=True))
    gpus = {}
    for usage in usages:
        if not usage.points:
            continue
        box = boxes[usage.gpu]
        newest = (usage.p95, usage.p5) if usage.judged else (None, None)
        gpus[usage.gpu] = {
            "gpu_max": box.largest,
            **dict(zip(("gpu_95", "gpu_5"), newest, strict=True)),
            **{name: getattr(box, name) for name in ("p25", "p50", "p75", "p95", "upper", "lower")},
            "kind": usage.kind,
        }
    active = {usage.gpu for usage in usages}
    return {
        "gpus": gpus,
        "never_active": [gpu for gpu in view.gpu_names if gpu not in active],
        "last_timestamp": None if view.through is None else round(view.through * 1e6),
    }
