"""One process's training steps, held against chance, against their median, and against what the GPUs did meanwhile."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainguard.rules.chance import normal_tail, poisson_quantile
from trainguard.rules.rule_inputs import NodeFacts
from trainguard.rules.step_series import StepSeries

SLOW_MEDIANS = 2.0
PLAUSIBLE_PROBABILITY = 0.999
MIN_PLAUSIBLE_SHARE = 0.002
"""Share of long steps that every healthy job may have, such as a checkpoint in 500 steps."""

IDLE_PART = 0.5
"""GPUs that idled for less than this part of what slow steps took beyond the median did not wait for them."""

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class BusyGpu:
    """The least busy of the GPUs that a node uses, over the time of a process's steps: percent, epoch seconds."""

    name: str
    mean: float
    start: float
    end: float

    @property
    def idle_share(self) -> float:
        """Share, 0 to 1, of that time that it left undone."""
        return 1.0 - self.mean / 100.0


@dataclass(frozen=True)
class EvaluatedSeries:
    """One series of a node, judged; durations in microseconds, ``slow_share`` in percent.

    ``affected_share`` is the share, 0 to 1, of the process's time in steps that went into slow steps and outliers,
    ``lost_share`` the share of all its time since the first step of the node that was beyond the median. ``too_many``
    and ``too_slow`` are what its steps show. The GPUs waited for slow ones where they idled for ``idle_needed`` of the
    time, a share from 0 to 1, or more; of steps that are too slow, for more than ``slow_limit`` percent.
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
        """The node's name."""
        return self.facts.node

    @cached_property
    def gpu(self) -> BusyGpu | None:
        """How busy the GPUs were meanwhile; None where no sample tells. Few series of a job are asked."""
        return least_busy(self.facts, self.series)

    @property
    def is_lost(self) -> bool:
        """Whether the GPUs idled for as long as that they can have waited for the slow steps."""
        idle = 1.0 if self.gpu is None else self.gpu.idle_share
        return idle >= self.idle_needed and (self.too_many or 100.0 * idle > self.slow_limit)

    @property
    def is_slow(self) -> bool:
        """Whether it has too many outliers, or too much time in slow steps, as its host saw them."""
        return self.too_many or self.too_slow

    @property
    def fired(self) -> bool:
        """Whether the GPUs waited for slow steps."""
        return self.is_slow and self.is_lost

    @property
    def label(self) -> str:
        """Process and mode, for people."""
        return f"{self.series.process} {self.series.mode.removeprefix('Step:ModeKeys.')}"


@dataclass(frozen=True, slots=True)
class Limits:
    """From which number of outliers, and from which share of the time in percent, steps are too slow."""

    stddev: float
    n_outliers: int
    slow_share: float


def evaluated(facts: NodeFacts, series: StepSeries, steps_us: int, limits: Limits) -> EvaluatedSeries:
    """Apply n > max(n_outliers, Poisson quantile of N max(1 - Phi(stddev), 0.002)), and the share of the time lost.

    ``steps_us`` is the process's time in the steps of all modes: what is rare cannot cost much, however slow it is. The
    GPUs can have waited for no more than what they left undone.
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
        above_us=mean + spread,
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


def least_busy(facts: NodeFacts, series: StepSeries) -> BusyGpu | None:
    """Return the least busy of the GPUs that a node uses while a process had its steps; None where no sample tells.

    The others may be busy with nothing but waiting for it: a collective operation counts as work.
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
    return BusyGpu(facts.system.gpu_names[place], float(means[place]), use.start, use.end)


def _elapsed_us(facts: NodeFacts) -> float:
    """Return the time since the node's first step, microseconds; 0 where it is not known."""
    stream = facts.framework
    if stream is None or stream.watermark_s is None or stream.first_step_at is None:
        return 0.0
    return (stream.watermark_s - stream.first_step_at) * MICROSECONDS
