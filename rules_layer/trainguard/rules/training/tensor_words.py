"""What the texts of rules over tensors share: the step, the comparison with the threshold, and their tense."""

import math
from collections.abc import Callable

from trainguard.finding import Fact
from trainguard.rules.training.readings import Reading, several_words
from trainguard.rules.training.step_text import BOUND, step_words
from trainguard.rules.words import FactSheet, Text, Words
from trainguard.statuses import Status


def step_text(rule: str, needs: str, say: Callable[[FactSheet], Words], *, bound: tuple[str, str] = BOUND) -> Text:
    """Return the text of a rule over steps; ``say`` makes the words of a step that was checked."""

    def text(sheet: FactSheet) -> Words:
        return step_words(sheet, say, rule=rule, needs=needs, bound=bound)

    return text


def measured(name: str, reading: Reading, unit: str = "") -> Fact:
    """Return what was measured of a tensor as a fact; one that is not finite is text, as JSON has no number for it."""
    value = reading.value if math.isfinite(reading.value) else f"{reading.value:g}"
    return Fact(name=name, value=value, unit=unit, series=reading.tensor, threshold=reading.threshold)


def said(sheet: FactSheet, sentence: str, advice: str, clause: str, *, what: str = "tensors") -> Words:
    """Return the words of a step: its number before a clause about the worst of its tensors, and how many there are."""
    reason = f"Step {sheet.number('step'):.0f}: {sentence}{several_words(sheet, what)}."
    return Words(reason, advice, clause) if fires(sheet) else Words(reason)


def fires(sheet: FactSheet) -> bool:
    """Whether the condition holds."""
    return sheet.status is Status.FIRED


def be(sheet: FactSheet, *, many: bool = False) -> str:
    """Return the verb in the tense of the finding."""
    if sheet.past:
        return "were" if many else "was"
    return "are" if many else "is"


def shown(fact: Fact) -> str:
    """Return a number to four digits, and a text as it is."""
    return fact.value if isinstance(fact.value, str) else f"{fact.value:.4g}"


def against(sheet: FactSheet, name: str, when: str, otherwise: str, unit: str = "") -> str:
    """Say how a fact compares, for example ``below the threshold 1e-07``."""
    return f"{when if fires(sheet) else otherwise} the threshold {sheet[name].threshold or 0.0:.6g}{unit}"
