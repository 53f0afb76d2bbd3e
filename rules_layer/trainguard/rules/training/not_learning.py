"""NotLearning: the loss, and the score where there is one, stay at the level of the start or of chance.

The conditions are in ``docs/rules/training/NotLearning.md``, `learned_nothing` and `learned_poorly`.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

from trainguard.core.finding import Fact, Progress
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.ledger.bucket import Bucket
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.learned_nothing import (
    NOTHING_LEARNED,
    SURE,
    LearningKind,
    NotLearningParameters,
    at_chance,
    loss_at_chance,
    loss_without_score,
    score_facts,
    score_stuck,
    stands,
    validation_at_chance,
    validation_never_better,
    worse_than_a_guess,
)
from trainguard.rules.training.learned_poorly import capped, too_slow, validation_jumps, validation_worsens
from trainguard.rules.training.learning_rates import RatedState, is_fine_tune, take_rate
from trainguard.rules.training.not_learning_text import _words
from trainguard.rules.training.run_series import BOUND, RunSeries, gather, series_check
from trainguard.rules.training.series import NO_TREND, Series, fall, first_facts, last_facts, noise, z_score
from trainguard.rules.training.step_rule import Check, RunView, StepRule
from trainguard.rules.training.step_words import step_spec

FEWEST_ALONE = 10
"""Of one loss alone, fewer values may be the first steps of a run that crashed."""
CRITICAL, HIGH = 90.0, 40.0
FALL, SCORE = Measure("share of its first value by which the loss fell"), Measure("score")
LOSS, HELD_OUT = Measure("loss"), Measure("loss of validation")
JUMP = Measure("change of the loss of validation from value to value, as a share")
FLOOR = Measure("loss that cannot fall further")
PACE = Measure("share of its first value by which the loss fell, at an even speed")
WHOLE: tuple[Callable[[RunSeries, NotLearningParameters], Check | None], ...] = (
    loss_at_chance,
    worse_than_a_guess,
    validation_at_chance,
    validation_never_better,
    score_stuck,
    loss_without_score,
    validation_worsens,
    validation_jumps,
    capped,
    too_slow,
)


class NotLearning(StepRule[NotLearningParameters, RatedState]):
    spec = step_spec(
        "NotLearning",
        title="Training that learns nothing",
        looks_at="losses, and scores as the accuracy, of training and of validation",
        fires_when=(
            "they stay at the start or at chance, validation is lost, or the loss has a floor or is far too slow"
        ),
        condition=(
            "over at least {min_rows} recorded values of a run that has ended, or {live_rows} of one that goes on, the "
            "loss falls by less than {min_fall} of its first value without a trend and the score gains less than "
            "{min_gain}, or the score stays at chance; or validation gets worse for good or jumps, the loss has the "
            "floor of two softmaxes, or it falls far too slowly"
        ),
        measures=(FALL, SCORE, LOSS, HELD_OUT, JUMP, FLOOR, PACE),
        parameters={
            "min_rows": ParameterHelp("values", "as many recorded losses are needed to judge a run that has ended"),
            "live_rows": ParameterHelp("values", "as many are needed to judge one that goes on"),
            "min_fall": ParameterHelp("", "a smaller fall, as a share of the first loss, is none without a trend"),
            "min_gain": ParameterHelp("", "a smaller gain, as a share of the score's range, is none"),
        },
        needs="It checks losses that are single numbers: record them in the collection losses, scores in metrics.",
        say=_words,
        bound=BOUND,
        claims=dict.fromkeys(NOTHING_LEARNED, (Bucket.BROKEN,)),
    )

    undecided = frozenset({LearningKind.WARM_UP, LearningKind.UNCERTAIN})

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {
        **dict.fromkeys(LearningKind, SCORE),
        **dict.fromkeys(
            (
                LearningKind.STANDS,
                LearningKind.LEARNS,
                LearningKind.WARM_UP,
                LearningKind.MOVES,
                LearningKind.UNCERTAIN,
            ),
            FALL,
        ),
        **dict.fromkeys((LearningKind.LEVEL, LearningKind.UNSEEN), LOSS),
        LearningKind.WORSENS: HELD_OUT,
        LearningKind.JUMPS: JUMP,
        LearningKind.CAPPED: FLOOR,
        LearningKind.SLOW: PACE,
    }

    def check(self, state: RatedState, step: StepView, parameters: NotLearningParameters) -> Check | None:
        losses = gather(state, step)
        take_rate(state, step)
        state.waiting += bool(losses)
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if state.run.loss(mode)), None)
        if main is None or all(mode is not main for mode, _, _ in losses):
            return None
        series = state.run.loss(main)[0][1]
        if series.count < parameters.live_rows or series.filling != series.size:
            return None
        if (why := _not_judged(state, main)) is not None:
            return why
        found = _stands(state, main, parameters) or at_chance(state.run, main, parameters)
        improves = any(z_score(loss.whole) <= -NO_TREND for _, loss in state.run.loss(main))
        improves = improves or any(z_score(score.whole) >= NO_TREND for _, score in state.run.score(main))
        if found is not None and not improves:
            return found
        return _learns(state.run, main, parameters)

    def at_end(self, state: RatedState, parameters: NotLearningParameters) -> Check | None:
        run = state.run
        main = next((mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode) or run.score(mode)), None)
        if main is None or _longest(run, main) < _least_rows(run, parameters):
            return None
        if (why := _not_judged(state, main)) is not None:
            return why
        found = _stands(state, main, parameters) or at_chance(run, main, parameters)
        found = found or next((each for judge in WHOLE if (each := judge(run, parameters)) is not None), None)
        return found or _learns(run, main, parameters)

    def score(self, check: Check) -> float:
        return CRITICAL if check.kind in NOTHING_LEARNED else HIGH

    def progress(self, state: RatedState, view: RunView, parameters: NotLearningParameters) -> Progress | None:
        seen = max((_longest(state.run, mode) for mode in (Mode.TRAIN, Mode.EVAL)), default=0)
        needed = _least_rows(state.run, parameters) if view.closed else parameters.live_rows
        return Progress(seen=seen, needed=needed, counts="values")


def _longest(run: RunSeries, mode: Mode) -> int:
    return max((each.count for _, each in (*run.loss(mode), *run.score(mode))), default=0)


def _least_rows(run: RunSeries, parameters: NotLearningParameters) -> int:
    """Return how many values are needed: more where one loss is all that was recorded."""
    witnesses = [mode for mode in (Mode.TRAIN, Mode.EVAL) if run.loss(mode)]
    alone = len(witnesses) <= 1 and not run.all_scores and not (run.losses and run.errors)
    return max(parameters.min_rows, FEWEST_ALONE) if alone else parameters.min_rows


def _stands(state: RatedState, mode: Mode, limits: NotLearningParameters) -> Check | None:
    found = stands(state.run, mode, limits)
    if found is None or found.value is None or state.run.all_scores or found.value <= -limits.min_fall:
        return found
    first = state.run.loss(mode)[0][1].means[0]
    return None if is_fine_tune(state.rate, state.run, first) else found


def _learns(run: RunSeries, mode: Mode, limits: NotLearningParameters) -> Check | None:
    losses = run.loss(mode)
    name, series = (losses or run.score(mode))[0]
    if not series.means:
        return None
    prefix = "loss" if losses else "score"
    facts = (*first_facts(name, series, prefix), *last_facts(name, series, prefix))
    change = Fact(name="change", value=-fall(series), unit="share", series=name)
    facts = (*facts, change, *(score_facts(run, mode) if losses else ()))
    if not losses or run.all_scores or (not _is_uncertain(series) and stands(run, mode, limits) is None):
        return series_check(run, LearningKind.LEARNS, (name, series), facts, fall(series), fires=False)
    needed = _values_to_tell(series, limits)
    later = (Fact(name="values_to_tell", value=needed),) if needed > series.count else ()
    known = (*facts, *later)
    kind = LearningKind.UNCERTAIN
    return series_check(run, kind, (name, series), known, fall(series), fires=False)


def _is_uncertain(loss: Series) -> bool:
    """Whether a loss alone does not tell: it has no trend, and by what it moved lies within the error of its noise."""
    missed = SURE * noise(loss.means) * math.sqrt(12.0 / len(loss.means))
    return abs(fall(loss) * loss.means[0]) < missed and abs(z_score(loss.whole)) < NO_TREND


def _values_to_tell(loss: Series, limits: NotLearningParameters) -> int:
    """Return of how many values a fall by ``min_fall`` would be seen, at 95 %, beside this noise."""
    least = limits.min_fall * abs(loss.means[0])
    return math.ceil(12.0 * loss.size * (SURE * noise(loss.means) / least) ** 2) if least > 0.0 else 0


def _not_judged(state: RatedState, mode: Mode) -> Check | None:
    """Return why a run says nothing of learning yet, or never; None where it does."""
    run, rate = state.run, state.rate
    name, series = (run.loss(mode) or run.score(mode))[0]
    facts: tuple[Fact, ...]
    if not run.objective.loss_has_to_fall:
        kind, facts = LearningKind.MOVES, (Fact(name="objective", value=run.objective, series=name),)
    elif rate is not None and rate.warms_up:
        kind = LearningKind.WARM_UP
        facts = (Fact(name="learning_rate", value=rate.newest), Fact(name="learning_rate_first", value=rate.first))
    else:
        return None
    if not series.means:
        return None
    return series_check(run, kind, (name, series), facts, fall(series), fires=False)
