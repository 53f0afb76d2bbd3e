"""StepOutlier: more long training steps than chance explains, or more time lost in them than is good.

Source: AWS documentation of StepOutlier (an outlier is a step that is longer than the mean by more than stddev standard
deviations; the rule fires when there are more than n_outliers). Two things are added. How many outliers are plausible
among N steps, as a Poisson quantile, so that a long healthy job stays silent. And the time that slow steps cost,
because by Cantelli's inequality no more than 3.8 % of the steps can ever lie beyond five standard deviations.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from trainguard.records import Status
from trainguard.rules.chance import normal_tail, poisson_quantile
from trainguard.rules.judgement import Judgement, Measure
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import FrameworkRule, NonNegativeInt, Percent, Positive, RuleParameters
from trainguard.rules.spec import FRAMEWORK, RuleSpec
from trainguard.rules.step_series import KEPT_SLOW_STEPS, MAX_REFUSED, WARM_UP_STEPS, StepOutlierState, StepSeries
from trainguard.rules.symptoms import LOW_GPUS, SLOW_STEPS
from trainguard.rules.units import show_number, show_percent, show_step
from trainguard.rules.views import FrameworkView
from trainguard.telemetry.framework import FrameworkEvents

STEP_MODE_PREFIX = "Step:ModeKeys"
MIN_STEPS = 100
"""A series is judged with more steps than this, after the first WARM_UP_STEPS."""

PLAUSIBLE_PROBABILITY = 0.999
MIN_PLAUSIBLE_SHARE = 0.002
"""Share of long steps that every healthy job may have, such as a checkpoint in 500 steps."""

SLOW_MEDIANS = 2.0
REPORTED_SERIES = 16
GROWN_BY_PERCENT = 10.0
"""An event is named in the advice when its share of slow steps exceeds that of ordinary ones by so many points."""

MIN_DISTANCES = 4
REGULAR_SHARE = 0.8
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
    section="trainguard.report.html.sections.step_outlier:blocks",
)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Judgement of one series; durations in microseconds, ``slow_share`` in percent.

    ``affected_share`` is the share, 0 to 1, of the process's time in steps that went into slow steps and outliers,
    ``lost_share`` the share of all its time since the first step of the node that was beyond the median.
    """

    series: StepSeries
    median_us: float
    above_us: float
    outliers: int
    short: int
    plausible: int
    slow_share: float
    affected_share: float
    lost_share: float
    too_many: bool
    too_slow: bool

    @property
    def fired(self) -> bool:
        return self.too_many or self.too_slow

    @property
    def label(self) -> str:
        return f"{self.series.process} {self.series.mode.removeprefix('Step:ModeKeys.')}"


class StepOutlier(FrameworkRule[StepOutlierParameters, StepOutlierState]):
    """Fires for a process whose long steps are too many for chance, or too expensive."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = StepOutlierParameters
    state_type = StepOutlierState

    def clear_after_s(self, parameters: StepOutlierParameters, interval_s: float) -> float:
        """90 min: the counts are of the whole job, and their share changes slowly about the limit."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(self, state: StepOutlierState, events: FrameworkEvents, parameters: StepOutlierParameters) -> None:
        """Count the steps of one object where their mode is wanted."""
        for batch in events.steps:
            if _is_wanted(batch.mode, parameters.mode) and batch.numbers:
                state.fold(batch, parameters.stddev, events.table)

    def judge(self, state: StepOutlierState, view: FrameworkView, parameters: StepOutlierParameters) -> Judgement:
        """Say FIRED when any series has too many outliers or loses too much time; the worst one gives the reason."""
        if not state.series:
            wanted = "" if parameters.mode in {None, "None"} else f" in mode {parameters.mode}"
            return Judgement(Status.WAITING_FOR_DATA, f"no training step of {view.node}{wanted} yet.")
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
        reason = _sentence(worst, parameters)
        if state.refused:
            count = f"{len(state.refused)}{' or more' if len(state.refused) == MAX_REFUSED else ''}"
            reason += f"; {count} series not judged: a node has room for {len(state.series)}"
        by_time = worst.too_slow and not worst.too_many
        return Judgement(
            Status.FIRED if worst.fired else Status.OK,
            f"{reason}.",
            measured=worst.slow_share if by_time else float(worst.outliers),
            threshold=parameters.slow_share if by_time else float(worst.plausible),
            measure=LOST_TIME if by_time else OUTLIERS,
            worst=worst.label,
            data_points=sum(verdict.series.steps for verdict in verdicts),
            advice=_advice(worst, state) if worst.fired else None,
            affected_share=worst.affected_share if worst.fired else None,
            wasted_share=worst.lost_share if worst.fired else None,
            details={
                "series": [_details(verdict) for verdict in ranked[:REPORTED_SERIES]],
                "slow_steps": _slow_steps(state),
                "framework": state.overlap.details(),
                "series_judged": len(verdicts),
                "series_not_judged": len(state.refused),
                "steps_not_judged": state.steps_not_judged,
            },
        )


def _is_wanted(mode: str, wanted: str | None) -> bool:
    """Whether a step event's name is ``wanted``, given in full or as TRAIN; None stands for all of Step:ModeKeys."""
    if wanted in {None, "None"}:
        return mode.startswith(STEP_MODE_PREFIX)
    return wanted == mode or f"{STEP_MODE_PREFIX}.{wanted}".lower() == mode.lower()


def _time_in_steps(state: StepOutlierState) -> dict[str, int]:
    """Return the time of each process in the steps of all modes that are judged, microseconds."""
    times: dict[str, int] = {}
    for series in state.series:
        times[series.process] = times.get(series.process, 0) + series.total_us
    return times


def _elapsed_us(view: FrameworkView) -> float:
    """Return the time since the node's first step, microseconds; 0 where it is not known."""
    if view.through is None or view.first_step_at is None:
        return 0.0
    return (view.through - view.first_step_at) * 1e6


def _judge_series(series: StepSeries, steps_us: int, elapsed_us: float, parameters: StepOutlierParameters) -> _Verdict:
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
    return _Verdict(
        series=series,
        median_us=median,
        above_us=mean + spread,
        outliers=outliers,
        short=series.durations.count_below(mean - spread),
        plausible=plausible,
        slow_share=slow_share,
        affected_share=min(series.durations.excess_above(long_us, 0.0) / steps_us, 1.0),
        lost_share=min(series.durations.excess_above(long_us, median) / max(steps_us, elapsed_us), 1.0),
        too_many=outliers > plausible,
        too_slow=slow_share > parameters.slow_share,
    )


def _severity(verdict: _Verdict, parameters: StepOutlierParameters) -> tuple[bool, float]:
    by_count = verdict.outliers / max(verdict.plausible, 1)
    by_time = verdict.slow_share / max(parameters.slow_share, 0.1)
    return verdict.fired, max(by_count, by_time)


def _warming_up(state: StepOutlierState, view: FrameworkView) -> Judgement:
    steps = max(series.steps for series in state.series)
    seen = max(series.steps + series.dropped for series in state.series)
    needed = MIN_STEPS + WARM_UP_STEPS
    reason = (
        f"{view.node} has {seen:,} of the more than {needed} steps that a process needs for a verdict, the first "
        f"{WARM_UP_STEPS} of which are left out"
    )
    if view.closed:
        reason += "; its stream has ended, too early for a verdict"
    return Judgement(Status.WARMING_UP, f"{reason}.", data_points=steps, patience=f"{seen}/{needed}")


def _sentence(verdict: _Verdict, parameters: StepOutlierParameters) -> str:
    series = verdict.series
    slow = (
        f"steps over twice the median of {show_step(verdict.median_us)} cost "
        f"{show_percent(verdict.slow_share)} of the time in steps (slow_share {show_percent(parameters.slow_share)})"
    )
    if verdict.too_slow and not verdict.too_many:
        return f"{verdict.label}: {slow}"
    compared = "more than" if verdict.too_many else "no more than"
    many = (
        f"{verdict.outliers:,} of {series.steps:,} steps took over {show_step(verdict.above_us)} (mean "
        f"{show_step(series.mean_us)} and {show_number(parameters.stddev)} standard deviations of "
        f"{show_step(series.deviation_us)}), {compared} the {verdict.plausible:,} that are plausible"
    )
    return f"{verdict.label}: {many}; {slow}" if verdict.too_slow else f"{verdict.label}: {many}"


def _advice(verdict: _Verdict, state: StepOutlierState) -> str:
    """Say what goes with the slow steps, as far as the events show it, and what to do."""
    slow_above = show_step(min(SLOW_MEDIANS * verdict.median_us, verdict.above_us))
    grown = state.overlap.most_grown()
    if grown is not None and grown[1] >= grown[2] + GROWN_BY_PERCENT:
        name, slow, ordinary = grown
        advice = (
            f"Look at {name}: it takes {show_percent(slow)} of the steps over {slow_above} and "
            f"{show_percent(ordinary)} of the others"
        )
    else:
        advice = (
            f"Look at what runs at the times of the steps over {slow_above} (checkpoints, evaluation, logging, data "
            "loading), and make it asynchronous or rarer"
        )
    distance = _distance(verdict.series)
    return f"{advice}; they come every {distance} steps." if distance else f"{advice}."


def _distance(series: StepSeries) -> int | None:
    """Return at what distance slow steps come, when at least four of five among the newest keep it."""
    numbers = [int(step.number) for step in series.slow if step.number.isdecimal()]
    distances = [after - before for before, after in pairwise(numbers)]
    if len(distances) < MIN_DISTANCES:
        return None
    usual = max(sorted(set(distances)), key=distances.count)
    return usual if usual > 1 and distances.count(usual) >= REGULAR_SHARE * len(distances) else None


def _details(verdict: _Verdict) -> dict[str, Any]:
    """Numbers of one series for the report, in seconds."""
    series, durations = verdict.series, verdict.series.durations
    lower, upper = durations.edges()
    p99, p95, p50 = durations.quantiles((0.99, 0.95, 0.5))
    return {
        "process": series.process,
        "mode": series.mode,
        "steps": series.steps,
        "steps_left_out": series.dropped,
        "step_stats": {
            "mean": series.mean_us / 1e6,
            "max": series.longest_us / 1e6,
            "p99": p99 / 1e6,
            "p95": p95 / 1e6,
            "p50": p50 / 1e6,
            "min": series.shortest_us / 1e6,
        },
        "stddev": series.deviation_us / 1e6,
        "number_of_outliers": verdict.outliers,
        "plausible_outliers": verdict.plausible,
        "short_steps": verdict.short,
        "slow_share_percent": verdict.slow_share,
        "fired": verdict.fired,
        "histogram": {"lower_us": lower.tolist(), "upper_us": upper.tolist(), "counts": list(durations.counts)},
    }


def _slow_steps(state: StepOutlierState) -> list[dict[str, Any]]:
    """List the newest slow steps of all series, oldest first."""
    rows = [(step.start_us, series, step) for series in state.series for step in series.slow]
    newest = sorted(rows, key=lambda row: row[0])[-KEPT_SLOW_STEPS:]
    return [
        {
            "process": series.process,
            "mode": series.mode,
            "step": step.number,
            "start": start_us / 1e6,
            "duration": step.duration_us / 1e6,
        }
        for start_us, series, step in newest
    ]
