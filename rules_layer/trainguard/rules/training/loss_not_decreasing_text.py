"""The words of LossNotDecreasing."""

from enum import StrEnum

from trainguard.rules.training.readings import several_words
from trainguard.rules.training.step_text import step_words
from trainguard.rules.words import FactSheet, Words

NEEDS = (
    "It checks losses that are single numbers, at steps num_steps apart: record them with "
    "CollectionConfig(name='losses')."
)
BOUND = ("value", "of tensors beyond the first 32 of a mode")


class DecreaseKind(StrEnum):
    """The outcomes of LossNotDecreasing."""

    FALLS = "falls"
    ROSE_LITTLE = "rose little"
    FLAT = "flat"
    RISEN = "risen"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="LossNotDecreasing", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    rises = sheet.kind in (DecreaseKind.RISEN, DecreaseKind.ROSE_LITTLE)
    fires = sheet.kind in (DecreaseKind.RISEN, DecreaseKind.FLAT)
    change, mode = sheet["change"], sheet.get("mode")
    compared = ("above" if fires else "not above") if rises else ("below" if fires else "not below")
    of_mode = "" if mode is None else f" of mode {mode.value}"
    reason = (
        f"Step {sheet['step'].value}: {change.series} {_moved(sheet)} since "
        f"step {sheet['compared_step'].value}{of_mode}, from {sheet.number('loss_before'):.6g} to "
        f"{sheet.number('loss_now'):.6g}, {compared} the threshold {change.threshold:.6g} %"
        f"{several_words(sheet, 'losses')}."
    )
    if not fires:
        return Words(reason)
    if rises:
        cure = "Lower the learning rate, lengthen its warm-up or clip gradients, and check the data of these steps."
        return Words(reason, cure, "the loss rose")
    cure = (
        "Change the learning rate or its schedule, or stop early if the loss is as low as it gets. A loss that is "
        "noisy from step to step needs a larger num_steps."
    )
    return Words(reason, cure, "the loss did not decrease")


def _moved(sheet: FactSheet) -> str:
    before, now, percent = sheet.number("loss_before"), sheet.number("loss_now"), sheet.number("change")
    if before == now:
        return "did not change"
    if percent == 0.0:
        return "did not fall"
    return f"{'rose' if now > before else 'fell'} by {percent:.4g} %"
