"""What the report shows of a node's training steps."""

from collections.abc import Sequence

import msgspec

from trainguard.rules.details import Details, Durations
from trainguard.rules.step_evaluation import EvaluatedSeries
from trainguard.rules.step_overlap import StepOverlap
from trainguard.rules.step_series import KEPT_SLOW_STEPS, StepsState

REPORTED_SERIES = 16


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
