"""The conditions of TrainingDiverged over a whole run.

A worse rise must not hide a rise: rises are no noise, and also judged as if no larger than needed (``_attenuated``).
What a policy does is a fault only where its reward is not as good as it was: one that has learned its task is sure.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Objective, Signal
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.training.learned_nothing import CHANCE_BELOW
from trainguard.rules.training.run_series import RunSeries, series_check
from trainguard.rules.training.series import (
    CLEAR_NOISE,
    NO_TREND,
    REAL_FALL,
    Series,
    first_facts,
    level,
    level_of,
    noise,
    smoothed,
    steady_noise,
    step_number,
    unit,
    z_score,
)
from trainguard.rules.training.step_rule import Check, StepParameters

TAIL = 0.2
# A rise above so much of the fall is also judged as one of that size: a larger one is no smaller finding.
JUST_LOST = 0.75

SAME_SCORE = 0.05
ENDED_TAIL = 3
# While a run goes on: a loss scaler may skip a batch, or one batch be bad; at first a scaler may search.
BROKEN_ROW, FIRST_ROW = 3, 10

FEWEST_BLOCKS = 5
# Times the very first value: the mean of the first block may hold the explosion itself.
FAR_ABOVE_FIRST, FAR_BELOW_FIRST = 10.0, 100.0
# A smaller first value is next to none: losses that begin at 0, as a divergence from a reference, may grow.
LEAST_FIRST = 1e-3
# A loss that is so many times its start is excused by no score at the level of a guess.
EXCUSED = 10.0

RUNAWAY = 10.0


class TrainingDivergedParameters(StepParameters, frozen=True, kw_only=True):
    lost: NonNegative = 0.5
    blow_up: NonNegative = 3.0
    score_lost: NonNegative = 0.2
    live_rows: PositiveInt = 250


def rise(run: RunSeries, limits: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Find that all losses of training have risen for good, and no score says otherwise."""
    losses = run.loss(Mode.TRAIN)
    by_level = run.objective.level_means_something
    found = [_risen(loss, limits, fewest, by_level=by_level) for _, loss in losses]
    rises = [each for each in found if each is not None]
    if not losses or len(rises) < len(losses) or not run.has_to_fall(*(name for name, _ in losses)):
        return None
    (name, loss), (kind, threshold) = losses[0], rises[0]
    count = tail_of(loss)
    tail = loss.means[-count:]
    if _score_holds(run, is_far=min(tail) > EXCUSED * abs(_start(loss)) > 0.0):
        return None
    lowest = loss.means.index(min(loss.means))
    bad = len(loss.means) - 1
    while bad > 0 and loss.means[bad - 1] > threshold:
        bad -= 1
    facts = (
        *first_facts(name, loss),
        level_of("loss_at_first_step", name, loss.first),
        level_of("loss_lowest", name, loss.means[lowest]),
        step_number("loss_lowest_step", loss.steps[lowest]),
        level_of("loss_least_since", name, min(tail)),
        step_number("risen_after_step", loss.steps[-count - 1]),
        Fact(
            name="loss_last", value=fmean(tail), series=name, threshold=threshold,
            start=loss.begin_of(len(loss.means) - count), end=float(loss.times[-1]) or None,
        ),
    )  # fmt: skip
    return series_check(
        run, kind, (name, loss), facts, float(facts[-1].value), threshold=threshold, onset=loss.begin_of(bad)
    )


def runaway(run: RunSeries, fewest: int) -> Check | None:
    """Find that a loss of training falls below 0 faster and faster: it has no minimum."""
    for name, loss in run.loss(Mode.TRAIN)[:1]:
        count, half = tail_of(loss), len(loss.means) // 2
        if len(loss.means) < 2 * FEWEST_BLOCKS or count * loss.size < fewest or run.moves(name):
            continue
        threshold = -RUNAWAY * max(abs(each) for each in loss.means[:half])
        if max(loss.means[-count:]) < threshold or _races(loss, half):
            facts = (
                *first_facts(name, loss),
                level_of("loss_half_way", name, loss.means[half - 1]),
                step_number("half_way_step", loss.steps[half - 1]),
                level_of("loss_last", name, loss.last),
            )
            return series_check(
                run, "unbounded", (name, loss), facts, loss.last, threshold=threshold, onset=loss.begin_of(half)
            )
    return None


def _races(loss: Series, half: int) -> bool:
    """Whether a loss is below 0, falls all the time, and by more in each third of the run than in the one before."""
    third = len(loss.means) // 3
    ends = (loss.means[0], loss.means[third], loss.means[2 * third], loss.means[-1])
    falls = [before - after for before, after in pairwise(ends)]
    far = ends[-1] < -FAR_BELOW_FIRST * abs(loss.first) < 0.0 and ends[-1] < 2.0 * loss.means[half - 1]
    return far and falls == sorted(falls) and all(later < earlier for earlier, later in pairwise(loss.means))


def score_lost(run: RunSeries, limits: TrainingDivergedParameters, fewest: int) -> Check | None:
    """Find that a score of training has fallen far below its best, and the loss has risen with it."""
    for name, score in run.score(Mode.TRAIN):
        count = tail_of(score)
        if len(score.means) < FEWEST_BLOCKS + count or count * score.size < fewest or run.moves(name):
            continue
        before, tail = smoothed(score.means[:-count]), score.means[-count:]
        best = -lowest_level([-each for each in before], count)
        threshold = best - max(limits.score_lost * unit(score), CLEAR_NOISE * noise(before))
        if max(tail) < threshold and _loss_rose(run):
            return _lost(run, (name, score), "score", best, threshold)
    return None


def _lost(
    run: RunSeries, of: tuple[str, Series], what: str, best: float, threshold: float, begun: tuple[Fact, ...] = ()
) -> Check:
    """Return the check of a series whose last fifth lies below its best by too much."""
    name, series = of
    count = tail_of(series)
    most = max(series.means[-count:])
    facts = (
        *begun,
        level_of(f"{what}_best", name, best),
        step_number("fallen_after_step", series.steps[-count - 1]),
        Fact(name=f"{what}_most_since", value=most, series=name, threshold=threshold),
    )
    onset = series.begin_of(len(series.means) - count)
    return series_check(run, f"{what} lost", of, facts, most, threshold=threshold, onset=onset)


def _loss_rose(run: RunSeries) -> bool:
    losses = [loss for _, loss in run.loss(Mode.TRAIN) if len(loss.means) > tail_of(loss)]
    return bool(losses) and all(
        fmean(loss.means[-tail_of(loss) :]) > lowest_level(loss.means, tail_of(loss)) for loss in losses
    )


def _risen(
    loss: Series, limits: TrainingDivergedParameters, fewest: int, *, by_level: bool
) -> tuple[str, float] | None:
    """Return the level above which a loss lies for good; of one that may grow on its own, where it had fallen below."""
    count, is_long = tail_of(loss), len(loss.means) >= FEWEST_BLOCKS
    if len(loss.means) <= count or count * loss.size < fewest:
        return None
    if by_level:
        start, tail = _start(loss), loss.means[-count:]
        noise_before = steady_noise(smoothed(loss.means[:-count]))
        blown_up = start + max((limits.blow_up - 1.0) * abs(start), CLEAR_NOISE * noise_before)
        if is_long and min(tail) > blown_up:
            return "blown up", blown_up
        times = limits.blow_up if max(loss.means) > FAR_ABOVE_FIRST * abs(loss.first) else FAR_ABOVE_FIRST
        if abs(loss.first) >= LEAST_FIRST and min(tail) > times * abs(loss.first):
            return "exploded", times * abs(loss.first)
    lost = gone_again(loss.means, count, limits) if is_long else None
    return None if lost is None else ("lost", lost)


def _start(loss: Series) -> float:
    """Return the level at the start; of a long run the lower middle of its first values where that is less."""
    return loss.means[0] if loss.size == 1 else min(loss.means[0], sorted(loss.head)[(len(loss.head) - 1) // 2])


def gone_again(means: Sequence[float], count: int, limits: TrainingDivergedParameters) -> float | None:
    """Return the level above which the last ``count`` means lie that had fallen below it; None of a fall that holds."""
    before = means[:-count]
    place = before.index(min(before))
    fallen = means[0] - before[place]
    if (
        fallen < REAL_FALL * abs(means[0])
        or fallen <= 0.0
        or fallen <= CLEAR_NOISE * steady_noise(smoothed(before[: place + 1]), falls=True)
    ):
        return None
    for values in (means, _attenuated(means, place, count, fallen)):
        lows = smoothed(values[:-count])
        lowest = lowest_level(lows, count)
        real = means[0] - lowest
        lost = lowest + max(limits.lost * real, CLEAR_NOISE * steady_noise(lows))
        if real > 0.0 and min(values[-count:]) > lost:
            return lost
    return None


def _attenuated(means: Sequence[float], place: int, count: int, fallen: float) -> list[float]:
    """Return a curve whose part after its lowest value has risen by ``JUST_LOST`` of the fall in the end, or less."""
    lowest = means[place]
    risen = min(means[-count:]) - lowest
    factor = 1.0 if risen <= JUST_LOST * fallen else JUST_LOST * fallen / risen
    return [*means[: place + 1], *(lowest + factor * (each - lowest) for each in means[place + 1 :])]


def lowest_level(values: Sequence[float], count: int) -> float:
    """Return the lowest mean of as many values in a row as the tail has: like is compared with like."""
    count = min(count, len(values))
    return min(fmean(values[place : place + count]) for place in range(len(values) - count + 1))


def tail_of(loss: Series) -> int:
    return max(math.ceil(TAIL * len(loss.means)), 1 if loss.size > 1 else ENDED_TAIL)


def _score_holds(run: RunSeries, *, is_far: bool) -> bool:
    """Whether a score of training is still about as good as it ever was, and better than at the start.

    Where the loss ``is_far`` above its start, a score that a guess may have excuses nothing; nor does an order of
    preference, which is right where the loss says how wrong its sizes are.
    """
    if run.objective is Objective.PREFERENCE:
        return False
    for _, score in run.score(Mode.TRAIN):
        values = smoothed(score.means)
        reach = max(values) - min(values)
        tail = level(values, TAIL, end=True)
        if is_far and tail / unit(score) < CHANCE_BELOW:
            continue
        if reach > 0.0 and tail >= max(values) - max(SAME_SCORE * reach, noise(values)) and tail > values[0]:
            return True
    return False


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
    threshold = _lost_below(reward, limits)
    if threshold is None:
        return None
    best, begun = max(reward.means[: -tail_of(reward)]), first_facts(name, reward, "reward")
    return _lost(run, (name, reward), "reward", best, threshold, begun)


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
    half = reward.means[len(reward.means) // 2 :]
    is_worse = z_score(reward.whole) < NO_TREND and max(half) < min(_starts(reward))
    threshold = (UNSURE if is_worse or _falls_away(reward) else GONE) * abs(entropy.means[0])
    most = max(abs(each) for each in entropy.means[-tail_of(entropy) :])
    if most >= threshold:
        return None
    return _followed(run, "entropy gone", (name, entropy), "entropy", most, threshold)


def _falls_away(reward: Series) -> bool:
    """Whether a reward falls over the last third of the run, by a quarter of what it had gained."""
    values = smoothed(reward.means)
    best = max(values)
    return z_score(values[-len(values) // 3 :]) <= -NO_TREND and best - values[-1] > FALLEN * (best - reward.means[0])


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
