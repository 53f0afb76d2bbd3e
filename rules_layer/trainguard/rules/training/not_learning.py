"""NotLearning: the loss, and the score where there is one, stay at the level of the start or of chance.

The conditions are in ``docs/rules/training/NotLearning.md``, `learned_nothing` and `learned_poorly`.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

from trainguard.core.finding import Fact, Patience
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.learned_nothing import (
    NOTHING_LEARNED,
    SURE,
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
from trainguard.rules.training.run_series import BOUND, RatedState, RunSeries, gather_rated, is_fine_tune, series_check
from trainguard.rules.training.series import NO_TREND, Series, end_facts, fall, noise, z_score
from trainguard.rules.training.step_rule import Check, RunView, StepRule
from trainguard.rules.training.step_words import ROWS_HELP, filled, step_spec

# Of one loss alone, fewer values may be the first steps of a run that crashed.
FEWEST_ALONE = 10

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


_CLAUSES = {
    **dict.fromkeys(
        ("validation", "unseen", "worsens", "jumps"),
        "what the model learned did not hold for validation",
    ),
    "capped": "the loss could not fall as far as it should",
    "slow": "the model learned far too slowly",
}
_BELONG = (
    "Check that inputs and labels belong together, in training and in validation: that both are shuffled alike, and "
    "that both are prepared in the same way."
)
_ADVICE = {
    "validation": _BELONG,
    "unseen": _BELONG,
    "worsens": (
        "Keep the checkpoint of the lowest loss of validation and stop there. Check for wrong labels, and that "
        "validation is of the same kind as training; add data, augmentation, dropout or weight decay."
    ),
    "jumps": (
        "Check that validation runs in evaluation mode, how fast running means of batch normalisation are updated, and "
        "that batches are not too small for them."
    ),
    "capped": (
        "Check that the model's last layer gives logits where the loss function takes logits: remove the softmax, or "
        "the sigmoid, before it."
    ),
    "worse than a guess": (
        "Start again with a learning rate that is ten times lower, a warm-up and clipped gradients: the weights were "
        "thrown far off at the start."
    ),
    "slow": ("Try a learning rate ten times higher, and check that the schedule or warm-up does not hold it down."),
}
_NOTHING = (
    "Try to fit ten samples first: if the loss does not fall there either, check that the optimizer has the "
    "model's parameters and that they get gradients, the last activation and the loss function, the scale of "
    "the inputs, and a learning rate ten times higher and lower."
)
_LOSS = "{loss_first.series} was {loss_first:began}"
_CHANCE = "{score_first.series} stays at the level of chance: {score_first:began 4}, {score_last:ended 4}"
_SCORE = "; {score_last.series} was {score_first:began 4} and is {score_last:.4g}"
_SAID = {
    "moves": "{objective.series} does not have to fall: the objective is {objective}",
    "learns": _LOSS + " and is {loss_last:ended}: it {change:moved}{score}",
    "uncertain": (
        _LOSS + " and is {loss_last:ended}: it {change:moved}, and whether the model learns is not known{until}"
    ),
    "warm-up": (
        "the learning rate still rises, from {learning_rate_first:.4g} to {learning_rate:.4g}: the warm-up is not "
        "over, and the run is not judged yet"
    ),
    "stands": (
        "{loss_first.series} {verb}: it was {loss_first:began} and is {loss_last:ended}, so it {change:moved}{score}"
    ),
    "chance": _CHANCE + ", with a loss of {loss_last:.4g} there",
    "worse than a guess": (
        "{score_first.series} never rose: it was {score_first:began 4} and is {score_last:ended 4}, and "
        "{loss_level.series} jumps about {loss_level:.4g}, where a guess has {loss_of_a_guess:.4g}"
    ),
    "level": (
        _LOSS + " and has stood at {loss_level:.5g} since step {stands_since_step}: ln {classes} = {logarithm} is the "
        "cross entropy of a guess among {classes} classes"
    ),
    "validation": _CHANCE + "; the loss of validation was never below {validation_lowest:.4g}",
    "unseen": (
        "{loss_first.series} was {loss_first:began 4} and fell to {loss_last:.4g}, and {validation_first.series} was "
        "never below {validation_lowest:.4g}: it was {validation_first:began 4} and is {validation_last:ended 4}"
    ),
    "stuck": (
        "{score_always.series} is {score_always:.4g} at each of {values:,} steps, from step {score_first_step} to "
        "{score_last_step}, whatever the loss does"
    ),
    "no gain": (
        "{loss_first.series} was {loss_first:began 4} and fell to {loss_last:.4g} in the last quarter, and "
        "{score_first.series} did not gain by it: {score_first:began 4}, {score_last:ended 4}"
    ),
    "worsens": (
        "{validation_lowest.series} was {validation_lowest:.4g} at its lowest (step {validation_lowest_step}) and is "
        "{validation_last:ended 4}, while {loss_last.series} went on to fall to {loss_last:.4g}{score}"
    ),
    "jumps": (
        "{validation_least.series} jumps between {validation_least:.4g} and {validation_most:.4g} in the last half of "
        "the run (until step {validation_last_step}), by {jump:percent} from one value to the next, while "
        "{loss_first.series} fell from {loss_first:began} to {loss_last:.4g}"
    ),
    "capped": (
        _LOSS + " and stands at {loss_last:ended 4}, although {score_last.series} is {score_last:.4g}: of {classes:,} "
        "classes that is the level of outputs that pass a softmax twice, which never falls below {floor:.4g}"
    ),
    "slow": (
        _LOSS + " and is {loss_last:ended 5}: it fell at an even speed, by {change:size}; {score_last.series} is "
        "{score_last:.4g}"
    ),
}


def _until(sheet: FactSheet) -> str:
    if sheet.get("values_to_tell") is None:
        return ": of a fine-tune a score, or a loss of validation, says more"
    return filled(sheet, " yet: beside its noise that takes about {values_to_tell:counted value}")


def _words(sheet: FactSheet) -> Words:
    kind, template = sheet.kind, _SAID[sheet.kind]
    if kind == "learns" and sheet.get("loss_first") is None:
        template = "{score_first.series} was {score_first:began} and is {score_last:ended}: it {change:moved}"
    classes = sheet.get("classes")
    sentence = filled(
        sheet,
        template,
        score=_score(sheet, kind),
        verb="stands" if sheet.get("rises") is None else "rises",
        until=_until(sheet),
        logarithm="" if classes is None else f"{math.log(int(classes.value)):.5g}",
    )
    reason = f"Step {sheet['step'].value}: {sentence}."
    if kind in ("learns", "uncertain", "warm-up", "moves"):
        return Words(reason)
    return Words(reason, _ADVICE.get(kind, _NOTHING), _CLAUSES.get(kind, "the model did not learn"))


def _score(sheet: FactSheet, kind: str) -> str:
    """Say what became of the score beside the loss; empty without one."""
    if sheet.get("score_last") is None:
        return ""
    if kind != "worsens":
        return "" if sheet.get("score_first") is None else filled(sheet, _SCORE)
    if sheet.get("score_best") is None:
        return filled(sheet, "; {score_last.series} stands at {score_last:.4g}")
    return filled(sheet, ", and {score_best.series} was {score_best:.4g} in its best quarter and is {score_last:.4g}")


class NotLearning(StepRule[NotLearningParameters, RatedState]):
    by_default = True
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
            **ROWS_HELP,
            "min_fall": ParameterHelp("", "a smaller fall, as a share of the first loss, is none without a trend"),
            "min_gain": ParameterHelp("", "a smaller gain, as a share of the score's range, is none"),
        },
        needs="It checks losses that are single numbers: record them in the collection losses, scores in metrics.",
        on_scalars="It checks losses, and scores beside them: log one.",
        changes={"": ChangeCode.CHECK_TRAINING_LOOP},
        say=_words,
        kinds=tuple(_SAID),
        bound=BOUND,
        claims=dict.fromkeys(NOTHING_LEARNED, (Bucket.BROKEN,)),
    )

    undecided = frozenset({"warm-up", "uncertain"})

    measures_by_kind: ClassVar[Mapping[str, Measure]] = {
        **dict.fromkeys(_SAID, SCORE),
        **dict.fromkeys(
            ("stands", "learns", "warm-up", "moves", "uncertain"),
            FALL,
        ),
        **dict.fromkeys(("level", "unseen"), LOSS),
        "worsens": HELD_OUT,
        "jumps": JUMP,
        "capped": FLOOR,
        "slow": PACE,
    }

    def check(self, state: RatedState, step: StepView, parameters: NotLearningParameters) -> Check | None:
        losses = gather_rated(state, step)
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

    def progress(self, state: RatedState, view: RunView, parameters: NotLearningParameters) -> Patience | None:
        seen = max((_longest(state.run, mode) for mode in (Mode.TRAIN, Mode.EVAL)), default=0)
        needed = _least_rows(state.run, parameters) if view.closed else parameters.live_rows
        return Patience(seen=seen, needed=needed, counts="values")


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
    facts = end_facts(name, series, prefix)
    change = Fact(name="change", value=-fall(series), unit="share", series=name)
    facts = (*facts, change, *(score_facts(run, mode) if losses else ()))
    if not losses or run.all_scores or (not _is_uncertain(series) and stands(run, mode, limits) is None):
        return series_check(run, "learns", (name, series), facts, fall(series), fires=False)
    needed = _values_to_tell(series, limits)
    later = (Fact(name="values_to_tell", value=needed),) if needed > series.count else ()
    return series_check(run, "uncertain", (name, series), (*facts, *later), fall(series), fires=False)


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
        kind, facts = "moves", (Fact(name="objective", value=run.objective, series=name),)
    elif rate is not None and rate.warms_up:
        kind = "warm-up"
        facts = (Fact(name="learning_rate", value=rate.newest), Fact(name="learning_rate_first", value=rate.first))
    else:
        return None
    if not series.means:
        return None
    return series_check(run, kind, (name, series), facts, fall(series), fires=False)
