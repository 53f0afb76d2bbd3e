"""LowGPUUtilization: GPUs that are not busy, or not steadily so.

Source: AWS documentation of LowGPUUtilization (a 95th quantile below threshold_p95 says that utilization is low; above
it, a 5th quantile below threshold_p5 says that it fluctuates). What is added: the kind must last while the window moves
on by twice its length, pauses are left out, fluctuation must cost enough to be worth an alert, and a node that idles is
a finding of its own.
"""

from typing import ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules import low_gpu_held_output as held_output
from trainguard.rules import low_gpu_output as output
from trainguard.rules.chance import poisson_quantile
from trainguard.rules.low_gpu_activity import BusyMinutes, activity_note, fold_activity, hollow_gpus
from trainguard.rules.low_gpu_held import Held, HeldMemory, fold_held, held_while_idle
from trainguard.rules.low_gpu_held_output import HELD_TIME
from trainguard.rules.low_gpu_idle import IDLE_FINDING_S, idleness_of
from trainguard.rules.low_gpu_instances import InstanceMinutes, fold_instances, judge_instances
from trainguard.rules.low_gpu_output import IDLE_TIME, QUIET_MEAN, Kind, LowGpuDetails, Usage
from trainguard.rules.low_gpu_pauses import regular_breaks
from trainguard.rules.low_gpu_results import judge_breaks, judge_hollow, judge_idle, judge_weak
from trainguard.rules.low_gpu_signs import GpuSigns, fold_signs, sign_of_work
from trainguard.rules.paid_time import share_of_paid
from trainguard.rules.parameter_help import PATIENCE_HELP, WINDOW_HELP, ParameterHelp
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, WindowPoints
from trainguard.rules.quantiles import column_quantiles, counted_boxes
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, ChartLine, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.warm_up import warming_up
from trainguard.rules.windowing import WindowedRule, WindowParameters, sampled_enough
from trainguard.telemetry.snapshots import FloatArray

COSTLY_SHARE = 0.15
"""Fluctuation that wastes less of the time is what healthy jobs have: they save, evaluate and log."""

CHANCE_PROBABILITY = 0.999

MIN_DIPS = 2
"""One stretch of idle points in the window is no fluctuation."""


class LowGPUUtilizationParameters(WindowParameters, frozen=True, kw_only=True):
    """Thresholds in percent; ``window_s`` and ``patience_s`` in seconds, or ``window`` and ``patience`` in points."""

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


P95 = Measure("95th percentile of GPU utilization", "%")
P5 = Measure("5th percentile of GPU utilization", "%")


SPEC = RuleSpec(
    name="LowGPUUtilization",
    title="GPU utilization",
    looks_at="each node's GPUs",
    fires_when="a GPU stays under-utilised or keeps fluctuating; a node idles or was never used",
    condition=(
        "95 % of a GPU's newest points stay below {threshold_p95} %, or 5 % of them below {threshold_p5} %, at "
        "every evaluation while the window moves on by twice its length, and that costs enough; or all GPUs of a node "
        "are idle, or nearly so on average, for 20 min, which is told apart where they hold {threshold_memory} % of "
        "their memory; or they pause regularly for too long; or a GPU looks busy while its SM activity stays below "
        "{threshold_sm} %, or without it tensor cores, memory and power show no work"
    ),
    measures=(
        P95,
        P5,
        IDLE_TIME,
        QUIET_MEAN,
        output.WEAK_MEAN,
        output.PAUSED,
        output.SM_P95,
        output.TENSOR_P95,
        HELD_TIME,
    ),
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
    clause=output.clause_of,
    details=LowGpuDetails,
    chart_lines=(ChartLine("utilization", "threshold_p95", "p95"), ChartLine("utilization", "threshold_p5", "p5")),
    section="trainguard.report.html.sections.low_gpu_utilization:blocks",
)


class Streak(msgspec.Struct, array_like=True):
    """Since which kept point a GPU has been of one kind at every evaluation.

    ``begun`` is the kept point at which that began in the data, ``onset`` its time, epoch seconds; None of a streak
    that an earlier version stored. ``lost`` is what the GPU's dips cost over ``points`` points, each up to 1.
    ``counted`` is what the GPU had wasted, as in the state, when the streak began, or when the finding last counted it.
    """

    kind: Kind
    since: int
    begun: int | None = None
    onset: float | None = None
    lost: float = 0.0
    points: int = 0
    counted: float = 0.0

    @property
    def cost(self) -> float:
        """Share of the streak's time that the dips wasted, 0 to 1."""
        return self.lost / self.points if self.points else 0.0

    @property
    def is_costly(self) -> bool:
        """Whether what lasts is worth an alert: too little work is, dips are by what they cost.

        Of few points that is more than chance makes of half as many dips.
        """
        if self.kind == "under" or self.begun is None:
            return True
        chance = poisson_quantile(CHANCE_PROBABILITY, self.points * COSTLY_SHARE / 2.0)
        return self.cost >= COSTLY_SHARE and self.lost > chance


class LowGPUUtilizationState(msgspec.Struct, array_like=True):
    """One streak for each GPU that is of some kind now, in the GPUs' order; at most the node's GPUs.

    ``judged`` counts the kept points that were added at evaluations which judged some GPU, ``low`` those of them at
    which a GPU was of some kind. ``wasted`` is what each GPU lost at those, in points: all that it left undone
    where it had too little to do, and what its dips cost where it fluctuated. ``activity`` is of the GPUs whose SM
    activity, or that of tensor cores and memory, is collected, ``held`` of those whose memory in use is, ``signs`` of
    those whose SM activity or power is, ``instances`` of those of partitioned GPUs. ``found`` is what was lost in
    streaks that were a finding, all GPUs together.
    """

    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    judged: int = 0
    low: int = 0
    wasted: dict[str, float] = msgspec.field(default_factory=dict)
    activity: dict[str, BusyMinutes] = msgspec.field(default_factory=dict)
    held: dict[str, HeldMemory] = msgspec.field(default_factory=dict)
    signs: dict[str, GpuSigns] = msgspec.field(default_factory=dict)
    instances: dict[str, InstanceMinutes] = msgspec.field(default_factory=dict)
    found: float = 0.0


class LowGPUUtilization(WindowedRule[LowGPUUtilizationParameters, LowGPUUtilizationState]):
    """Fires for a GPU that is under-utilised or fluctuates for long, and for a node that idles or was never used."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LowGPUUtilizationParameters
    state_type = LowGPUUtilizationState

    def observe(
        self, state: LowGPUUtilizationState, minute: NodeMinute, parameters: LowGPUUtilizationParameters
    ) -> None:
        """Evaluate every GPU once: a streak goes on while the kind stays the same, and ends at any other answer."""
        view = minute.view
        fold_activity(state.activity, minute, parameters.threshold_sm, parameters.threshold_p95)
        fold_instances(state.instances, minute, parameters.threshold_sm)
        fold_held(state.held, minute, parameters.threshold_memory)
        fold_signs(state.signs, minute)
        streaks = {}
        usages = self._usages(view, parameters)
        window = self.window_points(parameters, view.interval_s)
        for usage in usages:
            if usage.kind is None:
                continue
            streak = state.streaks.get(usage.gpu)
            goes_on = streak is not None and streak.kind == usage.kind
            points = minute.fresh
            if streak is None or not goes_on or streak.begun is None:
                # What an earlier version stored lacks its beginning, and goes on with that of a new one.
                since = streak.since if streak is not None and goes_on else view.kept_total
                streak = Streak(usage.kind, since, *_onset(view, usage, window, parameters))
                points = window
                streak.counted = state.wasted.get(usage.gpu, 0.0)
                if streak.begun == 0 and usage.kind == "under":
                    state.wasted[usage.gpu] = _undone_before(view, usage.gpu, window)
            column = view.kept_gpu_utilization[:, view.gpu_names.index(usage.gpu)]
            newest = column[-points:] if points else column[:0]
            dips = dips_of(newest, usage.p95)
            streak.lost += dips
            streak.points += len(newest)
            wasted = dips if usage.kind == "fluctuating" else float(np.nansum(100.0 - newest)) / 100.0
            state.wasted[usage.gpu] = state.wasted.get(usage.gpu, 0.0) + wasted
            streaks[usage.gpu] = streak
        state.streaks = streaks
        self._count(state, view, parameters)
        state.judged += minute.fresh if any(usage.judged for usage in usages) else 0
        state.low += minute.fresh if streaks else 0

    def judge_samples(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> RuleResult:
        """Say FIRED for a streak over two windows that costs enough, or for a node idle for 20 minutes."""
        instances = judge_instances(state.instances, view, parameters.threshold_sm, self._lasting_s(parameters, view))
        if not view.gpu_names:
            return instances
        found = self._judge_gpus(state, view, parameters)
        fires_alone = instances.status is Status.FIRED and found.status is not Status.FIRED
        return instances if view.mig_names and fires_alone else found

    def unfit(self, view: NodeView) -> str | None:
        """Say that there is neither a GPU nor an instance of one."""
        return None if view.mig_names else super().unfit(view)

    def _judge_gpus(
        self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters
    ) -> RuleResult:
        usages = self._usages(view, parameters)
        details = output.details_of(view, usages) if view.detailed else None
        idleness = idleness_of(view)
        if idleness is not None:
            sign = sign_of_work(state.signs, view)
            if sign is not None or idleness.look == "weak":
                return judge_weak(view, idleness, sign, details)
            return judge_idle(view, idleness, state.held, details)
        if not any(usage.judged for usage in usages):
            points = max((usage.points for usage in usages), default=0)
            return warming_up(points, parameters.patience_points(view.interval_s), view, details or {})
        return self._judge_streaks(state, view, usages, parameters, details)

    def _count(self, state: LowGPUUtilizationState, view: NodeView, parameters: LowGPUUtilizationParameters) -> None:
        """Count what GPUs have wasted since their streaks began, once those are a finding."""
        needed = self.lasting_points(parameters, view.interval_s)
        for gpu, streak in state.streaks.items():
            if streak.is_costly and lasting_points(streak, view) >= needed:
                state.found += _uncounted(state, gpu)
                streak.counted = state.wasted.get(gpu, 0.0)

    def _usages(self, view: NodeView, parameters: LowGPUUtilizationParameters) -> list[Usage]:
        """Evaluate each ever-active GPU over the last window of kept points, once it has more than ``patience``."""
        if not view.gpu_names:
            return []
        patience = parameters.patience_points(view.interval_s)
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
            elif judged and p5 < parameters.threshold_p5 and _dips(values[:, index], parameters) >= MIN_DIPS:
                kind = "fluctuating"
            usages.append(Usage(view.gpu_names[index], points[index], judged, p95, p5, kind))
        return usages

    def _lasting_s(self, parameters: LowGPUUtilizationParameters, view: NodeView) -> float:
        """Return for how many seconds a busy GPU must be hollow: the window, and while it moves on by twice that."""
        window_s = self.window_points(parameters, view.interval_s) * view.interval_s
        return window_s + self.lasting_points(parameters, view.interval_s) * view.interval_s

    def _judge_streaks(
        self,
        state: LowGPUUtilizationState,
        view: NodeView,
        usages: list[Usage],
        parameters: LowGPUUtilizationParameters,
        details: LowGpuDetails | None,
    ) -> RuleResult:
        window = self.window_points(parameters, view.interval_s)
        needed = self.lasting_points(parameters, view.interval_s)
        judged = [usage for usage in usages if usage.judged]
        lasting = {gpu: lasting_points(streak, view) for gpu, streak in state.streaks.items()}
        lasted = [usage for usage in judged if lasting.get(usage.gpu, 0) >= needed]
        fired = [usage for usage in lasted if state.streaks[usage.gpu].is_costly]
        if view.closed and (_wasted_by(state, view, fired) or 0.0) < COSTLY_SHARE:
            # What the job's end has cut off before it lasted is no finding where it has cost little.
            fired = [usage for usage in fired if view.kept_total - state.streaks[usage.gpu].since >= needed]
        breaks = regular_breaks(view)
        if not fired and breaks is not None and breaks.go_on and breaks.share >= COSTLY_SHARE:
            return judge_breaks(view, breaks, COSTLY_SHARE, details)
        lasting_s = self._lasting_s(parameters, view)
        hollow = [] if fired else hollow_gpus(state.activity, lasting_s, parameters.threshold_sm)
        if hollow:
            return judge_hollow(view, hollow, details)
        low = [usage for usage in judged if usage.kind is not None]
        worst = min(fired or lasted or low or judged, key=lambda usage: (usage.p95, usage.p5))
        thresholds = parameters.threshold_p95, parameters.threshold_p5
        holding = held_while_idle(state.held, view, worst.gpu, IDLE_FINDING_S) if worst in fired else None
        held = None if holding is None else holding[0]
        sentence = output.sentence_of(worst, view, min(window, len(view.kept_times)), thresholds)
        if holding is not None:
            sentence = held_output.gpu_sentence(*holding, view)
        elif worst.gpu in lasting:
            sentence += output.lasting_of(lasting[worst.gpu], view, None if worst in lasted else needed)
        if len(fired) > 1:
            sentence += f"; {len(fired)} GPUs of {view.node} are low"
        if worst.kind == "fluctuating" and worst in lasted:
            sentence += output.cost_of(state.streaks[worst.gpu].cost, None if fired else COSTLY_SHARE)
        fluctuating = worst.kind == "fluctuating"
        seen = state.low / state.judged if state.judged else None
        onsets = [state.streaks[usage.gpu].onset for usage in fired]
        return RuleResult(
            Status.FIRED if fired else Status.OK,
            f"{sentence}.{output.pauses_of(view)}{activity_note(state.activity, worst.gpu)}",
            measured=worst.p5 if fluctuating else worst.p95,
            threshold=parameters.threshold_p5 if fluctuating else parameters.threshold_p95,
            measure=P5 if fluctuating else P95,
            worst=worst.gpu,
            data_points=view.kept_total,
            advice=_advice_on(worst, view, held) if fired else None,
            affected_share=seen,
            wasted_share=_wasted_share(state, view, fired),
            onset=min((onset for onset in onsets if onset is not None), default=None),
            gpus=tuple(usage.gpu for usage in fired),
            details=(details or {}) if held is None else held_output.noted(details, "held", output.FINDINGS["silent"]),
        )


def _advice_on(worst: Usage, view: NodeView, held: Held | None) -> str:
    return output.advice_on(worst, view) if held is None else held_output.gpu_advice(held, view)


def _undone_before(view: NodeView, gpu: str, window: int) -> float:
    """Return what a GPU left undone in all kept points before the newest window, in points."""
    counts = view.gpu_histogram[view.gpu_names.index(gpu)]
    everything = float((counts * (100 - np.arange(counts.size))).sum()) / 100.0
    newest = view.kept_gpu_utilization[-window:, view.gpu_names.index(gpu)]
    return max(everything - float(np.nansum(100.0 - np.floor(newest))) / 100.0, 0.0)


def dips_of(values: FloatArray, busy: float) -> float:
    """Return what the dips of a GPU (float64[N], percent) cost, in points: those below half of its ``busy`` level."""
    dips = values[values < busy / 2.0]
    return float((1.0 - dips / busy).sum())


def _wasted_share(state: LowGPUUtilizationState, view: NodeView, fired: list[Usage]) -> float | None:
    """Return what was lost in all streaks that were a finding, as a share of the paid time of all ever active GPUs."""
    if not fired:
        return None
    points = state.found + sum(_uncounted(state, usage.gpu) for usage in fired)
    return share_of_paid(view, points * view.interval_s / int(np.count_nonzero(view.ever_active)))


def _wasted_by(state: LowGPUUtilizationState, view: NodeView, fired: list[Usage]) -> float | None:
    """Return what the GPUs that fire have wasted since the job's start, in the same terms."""
    points = sum(state.wasted.get(usage.gpu, 0.0) for usage in fired)
    return share_of_paid(view, points * view.interval_s / int(np.count_nonzero(view.ever_active))) if fired else None


def _uncounted(state: LowGPUUtilizationState, gpu: str) -> float:
    """Return what a GPU has wasted in its streak and no finding has counted yet, in points."""
    return max(state.wasted.get(gpu, 0.0) - state.streaks[gpu].counted, 0.0)


def lasting_points(streak: Streak, view: NodeView) -> int:
    """Return for how many points a streak has lasted: of a job that has ended, from its onset on."""
    begun = streak.since if streak.begun is None or not view.closed else streak.begun
    return view.kept_total - begun


def _dips(values: FloatArray, parameters: LowGPUUtilizationParameters) -> int:
    """Count the separate runs below ``threshold_p5`` in a GPU's window (float64[K])."""
    below = values[~np.isnan(values)] < parameters.threshold_p5
    return int(np.count_nonzero(below & ~np.concatenate([[False], below[:-1]])))


def _onset(
    view: NodeView, usage: Usage, window: int, parameters: LowGPUUtilizationParameters
) -> tuple[int, float | None]:
    """Return the kept point and the time at which a kind that is seen now began.

    That is the beginning of the window that shows it, the first dip in it, or all points where they show it.
    """
    index = view.gpu_names.index(usage.gpu)
    times, values = view.kept_times[-window:], view.kept_gpu_utilization[-window:, index]
    box = counted_boxes(view.gpu_histogram[[index]])[0]
    if usage.kind == "under" and box.p95 < parameters.threshold_p95:
        return 0, view.first_active_at
    first = int(np.argmax(values < parameters.threshold_p5)) if usage.kind == "fluctuating" else 0
    return view.kept_total - len(times) + first, float(times[first])
