"""The conditions of TrainingDiverged over a whole run: a loss that has risen for good, or falls without bound."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from trainguard.rules.training.progress import beginning, unit
from trainguard.rules.training.run_series import MOVING, RunSeries
from trainguard.rules.training.series import Series, level, noise, smoothed
from trainguard.tensors.step_view import Mode

LOST, BLOWN_UP, EXPLODED, UNBOUNDED, SCORE_LOST = "lost", "blown up", "exploded", "unbounded", "score lost"
TAIL = 0.2
REAL_FALL = 0.2
"""A fall of less than a fifth of the start is too small to be lost."""
CLEAR_NOISE = 4.0
SAME_SCORE = 0.05
ENDED_TAIL = 3
FEWEST_BLOCKS = 5
FAR_ABOVE_FIRST = 1000.0
"""Times the very first value: the mean of the first block may hold the explosion itself."""
RUNAWAY = 10.0
"""Times the largest size in the first half, below 0: a likelihood slows down, what has no minimum does not."""


class Limits(NamedTuple):
    """The parameters of TrainingDiverged that its conditions need."""

    lost: float
    blow_up: float
    score_lost: float


class Risen(NamedTuple):
    """How a series got worse, in words, with its value and the threshold."""

    kind: str
    name: str
    series: Series
    reason: str
    value: float
    threshold: float


def rise(run: RunSeries, limits: Limits, fewest: int) -> Risen | None:
    """Find that all losses of training have risen for good, and no score says otherwise."""
    losses = run.loss(Mode.TRAIN)
    found = [_risen(loss, name, limits, fewest) for name, loss in losses]
    rises = [each for each in found if each is not None]
    if not losses or len(rises) < len(losses) or _score_holds(run):
        return None
    (name, loss), (kind, lowest, threshold) = losses[0], rises[0]
    tail = level(loss.means, TAIL, end=True)
    place = loss.means.index(min(loss.means))
    began = f"{name} was {beginning(loss)}"
    if kind == LOST:
        began += f" and {lowest:.6g} at its lowest (step {loss.steps[place]})"
    elif kind == EXPLODED:
        began = f"{name} was {loss.first:.6g} at step {loss.begins}"
    reason = (
        f"{began}; after step {loss.steps[-_tail(loss) - 1]} it was never below {min(loss.means[-_tail(loss) :]):.6g}, "
        f"with a mean of {tail:.6g}, above the threshold {threshold:.6g}"
    )
    return Risen(kind, name, loss, reason, tail, threshold)


def runaway(run: RunSeries, fewest: int) -> Risen | None:
    """Find that a loss of training falls below 0 faster and faster: it has no minimum."""
    for name, loss in run.loss(Mode.TRAIN)[:1]:
        count = _tail(loss)
        if len(loss.means) < 2 * FEWEST_BLOCKS or count * loss.size < fewest or MOVING.search(name):
            continue
        threshold = -RUNAWAY * max(abs(each) for each in loss.means[: len(loss.means) // 2])
        if max(loss.means[-count:]) < threshold:
            reason = (
                f"{name} falls without bound: it was {beginning(loss)} and "
                f"{loss.means[len(loss.means) // 2 - 1]:.6g} half-way (step {loss.steps[len(loss.means) // 2 - 1]}), "
                f"and is {loss.last:.6g}, below the threshold {threshold:.6g}"
            )
            return Risen(UNBOUNDED, name, loss, reason, loss.last, threshold)
    return None


def score_lost(run: RunSeries, limits: Limits, fewest: int) -> Risen | None:
    """Find that a score of training has fallen far below its best, and the loss has risen with it."""
    for name, score in run.score(Mode.TRAIN):
        count = _tail(score)
        if len(score.means) < FEWEST_BLOCKS + count or count * score.size < fewest or MOVING.search(name):
            continue
        before, tail = smoothed(score.means[:-count]), score.means[-count:]
        best = -_lowest([-each for each in before], count)
        threshold = best - max(limits.score_lost * unit(score), CLEAR_NOISE * noise(before))
        if max(tail) < threshold and _loss_rose(run):
            reason = (
                f"{name} had a mean of {best:.4g} over its best fifth of the run; after step "
                f"{score.steps[-count - 1]} it was never above {max(tail):.4g}, below the threshold {threshold:.4g}, "
                "and the loss rose"
            )
            return Risen(SCORE_LOST, name, score, reason, max(tail), threshold)
    return None


def _loss_rose(run: RunSeries) -> bool:
    losses = [loss for _, loss in run.loss(Mode.TRAIN) if len(loss.means) > _tail(loss)]
    return bool(losses) and all(fmean(loss.means[-_tail(loss) :]) > _lowest(loss.means, _tail(loss)) for loss in losses)


def _risen(loss: Series, name: str, limits: Limits, fewest: int) -> tuple[str, float, float] | None:
    """Return how a loss has risen, its lowest level and the threshold; None where it has not."""
    count = _tail(loss)
    if len(loss.means) < FEWEST_BLOCKS or count * loss.size < fewest or MOVING.search(name):
        return None
    start, before, tail = loss.means[0], smoothed(loss.means[:-count]), loss.means[-count:]
    lowest, clear = _lowest(before, count), CLEAR_NOISE * noise(before)
    blown_up = start + max((limits.blow_up - 1.0) * abs(start), clear)
    if min(tail) > blown_up:
        return BLOWN_UP, lowest, blown_up
    if min(tail) > FAR_ABOVE_FIRST * abs(loss.first) > 0.0:
        return EXPLODED, lowest, FAR_ABOVE_FIRST * abs(loss.first)
    fallen = start - lowest
    lost = lowest + max(limits.lost * fallen, clear)
    if fallen >= REAL_FALL * abs(start) and fallen > clear and min(tail) > lost:
        return LOST, lowest, lost
    return None


def _lowest(values: Sequence[float], count: int) -> float:
    """Return the lowest mean of as many values in a row as the tail has: like is compared with like."""
    count = min(count, len(values))
    return min(fmean(values[place : place + count]) for place in range(len(values) - count + 1))


def _tail(loss: Series) -> int:
    return max(math.ceil(TAIL * len(loss.means)), 1 if loss.size > 1 else ENDED_TAIL)


def _score_holds(run: RunSeries) -> bool:
    """Whether a score of training is still about as good as it ever was, and better than at the start."""
    for _, score in run.score(Mode.TRAIN):
        values = smoothed(score.means)
        reach = max(values) - min(values)
        tail = level(values, TAIL, end=True)
        if reach > 0.0 and tail >= max(values) - max(SAME_SCORE * reach, noise(values)) and tail > values[0]:
            return True
    return False
