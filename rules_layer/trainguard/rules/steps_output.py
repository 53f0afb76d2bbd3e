"""What is said of training steps that are slow: sentences, advice, and the report's details."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from trainguard.rules.details import Details, Durations
from trainguard.rules.step_overlap import StepOverlap
from trainguard.rules.step_series import KEPT_SLOW_STEPS, StepSeries, StepsState
from trainguard.rules.units import show_number, show_percent, show_step

SLOW_MEDIANS = 2.0
REPORTED_SERIES = 16
GROWN_BY_PERCENT = 10.0
"""An event is named in the advice when its share of slow steps exceeds that of ordinary ones by so many points."""

MIN_DISTANCES = 4
REGULAR_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class EvaluatedSeries:
    """RuleResult of one series; durations in microseconds, ``slow_share`` in percent.

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
        """Whether it has too many outliers, or loses too much time."""
        return self.too_many or self.too_slow

    @property
    def label(self) -> str:
        """Process and mode, for people."""
        return f"{self.series.process} {self.series.mode.removeprefix('Step:ModeKeys.')}"


class StepStatistics(msgspec.Struct, frozen=True):
    """Seconds."""

    mean: float | None
    max: float | None
    p99: float | None
    p95: float | None
    p50: float | None
    min: float | None


class SeriesOfSteps(msgspec.Struct, frozen=True):
    """Steps of one process and mode; ``stddev`` in seconds."""

    process: str
    mode: str
    steps: int
    steps_left_out: int
    step_stats: StepStatistics
    stddev: float | None
    number_of_outliers: int
    plausible_outliers: int
    short_steps: int
    slow_share_percent: float | None
    fired: bool
    histogram: Durations


class ShownStep(msgspec.Struct, frozen=True):
    """A slow step: start in epoch seconds, duration in seconds."""

    process: str
    mode: str
    step: str
    start: float
    duration: float


class StepEvent(msgspec.Struct, frozen=True):
    """An event and its share of the time of slow and of ordinary steps, percent."""

    event: str
    slow_steps_percent: float | None
    ordinary_steps_percent: float | None


class ComparedSteps(msgspec.Struct, frozen=True):
    """What goes with slow steps: both kinds' time in seconds, and the events whose share differs most."""

    slow_steps_s: float
    ordinary_steps_s: float
    events: list[StepEvent]


class StepDetails(Details, frozen=True):
    """A node's processes: those judged, the worst first, and the newest slow steps, oldest first."""

    series: list[SeriesOfSteps]
    slow_steps: list[ShownStep]
    framework: ComparedSteps
    series_judged: int
    series_not_judged: int
    steps_not_judged: int


def details_of(ranked: Sequence[EvaluatedSeries], state: StepsState) -> StepDetails:
    """Return the numbers of a node's processes, of which ``ranked`` are those judged, the worst first."""
    return StepDetails(
        series=[_series(verdict) for verdict in ranked[:REPORTED_SERIES]],
        slow_steps=_slow_steps(state),
        framework=_compared(state.overlap),
        series_judged=len(ranked),
        series_not_judged=len(state.refused),
        steps_not_judged=state.steps_not_judged,
    )


def _series(verdict: EvaluatedSeries) -> SeriesOfSteps:
    series, durations = verdict.series, verdict.series.durations
    p99, p95, p50 = durations.quantiles((0.99, 0.95, 0.5))
    return SeriesOfSteps(
        process=series.process,
        mode=series.mode,
        steps=series.steps,
        steps_left_out=series.dropped,
        step_stats=StepStatistics(
            mean=series.mean_us / 1e6,
            max=series.longest_us / 1e6,
            p99=p99 / 1e6,
            p95=p95 / 1e6,
            p50=p50 / 1e6,
            min=series.shortest_us / 1e6,
        ),
        stddev=series.deviation_us / 1e6,
        number_of_outliers=verdict.outliers,
        plausible_outliers=verdict.plausible,
        short_steps=verdict.short,
        slow_share_percent=verdict.slow_share,
        fired=verdict.fired,
        histogram=Durations.of(durations),
    )


def _slow_steps(state: StepsState) -> list[ShownStep]:
    """List the newest slow steps of all series, oldest first."""
    rows = [(step.start_us, series, step) for series in state.series for step in series.slow]
    newest = sorted(rows, key=lambda row: row[0])[-KEPT_SLOW_STEPS:]
    return [
        ShownStep(series.process, series.mode, step.number, start_us / 1e6, step.duration_us / 1e6)
        for start_us, series, step in newest
    ]


def _compared(overlap: StepOverlap) -> ComparedSteps:
    return ComparedSteps(
        slow_steps_s=overlap.slow_step_us / 1e6,
        ordinary_steps_s=overlap.ordinary_step_us / 1e6,
        events=[StepEvent(*row) for row in overlap.compared()],
    )


def sentence_of(verdict: EvaluatedSeries, stddev: float, slow_share: float) -> str:
    """Say how many steps of a process were slow, and what they cost, against the parameters."""
    series = verdict.series
    slow = (
        f"steps over twice the median of {show_step(verdict.median_us)} cost "
        f"{show_percent(verdict.slow_share)} of the time in steps (slow_share {show_percent(slow_share)})"
    )
    if verdict.too_slow and not verdict.too_many:
        return f"{verdict.label}: {slow}"
    compared = "more than" if verdict.too_many else "no more than"
    many = (
        f"{verdict.outliers:,} of {series.steps:,} steps took over {show_step(verdict.above_us)} (mean "
        f"{show_step(series.mean_us)} and {show_number(stddev)} standard deviations of "
        f"{show_step(series.deviation_us)}), {compared} the {verdict.plausible:,} that are plausible"
    )
    return f"{verdict.label}: {many}; {slow}" if verdict.too_slow else f"{verdict.label}: {many}"


def advice_on(verdict: EvaluatedSeries, state: StepsState) -> str:
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
