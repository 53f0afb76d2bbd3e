"""Conditions of TrainingDiverged on runs whose losses say little: reinforcement learning, and adversaries.

A reward that was gained and is lost, a policy far from its reference, one without entropy, a generator that cannot win.
What a policy does is a fault only where its reward is not as good as it was: one that has learned its task is sure.
"""

import re
from collections.abc import Callable, Mapping
from statistics import fmean, median

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Signal
from trainguard.rules.training.risen import (
    FEWEST_BLOCKS,
    TrainingDivergedParameters,
    gone_again,
    lowest_level,
    tail_of,
)
from trainguard.rules.training.run_series import RunSeries, series_check
from trainguard.rules.training.series import NO_TREND, Series, first_facts, level_of, smoothed, step_number, z_score
from trainguard.rules.training.step_rule import Check

# Signals of which the first series of training is kept.
FOLLOWED = (Signal.REWARD, Signal.KL, Signal.ENTROPY, Signal.GENERATOR, Signal.DISCRIMINATOR)
# Less than 1 nat is small whatever it was before; sums over the tokens of an answer reach some tens.
TIMES_KL, LEAST_KL = 10.0, 1.0
# A divergence from the policy before the update: of one that learns it is some hundredths of a nat.
OF_UPDATE = re.compile(r"(?i)approx|ppo_?kl")

GONE, WON, TIMES_LOST = 0.02, 0.02, 3.0
# The cross entropy of a generator of whose samples the discriminator takes 3 in 10,000 for real.
LOST = 8.0

FALLEN = 0.25
# So much of its entropy is left of a policy that is sure: a fault where its reward is worse than when it began.
UNSURE = 0.25

Measured = Mapping[Signal, tuple[str, Series]]


def off_course(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Find what went wrong with a policy, or between adversaries."""
    judges: tuple[Callable[..., Check | None], ...] = (
        _reward_lost,
        _updates_too_large,
        _kl_exploded,
        _entropy_gone,
        _generator_lost,
    )
    kept = {
        signal: (name, series)
        for signal, (name, series) in measured.items()
        if len(series.means) >= FEWEST_BLOCKS + tail_of(series) and tail_of(series) * series.size >= fewest
    }
    return next((found for judge in judges if (found := judge(run, kept, limits)) is not None), None)


def _reward_lost(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters) -> Check | None:
    if Signal.REWARD not in measured:
        return None
    name, reward = measured[Signal.REWARD]
    count = tail_of(reward)
    threshold = _lost_below(reward, limits)
    if threshold is None:
        return None
    best = max(reward.means[:-count])
    most = max(reward.means[-count:])
    facts = (
        *first_facts(name, reward, "reward"),
        level_of("reward_best", name, best),
        step_number("fallen_after_step", reward.steps[-count - 1]),
        Fact(name="reward_most_since", value=most, series=name, threshold=threshold),
    )
    onset = reward.begin_of(len(reward.means) - count)
    return series_check(run, "reward lost", (name, reward), facts, most, threshold=threshold, onset=onset)


def _lost_below(reward: Series, limits: TrainingDivergedParameters) -> float | None:
    """Return the level that a reward was above and is below for good; None of one that was kept, or never gained."""
    lost = gone_again([-each for each in reward.means], tail_of(reward), limits)
    return None if lost is None else -lost


def _holds(measured: Measured, limits: TrainingDivergedParameters) -> bool:
    """Whether a reward was recorded that has risen and was kept."""
    if Signal.REWARD not in measured:
        return False
    reward = measured[Signal.REWARD][1]
    return z_score(reward.whole) >= NO_TREND and _lost_below(reward, limits) is None and not _falls_away(reward)


def _updates_too_large(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters) -> Check | None:
    """Find that each update moves the policy too far to say that it learns, whatever its reward is for now."""
    if Signal.KL not in measured or not OF_UPDATE.search(measured[Signal.KL][0]):
        return None
    name, divergence = measured[Signal.KL]
    typical = median(divergence.means)
    if min(typical, median(divergence.means[-tail_of(divergence) :])) <= LEAST_KL:
        return None
    facts = (
        *first_facts(name, divergence, "kl"),
        Fact(name="kl_typical", value=typical, series=name, threshold=LEAST_KL),
    )
    onset = divergence.begin_of(0)
    return series_check(run, "updates too large", (name, divergence), facts, typical, threshold=LEAST_KL, onset=onset)


def _kl_exploded(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters) -> Check | None:
    if Signal.KL not in measured or _holds(measured, limits):
        return None
    name, divergence = measured[Signal.KL]
    count = tail_of(divergence)
    threshold = max(LEAST_KL, TIMES_KL * lowest_level(divergence.means[:-count], count))
    least = min(divergence.means[-count:])
    if least <= threshold:
        return None
    return _followed(run, "kl exploded", (name, divergence), "kl", least, threshold)


def _entropy_gone(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters) -> Check | None:
    if Signal.ENTROPY not in measured or Signal.REWARD not in measured or _holds(measured, limits):
        return None
    name, entropy = measured[Signal.ENTROPY]
    if entropy.least < 0.0 < entropy.most:
        return None
    reward = measured[Signal.REWARD][1]
    threshold = (UNSURE if _is_worse(reward) or _falls_away(reward) else GONE) * abs(entropy.means[0])
    most = max(abs(each) for each in entropy.means[-tail_of(entropy) :])
    if most >= threshold:
        return None
    return _followed(run, "entropy gone", (name, entropy), "entropy", most, threshold)


def _falls_away(reward: Series) -> bool:
    """Whether a reward falls over the last third of the run, by a quarter of what it had gained."""
    values = smoothed(reward.means)
    best = max(values)
    return z_score(values[-len(values) // 3 :]) <= -NO_TREND and best - values[-1] > FALLEN * (best - reward.means[0])


def _is_worse(reward: Series) -> bool:
    """Whether a reward does not rise, and was below its start throughout the last half."""
    half = reward.means[len(reward.means) // 2 :]
    return z_score(reward.whole) < NO_TREND and max(half) < min(_starts(reward))


def _generator_lost(run: RunSeries, measured: Measured, limits: TrainingDivergedParameters) -> Check | None:
    if not {Signal.GENERATOR, Signal.DISCRIMINATOR} <= measured.keys():
        return None
    (name, generator), (other, discriminator) = measured[Signal.GENERATOR], measured[Signal.DISCRIMINATOR]
    if min(discriminator.least, generator.least) < 0.0:
        return None
    won = WON * max(discriminator.first, *_starts(discriminator))
    most, least = max(discriminator.means[-tail_of(discriminator) :]), min(generator.means[-tail_of(generator) :])
    threshold = min(LOST, TIMES_LOST * min(_starts(generator)))
    if most >= won or least <= threshold:
        return None
    beside = (
        *first_facts(other, discriminator, "discriminator"),
        Fact(name="discriminator_most_since", value=most, series=other, threshold=won),
    )
    return _followed(run, "generator lost", (name, generator), "generator", least, threshold, beside)


def _starts(series: Series) -> tuple[float, float]:
    """Return the mean of the first block, and of the first values: the block of a long run may hold its end."""
    return series.means[0], fmean(series.head)


def _followed(
    run: RunSeries,
    kind: str,
    of: tuple[str, Series],
    prefix: str,
    value: float,
    threshold: float,
    beside: tuple[Fact, ...] = (),
) -> Check:
    """Return the check of a series that began somewhere and whose last fifth lies beyond a threshold."""
    name, series = of
    count = tail_of(series)
    facts = (
        *first_facts(name, series, prefix),
        step_number("since_step", series.steps[-count - 1]),
        Fact(name=f"{prefix}_since", value=value, series=name, threshold=threshold),
        *beside,
    )
    onset = series.begin_of(len(series.means) - count)
    return series_check(run, kind, of, facts, value, threshold=threshold, onset=onset)
