"""LowGPUUtilization: GPUs that are not busy, or not steadily so.

Source: AWS documentation of LowGPUUtilization. A node that idles, or does nothing for most of an hour, is a finding of
its own.
"""

from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import numpy as np

from trainguard.core.finding import Patience
from trainguard.core.records import Status
from trainguard.rules.low_gpu_utilization import node as on_node
from trainguard.rules.low_gpu_utilization.devices import fold_activity, fold_held, fold_signs, sign_of_work
from trainguard.rules.low_gpu_utilization.results import (
    LowGPUUtilizationState,
    fold_instances,
    judge_instances,
    judge_low_activity,
    judge_taken,
    judge_usages,
)
from trainguard.rules.low_gpu_utilization.text import text
from trainguard.rules.low_gpu_utilization.usage import (
    CHANGES,
    CLAIMS,
    COSTLY_SHARE,
    MARGIN,
    MEASURES,
    MIN_DIPS,
    GpuKind,
    Kind,
    LowGpuDetails,
    Streak,
    Usage,
    details_of,
    dips_in,
    dips_of,
    fold_use,
    once_worked,
    onset_of,
    undone_before,
)
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, WindowPoints
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.sample_statistics import column_quantiles
from trainguard.rules.spec import (
    LOW_GPUS,
    PATIENCE_HELP,
    SYSTEM,
    TAKEN_GPU,
    UNEVEN,
    WINDOW_HELP,
    ChartLine,
    ParameterHelp,
    RuleSpec,
)
from trainguard.rules.windows import WindowedRule, WindowParameters, sampled_enough, warming_up


class LowGPUUtilizationParameters(WindowParameters, frozen=True, kw_only=True):
    default_window_s: ClassVar[float | None] = 250.0
    default_patience_s: ClassVar[float | None] = 500.0

    threshold_p95: Percent = 70.0
    threshold_p5: Percent = 10.0
    threshold_sm: Percent = 20.0
    threshold_memory: Percent = 10.0
    window: WindowPoints | None = None
    window_s: Positive | None = None
    patience: NonNegativeInt | None = None
    patience_s: Positive | None = None


class LowGPUUtilization(WindowedRule[LowGPUUtilizationParameters, LowGPUUtilizationState]):
    spec = RuleSpec(
        name="LowGPUUtilization",
        title="GPU utilization",
        looks_at="each node's GPUs",
        fires_when="a GPU stays under-utilised or keeps fluctuating; a node idles, all the time or in part",
        condition=(
            "95 % of a GPU's newest points stay below {threshold_p95} %, or 5 % of them below {threshold_p5} %, at "
            "every evaluation while the window moves on by twice its length, and that costs enough; or all GPUs of a "
            "node are idle, or nearly so on average, for 20 min, a separate kind where they hold {threshold_memory} % "
            "of their memory; or they do nothing in half of all samples of an hour; or they pause regularly for too "
            "long; or a GPU looks busy while its SM activity stays below {threshold_sm} %, or without it tensor cores, "
            "memory and power show no work"
        ),
        measures=MEASURES,
        parameters={
            "threshold_p95": ParameterHelp("%", "a GPU whose 95th percentile is below it is under-utilised"),
            "threshold_p5": ParameterHelp("%", "else, one whose 5th percentile is below it fluctuates"),
            "threshold_sm": ParameterHelp("%", "a busy GPU whose SM activity stays below it is under-utilised, too"),
            "threshold_memory": ParameterHelp("% of a GPU's memory", "an idle GPU with as much in use holds memory"),
            **WINDOW_HELP,
            **PATIENCE_HELP,
        },
        managed_parameters=("threshold_p95", "threshold_p5", "window", "patience"),
        inputs=SYSTEM,
        symptom=LOW_GPUS,
        looks={Kind.GPU_TAKEN: TAKEN_GPU},
        explains_as={Kind.GPU_TAKEN: (UNEVEN,)},
        changes=CHANGES,
        text=text,
        over=once_worked,
        claims=CLAIMS,
        details=LowGpuDetails,
        chart_lines=(ChartLine("utilization", "threshold_p95", "p95"), ChartLine("utilization", "threshold_p5", "p5")),
        section="trainguard.rules.low_gpu_utilization.section:blocks",
    )
    judges_instances = True

    def observe(
        self, state: LowGPUUtilizationState, minute: NodeMinute, parameters: LowGPUUtilizationParameters
    ) -> None:
        """Evaluate every GPU once: a streak goes on while the kind stays the same, and ends at any other answer."""
        view = minute.view
        fold_activity(state.activity, minute, parameters.threshold_sm, parameters.threshold_p95)
        fold_instances(state.instances, minute, parameters.threshold_sm)
        fold_held(state.held, minute, parameters.threshold_memory)
        fold_signs(state.signs, minute)
        state.parts = fold_use(state.parts, minute)
        state.in_part.fold(state.parts, minute)
        usages = self._usages(state, view, parameters)
        state.streaks = {
            usage.gpu: self._streak(state, usage, usage.kind, minute, parameters)
            for usage in usages
            if usage.kind is not None
        }
        needed = self.lasting_points(parameters, view.interval_s)
        for gpu, streak in state.streaks.items():
            if streak.is_costly and streak.lasting(view) >= needed:
                state.found += state.uncounted(gpu)
                streak.counted = state.wasted.get(gpu, 0.0)
        state.judged += minute.fresh if any(usage.judged for usage in usages) else 0
        state.low += minute.fresh if state.streaks else 0

    def _streak(
        self,
        state: LowGPUUtilizationState,
        usage: Usage,
        kind: GpuKind,
        minute: NodeMinute,
        parameters: LowGPUUtilizationParameters,
    ) -> Streak:
        view = minute.view
        streak, points = state.streaks.get(usage.gpu), minute.fresh
        goes_on = streak is not None and streak.kind == kind
        if streak is None or not goes_on or streak.begun is None:
            # What an earlier version stored lacks its beginning, and goes on with that of a new one.
            since = streak.since if streak is not None and goes_on else view.kept_total
            points = self.window_points(parameters, view.interval_s)
            onset = onset_of(view, usage, points, parameters.threshold_p95, parameters.threshold_p5)
            streak = Streak(kind, since, *onset, counted=state.wasted.get(usage.gpu, 0.0))
            if streak.begun == 0 and kind == "under":
                state.wasted[usage.gpu] = undone_before(view, usage.gpu, points)
        column = view.kept_gpu_utilization[:, view.gpu_names.index(usage.gpu)]
        newest = column[-points:] if points else column[:0]
        dips = dips_of(newest, usage.p95)
        streak.lost += dips
        streak.points += len(newest)
        wasted = dips if kind == "fluctuating" else float(np.nansum(100.0 - newest)) / 100.0
        state.wasted[usage.gpu] = state.wasted.get(usage.gpu, 0.0) + wasted
        return streak

    def judge_samples(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> RuleResult:
        instances = judge_instances(state.instances, view, parameters.threshold_sm, self._lasting_s(parameters, view))
        if not view.gpu_names:
            return instances
        found = self._judge_gpus(state, view, parameters)
        fires_alone = instances.status is Status.FIRED and found.status is not Status.FIRED
        return instances if view.mig_names and fires_alone else found

    def _judge_gpus(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> RuleResult:
        usages = self._usages(state, view, parameters)
        needed, window = (each(parameters, view.interval_s) for each in (self.lasting_points, self.window_points))
        times = view.kept_times[-window:]
        progress = Patience(
            seen=max((usage.points for usage in usages), default=0),
            needed=parameters.patience_points(view.interval_s),
            streak=max((streak.lasting(view) for streak in state.streaks.values()), default=0),
            window_points=len(times),
            window_start=float(times[0]) if len(times) else None,
            window_end=float(times[-1]) if len(times) else None,
        )
        details: Any = details_of(view, usages) if view.detailed else {}
        common: dict[str, Any] = {"data_points": view.kept_total, "details": details, "progress": progress}
        idleness = on_node.idleness_of(view)
        if idleness is not None:
            points = round(idleness.seconds / view.interval_s)
            common["progress"] = msgspec.structs.replace(progress, streak=points)
            sign = sign_of_work(state.signs, view, idleness.since)
            if sign or idleness.look == "weak":
                weak = replace(idleness, look="weak")
                return on_node.judge_weak(view, weak, sign, state.parts, common)
            return on_node.judge_idle(view, idleness, state.held, state.parts, common)
        whole = on_node.judge_in_part(view, state.in_part, state.parts, common)
        breaks, fired = on_node.regular_breaks(view), self._fired(state, view, usages, needed)
        if whole is None and breaks is not None and breaks.is_costly and not fired:
            whole = on_node.judge_breaks(view, breaks, common)
        if whole is not None:
            return whole
        if not any(usage.judged for usage in usages):
            return warming_up(progress.seen, progress.needed, view, details, progress)
        lasting_s = self._lasting_s(parameters, view)
        found = None if fired else judge_taken(state.held, view, common)
        if not fired and found is None:
            found = judge_low_activity(state.activity, view, lasting_s, parameters.threshold_sm, common)
        if found is not None:
            return found
        limits = needed, window, (parameters.threshold_p95, parameters.threshold_p5)
        return judge_usages(state, view, [usage for usage in usages if usage.judged], fired, limits, common)

    def _fired(self, state: LowGPUUtilizationState, view: NodeView, usages: list[Usage], needed: int) -> list[Usage]:
        judged = ((usage, state.streaks.get(usage.gpu)) for usage in usages if usage.judged)
        lasted = ((usage, streak) for usage, streak in judged if streak is not None and streak.lasting(view) >= needed)
        fired = [usage for usage, streak in lasted if streak.is_costly]
        wasted = sum(state.wasted.get(usage.gpu, 0.0) for usage in fired)
        if fired and view.closed and (state.lost_share(view, wasted) or 0.0) < COSTLY_SHARE:
            # What the job's end has cut off before it lasted is no finding where it has cost little.
            return [usage for usage in fired if view.kept_total - state.streaks[usage.gpu].since >= needed]
        return fired

    def _usages(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> list[Usage]:
        if not view.gpu_names:
            return []
        patience = parameters.patience_points(view.interval_s)
        lasting = self.lasting_points(parameters, view.interval_s)
        values = view.kept_gpu_utilization[-self.window_points(parameters, view.interval_s) :]
        sampled = sampled_enough(values).tolist()
        points = view.gpu_histogram.sum(axis=1).tolist()
        highs, lows = column_quantiles(values, (0.95, 0.05)).tolist()
        usages = []
        for index in np.flatnonzero(view.ever_active).tolist():
            gpu, p95, p5 = view.gpu_names[index], highs[index], lows[index]
            judged = points[index] > patience and sampled[index]
            # A finding ends beyond a margin: what varies about a threshold is one finding and not many.
            streak, found = state.streaks.get(gpu), None
            if streak is not None and view.kept_total - streak.since >= lasting and streak.is_costly:
                found = streak.kind
            kind: GpuKind | None = None
            if judged and p95 < parameters.threshold_p95 + (MARGIN if found == "under" else 0.0):
                kind = "under"
            elif judged and p5 < parameters.threshold_p5 + (MARGIN if found == "fluctuating" else 0.0):
                dips = dips_in(values[:, index], parameters.threshold_p5 + (MARGIN if found else 0.0))
                kind = "fluctuating" if dips >= MIN_DIPS else None
            usages.append(Usage(gpu, points[index], judged, p95, p5, kind))
        return usages

    def _lasting_s(self, parameters: LowGPUUtilizationParameters, view: NodeView) -> float:
        """Return for how many seconds a busy GPU must be low: the window, and while it moves on by twice that."""
        window_s = self.window_points(parameters, view.interval_s) * view.interval_s
        return window_s + self.lasting_points(parameters, view.interval_s) * view.interval_s


# For the verdict and the canary, which ask for this rule.
LOW_GPU = LowGPUUtilization.spec
