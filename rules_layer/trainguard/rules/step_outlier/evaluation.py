"""One process's training steps, compared with chance, their median and the GPUs' use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.render.details import Details, Durations
from trainguard.rules.protocol import NonNegativeInt, Percent, Positive, RuleParameters
from trainguard.rules.rule_inputs import NodeFacts
from trainguard.rules.sample_statistics import normal_tail, poisson_quantile
from trainguard.rules.step_outlier.series import KEPT_SLOW_STEPS, StepSeries, StepsState

SLOW_MEDIANS = 2.0
PLAUSIBLE_PROBABILITY = 0.999
# Share of long steps that every healthy job may have, such as a checkpoint in 500 steps.
MIN_PLAUSIBLE_SHARE = 0.002
# GPUs that idled for less than this part of what slow steps took beyond the median did not wait for them.
IDLE_PART = 0.5

MICROSECONDS = 1e6


class StepOutlierParameters(RuleParameters, frozen=True, kw_only=True):
    stddev: Positive = 5.0
    mode: str | None = None
    n_outliers: NonNegativeInt = 10
    slow_share: Percent = 10.0


@dataclass(frozen=True)
class EvaluatedSeries:
    """One series of a node, judged; durations in microseconds, ``slow_share`` in percent.

    ``outliers`` counts steps of ``above_us`` or longer: the first bin's edge beyond the limit. ``affected_share`` is
    the share, 0 to 1, of the process's time in slow steps, ``lost_share`` that beyond the median of all time since the
    node's first step. The GPUs waited where they idled for ``idle_needed`` (0 to 1) of the time; steps are too slow
    above ``slow_limit`` percent.
    """

    facts: NodeFacts
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
    idle_needed: float
    slow_limit: float

    @property
    def node(self) -> str:
        return self.facts.node

    @cached_property
    def gpu(self) -> Fact | None:
        """How busy the least busy GPU was in that time; None without samples. Few series of a job are asked."""
        return least_busy(self.facts, self.series)

    @property
    def is_lost(self) -> bool:
        """Whether the GPUs idled for as long as that they can have waited for the slow steps."""
        idle = 1.0 if self.gpu is None else 1.0 - float(self.gpu.value) / 100.0
        return idle >= self.idle_needed and (self.too_many or 100.0 * idle > self.slow_limit)

    @property
    def is_slow(self) -> bool:
        """Whether it has too many outliers, or too much time in slow steps, as its host saw them."""
        return self.too_many or self.too_slow

    @property
    def fired(self) -> bool:
        return self.is_slow and self.is_lost

    @property
    def label(self) -> str:
        return f"{self.series.process} {self.series.mode.removeprefix('Step:ModeKeys.')}"


def evaluated(facts: NodeFacts, series: StepSeries, steps_us: int, limits: StepOutlierParameters) -> EvaluatedSeries:
    """Apply n > max(n_outliers, Poisson quantile of N max(1 - Phi(stddev), 0.002)), and the share of the time lost.

    ``steps_us`` is the process's time in the steps of all modes: what is rare cannot cost much, however slow it is.
    """
    mean, spread = series.mean_us, limits.stddev * series.deviation_us
    share = max(normal_tail(limits.stddev), MIN_PLAUSIBLE_SHARE)
    plausible = max(limits.n_outliers, poisson_quantile(PLAUSIBLE_PROBABILITY, series.steps * share))
    median = series.durations.quantile(0.5)
    slow_share = 100.0 * series.durations.excess_above(SLOW_MEDIANS * median, median) / steps_us
    outliers = series.durations.count_above(mean + spread)
    long_us = min(SLOW_MEDIANS * median, mean + spread)
    lost_us = series.durations.excess_above(long_us, median)
    too_many, too_slow = outliers > plausible, slow_share > limits.slow_share
    return EvaluatedSeries(
        facts=facts,
        series=series,
        median_us=median,
        above_us=series.durations.edge_above(mean + spread),
        outliers=outliers,
        short=series.durations.count_below(mean - spread),
        plausible=plausible,
        slow_share=slow_share,
        affected_share=series.durations.excess_above(long_us, 0.0) / steps_us,
        lost_share=lost_us / max(steps_us, _elapsed_us(facts)),
        too_many=too_many,
        too_slow=too_slow,
        idle_needed=IDLE_PART * lost_us / max(series.last_us - (series.first_us or 0), 1),
        slow_limit=limits.slow_share,
    )


def least_busy(facts: NodeFacts, series: StepSeries) -> Fact | None:
    """Return how busy the least busy GPU is that a node uses during a process's steps; None without samples.

    The others may be busy with waiting for it: a collective operation counts as work.
    """
    if series.first_us is None or facts.system is None:
        return None
    use = facts.used_between(series.first_us / MICROSECONDS, series.last_us / MICROSECONDS)
    if use is None:
        return None
    used = facts.system.ever_active[: use.means.size]
    means = np.where(used, use.means, np.nan) if used.any() else use.means
    if np.isnan(means).all():
        return None
    place = int(np.nanargmin(means))
    gpu, mean = facts.system.gpu_names[place], float(means[place])
    where: dict[str, Any] = {"node": facts.node, "device": gpu, "start": use.start, "end": use.end}
    return Fact(name="mean_utilization", value=mean, unit="%", series="GPUUtilization", **where)


def _elapsed_us(facts: NodeFacts) -> float:
    """Return the time since the node's first step, microseconds; 0 where it is not known."""
    stream = facts.framework
    if stream is None or stream.watermark_s is None or stream.first_step_at is None:
        return 0.0
    return (stream.watermark_s - stream.first_step_at) * MICROSECONDS


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
        framework=ComparedSteps(
            slow_steps_s=state.overlap.slow_step_us / 1e6,
            ordinary_steps_s=state.overlap.ordinary_step_us / 1e6,
            events=[StepEvent(*row) for row in state.overlap.compared()],
        ),
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
    rows = [(step.start_us, series, step) for series in state.series for step in series.slow]
    newest = sorted(rows, key=lambda row: row[0])[-KEPT_SLOW_STEPS:]
    return [
        ShownStep(series.process, series.mode, step.number, start_us / 1e6, step.duration_us / 1e6)
        for start_us, series, step in newest
    ]
