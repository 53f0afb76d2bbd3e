"""The words of Plateau."""

from enum import StrEnum

from trainguard.rules.training.loss_facts import first_words
from trainguard.rules.training.step_text import step_words
from trainguard.rules.words import FactSheet, Words

NEEDS = "It checks losses of training: record them in the collection losses, scores in metrics."
BOUND = ("value", "of losses and scores beyond two of each in each mode")


class PlateauKind(StrEnum):
    """The outcomes of Plateau."""

    FINE = "fine"
    NEVER_FELL = "never fell"
    PLATEAU = "plateau"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="Plateau", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    rate = sheet.get("learning_rate")
    rated = "" if rate is None else f"; the learning rate is {float(rate.value):.4g}"
    began = f"Step {sheet['step'].value}: {sheet['loss_first'].series} was {first_words(sheet)} and"
    if sheet.kind == PlateauKind.NEVER_FELL:
        return Words(f"{began} was never lower{rated}.")
    fires = sheet.kind == PlateauKind.PLATEAU
    reason = (
        f"{began} fell to {sheet.number('loss_lowest'):.6g}, by {-100.0 * sheet.number('change'):.3g} %; nine tenths "
        f"of that were reached at step {sheet['most_reached_step'].value}, after "
        f"{100.0 * sheet.number('share_of_run'):.3g} % of the run{', and nothing was gained since' if fires else ''}"
        f"{rated}."
    )
    if not fires:
        return Words(reason)
    advice = (
        "Stop earlier, or change what limits the model: another learning rate or schedule, a larger model, other "
        "features. A learning rate that is far below its first value explains a plateau by itself."
    )
    return Words(reason, advice, "training stopped to improve early")
