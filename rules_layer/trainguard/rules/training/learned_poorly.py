"""Conditions of NotLearning on runs that learned something: it does not hold, has a floor, or comes far too slowly."""

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.learned_nothing import (
    GOOD_SCORE,
    HALVED,
    HIGH_SCORE,
    LARGEST_LOSS,
    SCORE_FELL,
    NotLearningParameters,
    guesses,
)
from trainguard.rules.training.run_series import RunSeries, series_check
from trainguard.rules.training.series import (
    CLEAR_NOISE,
    NO_TREND,
    Series,
    end_facts,
    fall,
    first_facts,
    last_facts,
    level,
    level_of,
    noise,
    smoothed,
    step_number,
    tail,
    unit,
    z_score,
)
from trainguard.rules.training.step_rule import Check

# So few means say nothing of a curve; the rise after a minimum has to fill a quarter of the run.
FEWEST, REST = 10, 0.25

STAYS_ABOVE, DOUBLED, STILL_GAINS = 1.2, 2.0, 0.01
WILD, CALM, FAR_BELOW = 0.15, 0.05, 0.25
# Of two classes, smoothed labels have the same floor as a second softmax.
FEWEST_CLASSES, MOST_CLASSES = 3, 100_000

CONFIDENT, UNSURE, LEAST_COVERED, STOPPED = 0.03, 0.45, 0.25, 0.1
FEWEST_EPOCHS, LITTLE, HALF_SPEED, TWICE_THE_SPEED, LOW_SCORE = 20, 0.15, 0.5, 2.0, 0.5


def validation_worsens(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that validation got worse for good while training went on: its loss has doubled, or its score is lost."""
    for name, loss, train_name, train in _both(run):
        values = smoothed(loss.means)
        place = values.index(min(values))
        rest, lowest = loss.means[place + 1 :], values[place]
        if len(rest) < max(REST * len(values), FEWEST // 2) or lowest <= 0.0:
            continue
        rises = min(rest[-(len(rest) // 3) :]) >= STAYS_ABOVE * lowest
        at = next((index for index, end in enumerate(train.steps) if end >= loss.steps[place]), -1)
        if not rises or tail(train) > HALVED * train.means[at]:
            continue
        lost = _lost_score(run)
        if lost is None and not _doubled_for_nothing(run, loss, train, lowest):
            continue
        facts = (
            level_of("validation_lowest", name, lowest),
            step_number("validation_lowest_step", loss.steps[place]),
            *last_facts(name, loss, "validation"),
            level_of("loss_last", train_name, tail(train)),
            *(lost or [level_of("score_last", held, tail(score)) for held, score in run.score(Mode.EVAL)[:1]]),
        )
        return series_check(run, "worsens", (name, loss), facts, tail(loss), threshold=STAYS_ABOVE * lowest)
    return None


def validation_jumps(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that training converges and validation jumps, and is never near to it."""
    for name, loss, train_name, train in _both(run):
        half, calm = loss.means[len(loss.means) // 2 :], train.means[len(train.means) // 2 :]
        wild, middle = noise(half) * math.sqrt(loss.size), fmean(half)
        if fall(train) < HALVED or wild < WILD * middle or noise(calm) > CALM * train.means[0]:
            continue
        if not _never_near(run, half, train):
            continue
        facts = (
            level_of("validation_least", name, min(half)),
            level_of("validation_most", name, max(half)),
            step_number("validation_last_step", loss.steps[-1]),
            Fact(name="jump", value=wild / middle, unit="share", series=name, threshold=WILD),
            *first_facts(train_name, train),
            level_of("loss_last", train_name, tail(train)),
        )
        return series_check(run, "jumps", (name, loss), facts, wild / middle, threshold=WILD)
    return None


def capped(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that the loss stands where two softmaxes in a row end: most answers are right, and it cannot fall further.

    A second softmax gets values from 0 to 1: the cross entropy of k classes is at least ln(e + k - 1) - 1, and at most
    1 more.
    """
    for name, loss in run.loss(Mode.TRAIN)[:1]:
        for score_name, score in run.score(Mode.TRAIN)[:1]:
            if min(loss.count, score.count) < FEWEST or run.moves(name):
                continue
            right, left = tail(score) / unit(score), tail(loss)
            if not GOOD_SCORE <= right <= 1.0:
                continue
            later = level(loss.means[len(loss.means) // 2 :], 0.5) - left
            if later > STOPPED * (loss.means[0] - left):
                continue
            classes = _softmaxed(loss, left, 1.0 - right)
            if classes is None:
                continue
            floor = _floor(classes)
            facts = (
                *end_facts(name, loss),
                level_of("score_last", score_name, tail(score)),
                Fact(name="classes", value=classes),
                Fact(name="floor", value=floor, series=name),
            )
            return series_check(run, "capped", (name, loss), facts, left, threshold=floor)
    return None


def too_slow(run: RunSeries, limits: NotLearningParameters) -> Check | None:
    """Find that a run from chance falls at an even speed and has covered little: most of the way is ahead."""
    for _, validation, name, train in _both(run):
        scores = run.score(Mode.TRAIN)
        held = run.score(Mode.EVAL)
        if min(train.count, validation.count) < FEWEST_EPOCHS or not scores or not held:
            continue
        score_name, score = scores[0]
        at_chance = guesses(score.means[0] / unit(score), train.means[0])
        covered = fall(train)
        if not at_chance or not limits.min_fall / 2.0 <= covered < LITTLE or train.least <= 0.0:
            continue
        if any(tail(each) / unit(each) >= LOW_SCORE for _, each in (*scores, *held)) or not _straight(train):
            continue
        facts = (
            *end_facts(name, train),
            Fact(name="change", value=-covered, unit="share", series=name),
            level_of("score_last", score_name, tail(score)),
        )
        return series_check(run, "slow", (name, train), facts, covered, threshold=LITTLE)
    return None


def _both(run: RunSeries) -> Iterator[tuple[str, Series, str, Series]]:
    for name, loss in run.loss(Mode.EVAL)[:1]:
        for train_name, train in run.loss(Mode.TRAIN)[:1]:
            long = min(len(loss.means), len(train.means)) >= FEWEST
            if long and min(loss.least, train.least) >= 0.0 and not run.moves(name, train_name):
                yield name, loss, train_name, train


def _doubled_for_nothing(run: RunSeries, loss: Series, train: Series, lowest: float) -> bool:
    """Whether the loss of validation has doubled, to above what training began with, and no score gains or is good."""
    if tail(loss) < max(DOUBLED * lowest, train.means[0]):
        return False
    for _, score in run.score(Mode.EVAL):
        half = score.means[len(score.means) // 2 :]
        gained = (level(half, 0.5, end=True) - level(half, 0.5)) / unit(score)
        if gained >= STILL_GAINS or tail(score) / unit(score) >= HIGH_SCORE:
            return False
    return True


def _lost_score(run: RunSeries) -> tuple[Fact, ...] | None:
    # A score without a mode that is lost while the loss of training falls is that of validation.
    for name, score in run.score(Mode.EVAL) or run.score(Mode.TRAIN):
        values = smoothed(score.means)
        if len(values) < FEWEST:
            continue
        count = len(values) // 4
        best = max(fmean(values[place : place + count]) for place in range(len(values) - count))
        last, clear = values[-count:], CLEAR_NOISE * noise(score.means) / math.sqrt(count)
        if best - fmean(last) >= max(SCORE_FELL * unit(score), clear) and max(last) < best:
            return level_of("score_best", name, best), level_of("score_last", name, tail(score))
    return None


def _never_near(run: RunSeries, half: list[float], train: Series) -> bool:
    """Whether no value of validation comes near to training, by the score; without one, near to training's start."""
    scores, held = run.score(Mode.TRAIN), run.score(Mode.EVAL)
    if not scores or not held:
        return min(half) >= train.means[0]
    (_, score), (_, other) = scores[0], held[0]
    least = min(score.means[len(score.means) // 2 :])
    return max(other.means[len(other.means) // 2 :]) <= least - FAR_BELOW * unit(score)


def _softmaxed(loss: Series, left: float, wrong: float) -> int | None:
    """Return of how many classes two softmaxes explain a loss, the fewest: its level, its start, and all its values."""
    least = max(left - wrong - CONFIDENT, loss.most - 1.0 - CONFIDENT / 3.0)
    classes = max(FEWEST_CLASSES, math.ceil(math.exp(min(least, LARGEST_LOSS) + 1.0) - math.e + 1.0))
    floor = _floor(classes)
    is_level = classes <= MOST_CLASSES and floor + UNSURE * wrong - CONFIDENT / 3.0 <= left
    return classes if is_level and floor <= loss.least and loss.most - floor >= LEAST_COVERED else None


def _floor(classes: int) -> float:
    return math.log(math.e + classes - 1.0) - 1.0


def _straight(loss: Series) -> bool:
    """Whether a loss falls all the time, in the end no slower than half as fast as at first, nor twice as fast."""
    quarter = len(loss.means) // 4
    parts = [fmean(loss.means[place * quarter : (place + 1) * quarter]) for place in range(4)]
    falls = [before - after for before, after in pairwise(parts)]
    if min(falls) <= 0.0 or z_score(loss.whole) > -NO_TREND or sum(falls) < CLEAR_NOISE * noise(loss.means):
        return False
    return HALF_SPEED * falls[0] <= falls[-1] <= TWICE_THE_SPEED * falls[0]
