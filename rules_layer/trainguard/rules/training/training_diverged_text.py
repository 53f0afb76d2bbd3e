"""The words of TrainingDiverged."""

from trainguard.rules.training.diverged_kinds import DivergedKind
from trainguard.rules.training.loss_facts import first_words
from trainguard.rules.training.step_text import step_words
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

NEEDS = "It checks losses that are single numbers: record them with CollectionConfig(name='losses')."
BOUND = ("value", "of losses and scores beyond two of each in each mode")
_CLAUSES = {
    DivergedKind.NOT_FINITE: "the loss became NaN or infinite",
    DivergedKind.WAS_NOT_FINITE: "the loss was NaN or infinite for a good part of the run",
    DivergedKind.UNBOUNDED: "the loss fell without bound",
    DivergedKind.SCORE_LOST: "training lost what it had learned",
}


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="TrainingDiverged", needs=NEEDS, bound=BOUND)


def _words(sheet: FactSheet) -> Words:
    say = {
        DivergedKind.FINE: _fine,
        DivergedKind.NOT_FINITE: _not_finite,
        DivergedKind.WAS_NOT_FINITE: _was_not_finite,
        DivergedKind.UNBOUNDED: _unbounded,
        DivergedKind.SCORE_LOST: _score_lost,
    }.get(DivergedKind(sheet.kind), _risen)
    reason = f"Step {sheet['step'].value}: {say(sheet)}."
    if sheet.kind == DivergedKind.FINE:
        return Words(reason)
    return Words(reason, _advice(sheet.kind), _CLAUSES.get(DivergedKind(sheet.kind), "training diverged"))


def _name(sheet: FactSheet, fact: str = "loss_first") -> str:
    return str(sheet[fact].series)


def _fine(sheet: FactSheet) -> str:
    if sheet.get("loss_first") is None:
        return "no loss is broken"
    last = sheet.number("loss_last")
    return f"{_name(sheet)} is {last:.6g}, and was {first_words(sheet)}; no loss is broken or has risen for good"


def _not_finite(sheet: FactSheet) -> str:
    count = sheet["values_not_finite"]
    first, last = int(sheet.number("first_bad_step")), int(sheet.number("last_bad_step"))
    where = f"at step {first}" if first == last else f"from step {first} to {last}"
    verb = "was" if sheet.past else "is"
    return (
        f"{count.series} of mode {sheet.name('mode')} {verb} NaN or infinite {where}, "
        f"{counted(int(count.value), 'recorded value')}"
    )


def _was_not_finite(sheet: FactSheet) -> str:
    count, values = sheet["values_not_finite"], int(sheet.number("values"))
    return (
        f"{count.series} of mode {sheet.name('mode')} was NaN or infinite in {int(count.value):,} of {values:,} "
        f"recorded values, at first at step {sheet['first_bad_step'].value}"
    )


def _risen(sheet: FactSheet) -> str:
    began = f"{_name(sheet)} was {first_words(sheet)}"
    if sheet.kind == DivergedKind.LOST:
        lowest, at = sheet.number("loss_lowest"), sheet["loss_lowest_step"].value
        began += f" and {lowest:.6g} at its lowest (step {at})"
    elif sheet.kind == DivergedKind.EXPLODED:
        first, at = sheet.number("loss_at_first_step"), sheet["loss_first_step"].value
        began = f"{_name(sheet)} was {first:.6g} at step {at}"
    last, values = sheet["loss_last"], sheet.get("loss_first_values")
    least = "it was never below" if values is None else f"no mean of its groups of {values.value:,} values was below"
    return (
        f"{began}; after step {sheet['risen_after_step'].value} {least} "
        f"{sheet.number('loss_least_since'):.6g}, with a mean of {float(last.value):.6g}, above the threshold "
        f"{last.threshold:.6g}"
    )


def _unbounded(sheet: FactSheet) -> str:
    verb, now = ("fell", "was") if sheet.past else ("falls", "is")
    return (
        f"{_name(sheet)} {verb} without bound: it was {first_words(sheet)} and {sheet.number('loss_half_way'):.6g} "
        f"half-way (step {sheet['half_way_step'].value}), and {now} {sheet.number('loss_last'):.6g}"
    )


def _score_lost(sheet: FactSheet) -> str:
    most = sheet["score_most_since"]
    return (
        f"{most.series} had a mean of {sheet.number('score_best'):.4g} over its best fifth of the run; after step "
        f"{sheet['fallen_after_step'].value} it was never above {float(most.value):.4g}, below the threshold "
        f"{most.threshold:.4g}, and the loss rose"
    )


def _advice(kind: str) -> str:
    if kind in (DivergedKind.NOT_FINITE, DivergedKind.WAS_NOT_FINITE):
        return (
            "Stop and go back to a checkpoint before these steps: NaN does not go away by itself. Scale inputs and "
            "targets to about 1, lower the learning rate, clip gradients, and look for NaN in the data, a division "
            "by zero or the logarithm of zero."
        )
    if kind == DivergedKind.UNBOUNDED:
        return (
            "A loss with a minimum does not do that. Check its sign, that targets lie in the range that the loss "
            "expects, and that what it gets are probabilities or logits, as it expects."
        )
    return (
        "Go back to a checkpoint before the rise. Lower the learning rate or its peak after a restart, lengthen "
        "the warm-up, clip gradients, and check the data of these steps."
    )
