"""The words of NotLearning."""

import math

from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.training.learned_nothing import LearningKind
from trainguard.rules.training.step_words import filled

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
    LearningKind.ASTRAY: (
        "Start again with a learning rate that is ten times lower, a warm-up and clipped gradients: the weights were "
        "thrown far off at the start."
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
_LOSS = "{loss_first.series} was {loss_first:began}"
_CHANCE = "{score_first.series} stays at the level of chance: {score_first:began 4}, {score_last:ended 4}"
_SCORE = "; {score_last.series} was {score_first:began 4} and is {score_last:.4g}"
_SAID = {
    LearningKind.MOVES: "{objective.series} does not have to fall: the objective is {objective}",
    LearningKind.LEARNS: _LOSS + " and is {loss_last:ended}: it {change:moved}{score}",
    LearningKind.UNCERTAIN: (
        _LOSS + " and is {loss_last:ended}: it {change:moved}, and whether the model learns is not known{until}"
    ),
    LearningKind.WARM_UP: (
        "the learning rate still rises, from {learning_rate_first:.4g} to {learning_rate:.4g}: the warm-up is not "
        "over, and the run is not judged yet"
    ),
    LearningKind.STANDS: (
        "{loss_first.series} {verb}: it was {loss_first:began} and is {loss_last:ended}, so it {change:moved}{score}"
    ),
    LearningKind.CHANCE: _CHANCE + ", with a loss of {loss_last:.4g} there",
    LearningKind.ASTRAY: (
        "{score_first.series} never rose: it was {score_first:began 4} and is {score_last:ended 4}, and "
        "{loss_level.series} jumps about {loss_level:.4g}, where a guess has {loss_of_a_guess:.4g}"
    ),
    LearningKind.LEVEL: (
        _LOSS + " and has stood at {loss_level:.5g} since step {stands_since_step}: ln {classes} = {logarithm} is the "
        "cross entropy of a guess among {classes} classes"
    ),
    LearningKind.VALIDATION: _CHANCE + "; the loss of validation was never below {validation_lowest:.4g}",
    LearningKind.UNSEEN: (
        "{loss_first.series} was {loss_first:began 4} and fell to {loss_last:.4g}, and {validation_first.series} was "
        "never below {validation_lowest:.4g}: it was {validation_first:began 4} and is {validation_last:ended 4}"
    ),
    LearningKind.STUCK: (
        "{score_always.series} is {score_always:.4g} at each of {values:,} steps, from step {score_first_step} to "
        "{score_last_step}, whatever the loss does"
    ),
    LearningKind.NO_GAIN: (
        "{loss_first.series} was {loss_first:began 4} and fell to {loss_last:.4g} in the last quarter, and "
        "{score_first.series} did not gain by it: {score_first:began 4}, {score_last:ended 4}"
    ),
    LearningKind.WORSENS: (
        "{validation_lowest.series} was {validation_lowest:.4g} at its lowest (step {validation_lowest_step}) and is "
        "{validation_last:ended 4}, while {loss_last.series} went on to fall to {loss_last:.4g}{score}"
    ),
    LearningKind.JUMPS: (
        "{validation_least.series} jumps between {validation_least:.4g} and {validation_most:.4g} in the last half of "
        "the run (until step {validation_last_step}), by {jump:percent} from one value to the next, while "
        "{loss_first.series} fell from {loss_first:began} to {loss_last:.4g}"
    ),
    LearningKind.CAPPED: (
        _LOSS + " and stands at {loss_last:ended 4}, although {score_last.series} is {score_last:.4g}: of {classes:,} "
        "classes that is the level of outputs that pass a softmax twice, which never falls below {floor:.4g}"
    ),
    LearningKind.SLOW: (
        _LOSS + " and is {loss_last:ended 5}: it fell at an even speed, by {change:size}; {score_last.series} is "
        "{score_last:.4g}"
    ),
}


def _until(sheet: FactSheet) -> str:
    """Say from when on it is known."""
    if sheet.get("values_to_tell") is None:
        return ": of a fine-tune a score, or a loss of validation, says more"
    return filled(sheet, " yet: beside its noise that takes about {values_to_tell:counted value}")


def _words(sheet: FactSheet) -> Words:
    kind, template = LearningKind(sheet.kind), _SAID[LearningKind(sheet.kind)]
    if kind is LearningKind.LEARNS and sheet.get("loss_first") is None:
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
    if kind in (LearningKind.LEARNS, LearningKind.UNCERTAIN, LearningKind.WARM_UP, LearningKind.MOVES):
        return Words(reason)
    return Words(reason, _ADVICE.get(kind, _NOTHING), _CLAUSES.get(kind, "the model did not learn"))


def _score(sheet: FactSheet, kind: LearningKind) -> str:
    """Say what became of the score beside the loss; empty without one."""
    if sheet.get("score_last") is None:
        return ""
    if kind is not LearningKind.WORSENS:
        return "" if sheet.get("score_first") is None else filled(sheet, _SCORE)
    if sheet.get("score_best") is None:
        return filled(sheet, "; {score_last.series} stands at {score_last:.4g}")
    return filled(sheet, ", and {score_best.series} was {score_best:.4g} in its best quarter and is {score_last:.4g}")
