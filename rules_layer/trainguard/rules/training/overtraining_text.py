"""The words of Overtraining."""

from enum import StrEnum

from trainguard.rules.training.readings import several_words
from trainguard.rules.training.step_text import step_words
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

NEEDS = (
    "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
    "name='losses'), and set the mode in the script (hook.set_mode)."
)


class OvertrainingKind(StrEnum):
    """The outcomes of Overtraining."""

    IMPROVES = "improves"
    TRAINING = "training"
    VALIDATION = "validation"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="Overtraining", needs=NEEDS)


def _words(sheet: FactSheet) -> Words:
    steps, best = sheet["steps_without_improvement"], sheet["loss_lowest"]
    fires = sheet.kind != OvertrainingKind.IMPROVES
    named = "" if best.series is None else f" ({best.series})"
    delta = sheet.number("delta")
    verb = "had" if sheet.past else "has"
    reason = (
        f"Step {sheet['step'].value}: the loss of {sheet.name('of')}{named} {verb} not fallen by more than {delta:.4g} "
        f"below {float(best.value):.4g} (step {sheet['loss_lowest_step'].value}) for "
        f"{counted(int(steps.value), 'saved step')}, {'not below' if fires else 'below'} the threshold "
        f"{steps.threshold:.0f}{several_words(sheet, 'losses')}."
    )
    if not fires:
        return Words(reason)
    advice = (
        "Stop early and keep the checkpoint of the best loss, or lower the learning rate. Set delta to the scale of "
        f"the loss: an improvement of {delta:g} or less counts as none."
    )
    return Words(reason, advice, "the loss stopped improving")
