"""The words of NotLearning."""

import math

from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.training.learned_nothing import LearningKind
from trainguard.rules.training.series import first_words, last_words, moved

_CLAUSES = {
    **dict.fromkeys(
        (LearningKind.VALIDATION, LearningKind.UNSEEN, LearningKind.WORSENS, LearningKind.JUMPS),
        "what the model learned did not hold for validation",
    ),
    LearningKind.CAPPED: "the loss could not fall as far as it should",
    LearningKind.SLOW: "the model learned far too slowly",
}
_BELONG = (
    "Check that inputs and labels belong together, in training and in validation: that both are shuffled alike, and "
    "that both are prepared in the same way."
)
_ADVICE = {
    LearningKind.VALIDATION: _BELONG,
    LearningKind.UNSEEN: _BELONG,
    LearningKind.WORSENS: (
        "Keep the checkpoint of the lowest loss of validation and stop there. Check for wrong labels, and that "
        "validation is of the same kind as training; add data, augmentation, dropout or weight decay."
    ),
    LearningKind.JUMPS: (
        "Check that validation runs in evaluation mode, how fast running means of batch normalisation are updated, and "
        "that batches are not too small for them."
    ),
    LearningKind.CAPPED: (
        "Check that the model's last layer gives logits where the loss function takes logits: remove the softmax, or "
        "the sigmoid, before it."
    ),
    LearningKind.SLOW: (
        "Try a learning rate ten times higher, and check that the schedule or warm-up does not hold it down."
    ),
}
_NOTHING = (
    "Try to fit ten samples first: if the loss does not fall there either, check that the optimizer has the "
    "model's parameters and that they get gradients, the last activation and the loss function, the scale of "
    "the inputs, and a learning rate ten times higher and lower."
)


def _words(sheet: FactSheet) -> Words:
    kind = LearningKind(sheet.kind)
    reason = f"Step {sheet['step'].value}: {_SAID[kind](sheet)}."
    if kind in (LearningKind.LEARNS, LearningKind.WARM_UP):
        return Words(reason)
    return Words(reason, _ADVICE.get(kind, _NOTHING), _CLAUSES.get(kind, "the model did not learn"))


def _name(sheet: FactSheet, prefix: str) -> str:
    return str(sheet[f"{prefix}_first"].series)


def _score(sheet: FactSheet) -> str:
    score = sheet.get("score_last")
    if score is None or sheet.get("score_first") is None:
        return ""
    return f"; {score.series} was {first_words(sheet, 'score', 4)} and is {float(score.value):.4g}"


def _learns(sheet: FactSheet) -> str:
    prefix = "loss" if sheet.get("loss_first") is not None else "score"
    said = f"{_name(sheet, prefix)} was {first_words(sheet, prefix)} and is {last_words(sheet, prefix)}"
    score = _score(sheet) if prefix == "loss" else ""
    return f"{said}: it {moved(sheet.number('change'))}{score}"


def _warm_up(sheet: FactSheet) -> str:
    rate, first = sheet["learning_rate"], sheet.number("learning_rate_first")
    return (
        f"the learning rate still rises, from {first:.4g} to {float(rate.value):.4g}: the warm-up is not over, and the "
        "run is not judged yet"
    )


def _stands(sheet: FactSheet) -> str:
    change = sheet.number("change")
    verb = "rises" if sheet.get("rises") is not None else "stands"
    return (
        f"{_name(sheet, 'loss')} {verb}: it was {first_words(sheet)} and is {last_words(sheet)}, so it {moved(change)}"
        f"{_score(sheet)}"
    )


def _chance(sheet: FactSheet) -> str:
    return (
        f"{_name(sheet, 'score')} stays at the level of chance: {first_words(sheet, 'score', 4)}, "
        f"{last_words(sheet, 'score', 4)}, with a loss of {sheet.number('loss_last'):.4g} there"
    )


def _level(sheet: FactSheet) -> str:
    classes = int(sheet.number("classes"))
    return (
        f"{_name(sheet, 'loss')} was {first_words(sheet)} and has stood at {sheet.number('loss_level'):.5g} since step "
        f"{sheet['stands_since_step'].value}: ln {classes} = {math.log(classes):.5g} is the cross entropy of a guess "
        f"among {classes} classes"
    )


def _validation(sheet: FactSheet) -> str:
    return (
        f"{_name(sheet, 'score')} stays at the level of chance: {first_words(sheet, 'score', 4)}, "
        f"{last_words(sheet, 'score', 4)}; the loss of validation was never below "
        f"{sheet.number('validation_lowest'):.4g}"
    )


def _unseen(sheet: FactSheet) -> str:
    return (
        f"{_name(sheet, 'loss')} was {first_words(sheet, digits=4)} and fell to {sheet.number('loss_last'):.4g}, and "
        f"{_name(sheet, 'validation')} was never below {sheet.number('validation_lowest'):.4g}: it was "
        f"{first_words(sheet, 'validation', 4)} and is {last_words(sheet, 'validation', 4)}"
    )


def _stuck(sheet: FactSheet) -> str:
    score = sheet["score_always"]
    return (
        f"{score.series} is {float(score.value):.4g} at each of {int(sheet.number('values')):,} steps, from step "
        f"{sheet['score_first_step'].value} to {sheet['score_last_step'].value}, whatever the loss does"
    )


def _no_gain(sheet: FactSheet) -> str:
    return (
        f"{_name(sheet, 'loss')} was {first_words(sheet, digits=4)} and fell to {sheet.number('loss_last'):.4g} in the "
        f"last quarter, and {_name(sheet, 'score')} did not gain by it: {first_words(sheet, 'score', 4)}, "
        f"{last_words(sheet, 'score', 4)}"
    )


def _worsens(sheet: FactSheet) -> str:
    lowest, train = sheet["validation_lowest"], sheet["loss_last"]
    reason = (
        f"{lowest.series} was {float(lowest.value):.4g} at its lowest (step {sheet['validation_lowest_step'].value}) "
        f"and is {last_words(sheet, 'validation', 4)}, while {train.series} went on to fall to "
        f"{float(train.value):.4g}"
    )
    best, now = sheet.get("score_best"), sheet.get("score_last")
    if now is None:
        return reason
    if best is None:
        return f"{reason}; {now.series} stands at {float(now.value):.4g}"
    was = f"{best.series} was {float(best.value):.4g} in its best quarter"
    return f"{reason}, and {was} and is {float(now.value):.4g}"


def _jumps(sheet: FactSheet) -> str:
    least, most = sheet["validation_least"], sheet.number("validation_most")
    return (
        f"{least.series} jumps between {float(least.value):.4g} and {most:.4g} in the last half of the run (until step "
        f"{sheet['validation_last_step'].value}), by {100.0 * sheet.number('jump'):.3g} % from one value to the next, "
        f"while {_name(sheet, 'loss')} fell from {first_words(sheet)} to {sheet.number('loss_last'):.4g}"
    )


def _capped(sheet: FactSheet) -> str:
    score = sheet["score_last"]
    return (
        f"{_name(sheet, 'loss')} was {first_words(sheet)} and stands at {last_words(sheet, digits=4)}, although "
        f"{score.series} is {float(score.value):.4g}: of {int(sheet.number('classes')):,} classes that is the level of "
        f"outputs that pass a softmax twice, which never falls below {sheet.number('floor'):.4g}"
    )


def _slow(sheet: FactSheet) -> str:
    score = sheet["score_last"]
    return (
        f"{_name(sheet, 'loss')} was {first_words(sheet)} and is {last_words(sheet, digits=5)}: it fell at an even "
        f"speed, by {100.0 * abs(sheet.number('change')):.3g} %; {score.series} is {float(score.value):.4g}"
    )


_SAID = {
    LearningKind.LEARNS: _learns,
    LearningKind.WARM_UP: _warm_up,
    LearningKind.STANDS: _stands,
    LearningKind.CHANCE: _chance,
    LearningKind.LEVEL: _level,
    LearningKind.VALIDATION: _validation,
    LearningKind.UNSEEN: _unseen,
    LearningKind.STUCK: _stuck,
    LearningKind.NO_GAIN: _no_gain,
    LearningKind.WORSENS: _worsens,
    LearningKind.JUMPS: _jumps,
    LearningKind.CAPPED: _capped,
    LearningKind.SLOW: _slow,
}
