"""The words of Overfit."""

from enum import StrEnum

from trainguard.rules.training.readings import several_words
from trainguard.rules.training.step_text import step_words
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

NEEDS = (
    "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
    "name='losses'), set the mode in the script (hook.set_mode), and validate during training."
)
BOUND = ("value", "of metrics beyond the first 32")


class OverfitKind(StrEnum):
    """The outcomes of Overfit."""

    FINE = "fine"
    WAITS = "waits"
    OVERFITS = "overfits"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="Overfit", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    gap, times, patience = sheet["gap"], sheet.get("times_in_a_row"), sheet.get("patience")
    verb = "was" if sheet.past else "is"
    above = "not above" if sheet.kind == OverfitKind.FINE else "above"
    reason = (
        f"Step {sheet['step'].value}: the mean loss of validation {verb} {sheet.number('loss_validation'):.6g} and "
        f"that of training {sheet.number('loss_training'):.6g}, a gap of {float(gap.value):.4g} of it, {above} the "
        f"threshold {gap.threshold:.6g}"
    )
    if times is not None and patience is not None:
        reason += f", {counted(int(times.value), 'time')} in a row (patience {patience.value})"
    reason += f", by {gap.series}{several_words(sheet, 'metrics')}."
    if sheet.kind != OverfitKind.OVERFITS:
        return Words(reason)
    advice = (
        "Stop early, or use more data, augmentation, dropout or weight decay, or a smaller model. Check that both "
        "losses are the same measure: dropout and regularisation terms raise only that of training."
    )
    return Words(reason, advice, "the model overfitted")
