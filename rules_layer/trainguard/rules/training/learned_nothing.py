"""The conditions of NotLearning: each returns its evidence that a run learned nothing, or None.

Whether a loss and a share of right answers are those of a guess is seen by the cross entropy.
"""

import math
import re
from statistics import fmean, median

from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.training.run_series import RunSeries, series_check
from trainguard.rules.training.series import (
    CLEAR_NOISE,
    FEWEST,
    NO_TREND,
    REAL_FALL,
    TAIL,
    Series,
    end_facts,
    fall,
    first_facts,
    gain,
    level_of,
    noise,
    smoothed,
    steady_noise,
    step_number,
    tail,
    unit,
    z_score,
)
from trainguard.rules.training.step_rule import Check, StepParameters

# A share of right answers above it is not looked at: a good model comes near 1 too.
CHANCE_BELOW = 0.65

AT_CHANCE, NEAR_CHANCE = 1.2, 0.8
# A loss may be of a regression, and any number: its exponential is not.
LARGEST_LOSS = 50.0

NEAR_GUESS = 0.05
# Beyond ten classes the logarithms lie so close that any loss is near one.
MOST_CLASSES, NEAR_EVEN_GUESS, AT_GUESS = 10, 0.005, 0.03


def guesses(share: float, loss: float) -> bool:
    """Whether a share of right answers is no better than its cross entropy implies for a guess, or worse."""
    return 0.0 <= share < CHANCE_BELOW and _times_chance(share, loss) <= AT_CHANCE


def guesses_exactly(share: float, loss: float) -> bool:
    """Whether a share of right answers and a cross entropy are those of a guess."""
    return guesses(share, loss) and _times_chance(share, loss) >= NEAR_CHANCE


def _times_chance(share: float, loss: float) -> float:
    return share * math.exp(min(loss, LARGEST_LOSS))


def says_one_thing(share: float, loss: float) -> bool:
    """Whether a share and a loss are those of who gives every sample the frequency of one of two classes."""
    if not 0.5 <= share < 1.0:
        return False
    entropy = -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)
    return any(abs(loss / guess - 1.0) <= NEAR_GUESS for guess in (entropy, share * (1.0 - share)))


def classes_guessed(loss: float) -> int | None:
    """Return among how many classes, ten at most, a guess has this cross entropy: k of ln k; None for none."""
    for classes in range(2, MOST_CLASSES + 1):
        if abs(loss / math.log(classes) - 1.0) <= NEAR_EVEN_GUESS:
            return classes
    return None


# From the first step on such a run computed nothing of use.
NOTHING_LEARNED = ("stands", "chance", "worse than a guess", "level", "stuck")
# A share of ``min_fall``: with a fall below the fifth of it, a trend does not matter.
CLEAR_TREND = 5.0
# Without a trend a fall within two standard deviations of the values is none, up to a fifth of the first loss.
NOISE, MOST_NOISE = 2.0, 0.2
# A straight fall that is larger would have been seen, at 95 %: by ``min_fall`` where the loss is the only witness. The
# standard error along a line through k values is their deviation times the root of 12 / k.
SURE, MISSED_FALL = 1.64, 0.15
# A score as high is not that of a run that learned nothing; one that never changes has to be higher still.
GOOD_SCORE, HIGH_SCORE = 0.8, 0.9

LEARNED = 0.1
# A score below a twentieth that stays while the loss is halved is the accuracy of a regression, which says nothing.
HALVED, LOW_SHARE = 0.5, 0.05

EARLY, FEWEST_SINCE = 0.25, 10
# Language models have more right answers at a loss as high; a regression that has converged does not jump.
FEW_RIGHT, FAR_ABOVE_GUESS, JUMPY = 0.2, 2.0, 0.03
# A larger loss at the start and at the end is a squared error: who guesses among 160,000 classes has 12.
LARGEST_ENTROPY, LARGEST_GUESS = 100.0, 12.0

FIRST_PART = 0.1
CLEAR_FALL, NEVER_BETTER, WORSE_THAN_UNTRAINED, SCORE_FELL = 0.2, 0.05, 1.2, 0.1
# A loss that fell so far has changed what the model answers, or knows each sample.
FAR_FALL, BY_HEART = 0.75, 0.9
# Of a root of squares the root of a share is as clear.
ROOT = re.compile(r"(?i)rms|root")


class NotLearningParameters(StepParameters, frozen=True, kw_only=True):
    min_rows: PositiveInt = 5
    live_rows: PositiveInt = 500
    min_fall: NonNegative = 0.05
    min_gain: NonNegative = 0.05


def stands(run: RunSeries, mode: Mode, limits: NotLearningParameters) -> Check | None:
    """Find that all losses of a mode stand, and no score has risen or is high."""
    losses = run.loss(mode)
    has_score = bool(run.all_scores)
    if not losses or not run.has_to_fall(*(name for name, _ in losses)) or run.improves_otherwise(limits.min_fall):
        return None
    grow = (max(smoothed(loss.means)) > loss.means[0] + limits.min_fall * abs(loss.means[0]) for _, loss in losses)
    if not run.objective.level_means_something and any(grow):
        return None
    if not all(_loss_stands(each, mode, limits, has_score=has_score) for _, each in losses):
        return None
    for _, _, score in run.all_scores:
        high = HIGH_SCORE if score.least == score.most else GOOD_SCORE
        if gain(score) >= limits.min_gain or tail(score) / unit(score) >= high:
            return None
    name, loss = losses[0]
    fallen = fall(loss)
    rises = fallen * abs(loss.means[0]) < -_least(loss, limits)
    facts = (
        *end_facts(name, loss),
        Fact(name="change", value=-fallen, unit="share", series=name, threshold=limits.min_fall),
        *([Fact(name="rises", value=1, series=name)] if rises else []),
        *score_facts(run, mode),
    )
    return series_check(run, "stands", (name, loss), facts, fallen, threshold=limits.min_fall, onset=loss.begin_of(0))


def _loss_stands(loss: Series, mode: Mode, limits: NotLearningParameters, *, has_score: bool) -> bool:
    if loss.count < limits.min_rows or loss.least < 0.0 < loss.most:
        return False
    start, fallen = abs(loss.means[0]), fall(loss)
    if fallen < limits.min_fall / CLEAR_TREND and fallen >= 0.0:
        return True
    least = _least(loss, limits)
    if fallen * start < -least:
        return mode is Mode.TRAIN and _gained_nothing(loss, limits)
    missed = SURE * noise(loss.means) * math.sqrt(12.0 / len(loss.means))
    sure = fallen * start + missed < (MISSED_FALL if has_score else limits.min_fall) * start
    return sure and fallen * start < least and z_score(loss.whole) > -NO_TREND


def _gained_nothing(loss: Series, limits: NotLearningParameters) -> bool:
    """Whether a loss that ends above its start never fell, or fell little before it rose clearly above it.

    A larger fall that is gone again is a divergence.
    """
    start, end = loss.means[0], loss.means[-max(1, round(TAIL * len(loss.means))) :]
    lowest = min(smoothed(loss.means))
    if start - lowest < limits.min_fall * abs(start):
        return True
    is_clear = median(end) > start and fmean(end) - lowest > CLEAR_NOISE * steady_noise(smoothed(loss.means))
    return start - lowest < REAL_FALL * abs(start) and is_clear


def _least(loss: Series, limits: NotLearningParameters) -> float:
    start = abs(loss.means[0])
    return max(limits.min_fall * start, min(NOISE * noise(loss.means), MOST_NOISE * start))


def at_chance(run: RunSeries, mode: Mode, limits: NotLearningParameters) -> Check | None:
    """Find that a score is no better than its loss implies for a guess, and never gained."""
    for score_name, score in () if is_regression(run) else run.accuracy(mode):
        for loss_name, loss in run.loss(mode)[:1]:
            if min(score.count, loss.count) < limits.min_rows or gain(score) >= limits.min_gain:
                continue
            share, left = tail(score) / unit(score), tail(loss)
            guessed = guesses(share, left) if fall(loss) < LEARNED else guesses_exactly(share, left)
            one_thing = score.least == score.most and share < HIGH_SCORE and says_one_thing(share, left)
            if guessed or one_thing:
                facts = (
                    *end_facts(score_name, score, "score"),
                    level_of("loss_last", loss_name, left),
                )
                return series_check(run, "chance", (score_name, score), facts, tail(score), onset=score.begin_of(0))
    return None


def worse_than_a_guess(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that a score never gained, while its loss jumps about far above the cross entropy of a guess."""
    for mode in (Mode.TRAIN, Mode.EVAL):
        for score_name, score in () if run.regression else run.accuracy(mode):
            for loss_name, loss in run.loss(mode)[:1]:
                since, share = loss.means[math.ceil(FIRST_PART * len(loss.means)) :], tail(score) / unit(score)
                if len(since) < FEWEST_SINCE or gain(score) >= limits.min_gain or run.moves(loss_name):
                    continue
                if not LOW_SHARE <= share < CHANCE_BELOW or z_score(since) <= -NO_TREND:
                    continue
                level, guess = median(since), -math.log(share)
                is_far = level > LARGEST_GUESS or (share <= FEW_RIGHT and level > FAR_ABOVE_GUESS * guess)
                if not is_far or noise(since) < JUMPY * level:
                    continue
                facts = (
                    *end_facts(score_name, score, "score"),
                    level_of("loss_level", loss_name, level),
                    Fact(name="loss_of_a_guess", value=guess, series=loss_name),
                )
                return series_check(
                    run, "worse than a guess", (score_name, score), facts, tail(score), onset=score.begin_of(0)
                )
    return None


def loss_at_chance(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that the loss has stood at ln k, as of a guess among k classes, and no score is better than 1 / k."""
    for name, loss in run.loss(Mode.TRAIN)[:1]:
        since = loss.means[math.ceil(EARLY * len(loss.means)) :]
        if len(since) < FEWEST_SINCE or loss.least <= 0.0 or run.moves(name):
            continue
        level = fmean(since)
        classes = classes_guessed(level)
        if classes is None or abs(z_score(since)) >= NO_TREND or noise(since) > limits.min_fall * level:
            continue
        if any(not guesses(tail(score) / unit(score), level) for _, _, score in run.all_scores):
            continue
        facts = (
            *first_facts(name, loss),
            level_of("loss_level", name, level),
            step_number("stands_since_step", loss.steps[len(loss.means) - len(since)]),
            Fact(name="classes", value=classes),
        )
        return series_check(
            run, "level", (name, loss), facts, level, threshold=math.log(classes), onset=loss.begin_of(0)
        )
    return None


def validation_at_chance(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that the score of validation is that of a guess at its lowest loss, while training goes on."""
    if not run.loss(Mode.TRAIN) or is_regression(run):
        return None
    for name, score in run.accuracy(Mode.EVAL):
        for loss_name, loss in run.loss(Mode.EVAL)[:1]:
            if min(score.count, loss.count) < limits.min_rows:
                continue
            share, lowest = fmean(score.means) / unit(score), min(smoothed(loss.means))
            if guesses_exactly(share, lowest) and gain(score) < limits.min_gain:
                facts = (
                    *end_facts(name, score, "score"),
                    level_of("validation_lowest", loss_name, lowest),
                )
                return series_check(run, "validation", (name, score), facts, tail(score))
    return None


def validation_never_better(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that training learns, and validation is never better than it, and than training, began."""
    for (name, loss), (train_name, train) in zip(run.loss(Mode.EVAL)[:1], run.loss(Mode.TRAIN)[:1], strict=False):
        if min(loss.count, train.count) < limits.min_rows or min(loss.least, train.least) < 0.0:
            continue
        # A first value may stand for the model before it was trained where it lies in the first tenth of the run.
        begins_early = loss.begins - train.begins <= FIRST_PART * (train.steps[-1] - train.begins)
        if run.moves(name, train_name) or fall(train) < CLEAR_FALL or not begins_early:
            continue
        if any(gain(score) >= limits.min_gain for _, score in run.score(Mode.EVAL)):
            continue
        lowest, untrained = min(smoothed(loss.means)), WORSE_THAN_UNTRAINED * train.means[0]
        score_fell = any((each.means[0] - tail(each)) / unit(each) >= SCORE_FELL for _, each in run.score(Mode.EVAL))
        is_guess = not run.regression and _stays_a_guess(train, loss, lowest)
        is_lost = lowest > untrained or score_fell or is_guess or _by_heart(run, train, (name, loss), lowest)
        if lowest < (1.0 - NEVER_BETTER) * loss.means[0] or not is_lost:
            continue
        facts = (
            *first_facts(train_name, train),
            level_of("loss_last", train_name, tail(train)),
            *end_facts(name, loss, "validation"),
            level_of("validation_lowest", name, lowest),
        )
        return series_check(run, "unseen", (name, loss), facts, lowest, threshold=untrained)
    return None


def _by_heart(run: RunSeries, train: Series, validation: tuple[str, Series], lowest: float) -> bool:
    """Whether both parts begin alike, training is learned by heart, and validation only rises, with no score of it."""
    name, loss = validation
    clear = math.sqrt(1.0 + CLEAR_FALL) if ROOT.search(name) else 1.0 + CLEAR_FALL
    alike = max(train.first, loss.first) <= (1.0 + CLEAR_FALL) * min(train.first, loss.first)
    rises = tail(loss) >= clear * loss.first and z_score(loss.whole) >= NO_TREND
    learned = fall(train) >= BY_HEART and not run.score(Mode.EVAL)
    return alike and rises and learned and lowest >= (1.0 - AT_GUESS) * train.first


def _stays_a_guess(train: Series, loss: Series, lowest: float) -> bool:
    """Whether both parts begin at the cross entropy of a guess, and validation is never below it, while training is."""
    guesses_of = (math.log(classes) for classes in range(2, MOST_CLASSES + 1))
    near = [each for each in guesses_of if max(abs(train.first / each - 1.0), abs(loss.first / each - 1.0)) <= AT_GUESS]
    return bool(near) and fall(train) >= FAR_FALL and lowest >= (1.0 - AT_GUESS) * near[0]


def score_stuck(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that a score is the same number at each step, and no score gains."""
    if is_regression(run) or _still_falls(run) or any(gain(score) >= limits.min_gain for _, _, score in run.all_scores):
        return None
    for mode, name, score in run.all_scores:
        share = score.least / unit(score)
        highest = HIGH_SCORE if mode is Mode.TRAIN else CHANCE_BELOW
        is_constant = score.least == score.most and score.count >= 2 * limits.min_rows
        if is_constant and 0.0 < share < highest and not (share < LOW_SHARE and _halved(run)):
            facts = (
                level_of("score_always", name, score.least),
                Fact(name="values", value=score.count, series=name),
                step_number("score_first_step", score.begins),
                step_number("score_last_step", score.steps[-1]),
            )
            return series_check(run, "stuck", (name, score), facts, score.least, onset=score.begin_of(0))
    return None


def loss_without_score(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that the loss is halved, and a score of training that is low does not gain."""
    if is_regression(run) or not _halved(run) or any(gain(score) >= limits.min_gain for _, _, score in run.all_scores):
        return None
    train_name, train = run.loss(Mode.TRAIN)[0]
    if train.least < 0.0:
        return None
    for name, score in run.accuracy(Mode.TRAIN):
        if score.least == score.most and _still_falls(run) and fall(train) < FAR_FALL:
            continue
        share = tail(score) / unit(score)
        if score.count >= 2 * limits.min_rows and LOW_SHARE <= share < CHANCE_BELOW:
            facts = (
                *first_facts(train_name, train),
                level_of("loss_last", train_name, tail(train)),
                *end_facts(name, score, "score"),
            )
            return series_check(run, "no gain", (name, score), facts, tail(score))
    return None


def is_regression(run: RunSeries) -> bool:
    """Whether the run has signs of a regression, whose accuracy says nothing: its errors, or the size of its loss."""
    losses = [loss for _, loss in run.loss(Mode.TRAIN) if loss.means]
    return run.regression or any(loss.means[0] > LARGEST_ENTROPY and tail(loss) > LARGEST_GUESS for loss in losses)


def _still_falls(run: RunSeries) -> bool:
    for _, loss in run.loss(Mode.TRAIN)[:1]:
        half = loss.means[len(loss.means) // 2 :]
        if (
            loss.least >= 0.0
            and len(half) >= FEWEST
            and tail(loss) < (1.0 - CLEAR_FALL) * half[0]
            and z_score(half) <= -NO_TREND
        ):
            return True
    return False


def _halved(run: RunSeries) -> bool:
    return any(each.means and fall(each) >= HALVED for _, each in run.loss(Mode.TRAIN)[:1])


def score_facts(run: RunSeries, mode: Mode) -> tuple[Fact, ...]:
    """Return where the first score of a mode began and what it is; none where none was recorded."""
    for name, score in run.score(mode):
        return (*first_facts(name, score, "score"), level_of("score_last", name, tail(score)))
    return ()
