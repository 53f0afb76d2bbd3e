"""StepOutlier: more long training steps than chance explains, or more time lost in them than is good.

Source: AWS documentation of StepOutlier (an outlier is a step that is longer than the mean by more than stddev standard
deviations; the rule fires when there are more than n_outliers). Two things are added. How many outliers are plausible
among N steps, as a Poisson quantile, so that a long healthy job stays silent. And the time that slow steps cost,
because by Cantelli's inequality no more than 3.8 % of the steps can ever lie beyond five standard deviations.
"""

from typing import ClassVar

from trainguard.finding import Progress
from trainguard.records import Status
from trainguard.rules import steps_output as output
from trainguard.rules.chance import normal_tail, poisson_quantile
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import FrameworkRule, NonNegativeInt, Percent, Positive, RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, RuleSpec
from trainguard.rules.step_series import MAX_REFUSED, WARM_UP_STEPS, StepSeries, StepsState
from trainguard.rules.steps_output import SLOW_MEDIANS, EvaluatedSeries, StepDetails
from trainguard.rules.symptoms import LOW_GPUS, SLOW_STEPS
from trainguard.telemetry.framework import FrameworkEvents

STEP_MODE_PREFIX = "Step:ModeKeys"
MIN_STEPS = 100
"""A series is judged with more steps than this, after the first WARM_UP_STEPS."""

PLAUSIBLE_PROBABILITY = 0.999
MIN_PLAUSIBLE_SHARE = 0.002
"""Share of long steps that every healthy job may have, such as a checkpoint in 500 steps."""

CLEAR_AFTER_S = 5_400.0


class StepOutlierParameters(RuleParameters, frozen=True, kw_only=True):
    """``stddev`` in standard deviations, ``slow_share`` in percent of the time; ``mode`` None judges all modes."""

    stddev: Positive = 5.0
    mode: str | None = None
    n_outliers: NonNegativeInt = 10
    slow_share: Percent = 10.0


OUTLIERS = Measure("beyond the limit", "steps")
LOST_TIME = Measure("time lost in slow steps", "%")

SPEC = RuleSpec(
    name="StepOutlier",
    title="Step durations",
    looks_at="each process's training steps",
    fires_when="long steps are more than chance explains, or cost too much time",
    condition=(
        "a process has more steps beyond its mean and {stddev} standard deviations than {n_outliers} and chance "
        "allow, or loses more than {slow_share} % of its time in slow steps"
    ),
    measures=(OUTLIERS, LOST_TIME),
    counts=STEPS,
    parameters={
        "stddev": ParameterHelp("standard deviations", "a step further beyond the mean is an outlier"),
        "mode": ParameterHelp(
            "`TRAIN`, `EVAL`, …, or the event's full name; None judges all `Step:ModeKeys`", "which steps are judged"
        ),
        "n_outliers": ParameterHelp("steps", "so many outliers are plausible in any job"),
        "slow_share": ParameterHelp("% of the time in steps", "a larger share of the time lost in slow steps fires"),
    },
    shipped_defaults={"stddev": 3.0},
    managed_parameters=("threshold", "mode", "n_outliers", "stddev"),
    managed_aliases={"threshold": "stddev"},
    inputs=FRAMEWORK,
    symptom=SLOW_STEPS,
    explains=(LOW_GPUS,),
    clause="too much time went into slow steps",
    too_short=(
        f"It needs more than {MIN_STEPS + WARM_UP_STEPS} steps of a process: nothing to do for a job that has fewer."
    ),
    details=StepDetails,
    section="trainguard.report.html.sections.step_outlier:blocks",
)


class StepOutlier(FrameworkRule[StepOutlierParameters, StepsState]):
    """Fires for a process whose long steps are too many for chance, or too expensive."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = StepOutlierParameters
    state_type = StepsState

    def clear_after_s(self, parameters: StepOutlierParameters, interval_s: float) -> float:
        """90 min: the counts are of the whole job, and their share changes slowly about the limit."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(self, state: StepsState, events: FrameworkEvents, parameters: StepOutlierParameters) -> None:
        """Count the steps of one object where their mode is wanted."""
        for batch in events.steps:
            if _is_wanted(batch.mode, parameters.mode) and batch.numbers:
                state.fold(batch, parameters.stddev, events.table)

    def judge(self, state: StepsState, view: FrameworkView, parameters: StepOutlierParameters) -> RuleResult:
        """Say FIRED when any series has too many outliers or loses too much time; the worst one gives the reason."""
        if not state.series:
            wanted = "" if parameters.mode in {None, "None"} else f" in mode {parameters.mode}"
            return RuleResult(Status.WAITING_FOR_DATA, f"no training step of {view.node}{wanted} yet.")
        steps_us = _time_in_steps(state)
        elapsed_us = _elapsed_us(view)
        verdicts = [
            _judge_series(series, max(steps_us[series.process], 1), elapsed_us, parameters)
            for series in state.series
            if series.steps > MIN_STEPS
        ]
        if not verdicts:
            return _warming_up(state, view)
        ranked = sorted(verdicts, key=lambda verdict: _severity(verdict, parameters), reverse=True)
        worst = ranked[0]
        reason = output.sentence_of(worst, parameters.stddev, parameters.slow_share)
        if state.refused:
            count = f"{len(state.refused)}{' or more' if len(state.refused) == MAX_REFUSED else ''}"
            reason += f"; {count} series not judged: a node has room for {len(state.series)}"
        by_time = worst.too_slow and not worst.too_many
        return RuleResult(
            Status.FIRED if worst.fired else Status.OK,
            f"{reason}.",
            measured=worst.slow_share if by_time else float(worst.outliers),
            threshold=parameters.slow_share if by_time else float(worst.plausible),
            measure=LOST_TIME if by_time else OUTLIERS,
            worst=worst.label,
            data_points=sum(verdict.series.steps for verdict in verdicts),
            advice=output.advice_on(worst, state) if worst.fired else None,
            affected_share=worst.affected_share if worst.fired else None,
            wasted_share=worst.lost_share if worst.fired else None,
            details=output.details_of(ranked, state) if view.detailed else {},
        )


def _is_wanted(mode: str, wanted: str | None) -> bool:
    """Whether a step event's name is ``wanted``, given in full or as TRAIN; None stands for all of Step:ModeKeys."""
    if wanted in {None, "None"}:
        return mode.startswith(STEP_MODE_PREFIX)
    return wanted == mode or f"{STEP_MODE_PREFIX}.{wanted}".lower() == mode.lower()


def _time_in_steps(state: StepsState) -> dict[str, int]:
    """Return the time of each process in the steps of all modes that are judged, microseconds."""
    times: dict[str, int] = {}
    for series in state.series:
        times[series.process] = times.get(series.process, 0) + series.total_us
    return times


def _elapsed_us(view: FrameworkView) -> float:
    """Return the time since the node's first step, microseconds; 0 where it is not known."""
    if view.watermark_s is None or view.first_step_at is None:
        return 0.0
    return (view.watermark_s - view.first_step_at) * 1e6


def _judge_series(
    series: StepSeries, steps_us: int, elapsed_us: float, parameters: StepOutlierParameters
) -> EvaluatedSeries:
    """Apply n > max(n_outliers, Poisson quantile of N max(1 - Phi(stddev), 0.002)), and the share of the time lost.

    ``steps_us`` is the process's time in the steps of all modes: what is rare cannot cost much, however slow it is.
    """
    mean, spread = series.mean_us, parameters.stddev * series.deviation_us
    share = max(normal_tail(parameters.stddev), MIN_PLAUSIBLE_SHARE)
    plausible = max(parameters.n_outliers, poisson_quantile(PLAUSIBLE_PROBABILITY, series.steps * share))
    median = series.durations.quantile(0.5)
    lost = series.durations.excess_above(SLOW_MEDIANS * median, median)
    slow_share = 100.0 * lost / steps_us
    outliers = series.durations.count_above(mean + spread)
    long_us = min(SLOW_MEDIANS * median, mean + spread)
    return EvaluatedSeries(
        series=series,
        median_us=median,
        above_us=mean + spread,
        outliers=outliers,
        short=series.durations.count_below(mean - spread),
        plausible=plausible,
        slow_share=slow_share,
        affected_share=series.durations.excess_above(long_us, 0.0) / steps_us,
        lost_share=series.durations.excess_above(long_us, median) / max(steps_us, elapsed_us),
        too_many=outliers > plausible,
        too_slow=slow_share > parameters.slow_share,
    )


def _severity(verdict: EvaluatedSeries, parameters: StepOutlierParameters) -> tuple[bool, float]:
    by_count = verdict.outliers / verdict.plausible
    by_time = verdict.slow_share / max(parameters.slow_share, 0.1)
    return verdict.fired, max(by_count, by_time)


def _warming_up(state: StepsState, view: FrameworkView) -> RuleResult:
    steps = max(series.steps for series in state.series)
    seen = max(series.steps + series.dropped for series in state.series)
    needed = MIN_STEPS + WARM_UP_STEPS
    reason = (
        f"{view.node} has {seen:,} of the more than {needed} steps that a process needs for a verdict, the first "
        f"{WARM_UP_STEPS} of which are left out"
    )
    if view.closed:
        reason += "; its stream has ended, too early for a verdict"
    return RuleResult(
        Status.WARMING_UP, f"{reason}.", data_points=steps, progress=Progress(seen=seen, needed=needed, counts="steps")
    )
