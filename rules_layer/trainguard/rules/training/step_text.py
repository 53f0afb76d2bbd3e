"""The words that all rules over steps share: why no step was checked, and what was not used."""

from collections.abc import Callable
from enum import StrEnum

from trainguard.finding import Fact
from trainguard.rules.training.scalar_advice import FoundScalars, scalar_needs
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

BOUND = ("value", "of further tensors")
MOST_NAMES = 8


class StepKind(StrEnum):
    """Why a rule over steps has checked none."""

    UNUSABLE = "no step could be checked"
    NO_STEP = "no step yet"
    TOO_FEW = "too few steps"
    UNREAD = "no step could be read"
    NOTHING = "nothing to check"


def step_words(
    sheet: FactSheet, say: Callable[[FactSheet], Words], *, rule: str, needs: str, bound: tuple[str, str] = BOUND
) -> Words:
    """Return the words of a judgement: those of ``say`` with notes on what was not used, or why nothing was checked.

    Parameters
    ----------
    sheet : FactSheet
    say : function
        Makes the words of a step that was checked.
    rule : str
        Without its family.
    needs : str
        Which tensors it checks and how to record them, in a sentence.
    bound : tuple of str
        What the fact ``left_out`` counts, a singular noun, and which of them the rule leaves out.
    """
    if sheet.kind in tuple(StepKind):
        return Words(_unchecked(sheet, rule, needs, bound))
    words = say(sheet)
    return Words(words.reason + _notes(sheet, bound), words.advice, words.clause)


def scalar_facts(found: FoundScalars) -> tuple[Fact, ...]:
    """Return the names of scalars that files hold, eight at most, and of those taken for losses."""
    more = found.more or len(found.names) > MOST_NAMES
    return (
        *(Fact(name="scalar", value=name) for name in found.names[:MOST_NAMES]),
        *(Fact(name="taken_for_loss", value=name, series=name) for name in found.losses[:2]),
        *([Fact(name="scalars_more", value=1)] if more else []),
    )


def _unchecked(sheet: FactSheet, rule: str, needs: str, bound: tuple[str, str]) -> str:
    if sheet.kind == StepKind.UNUSABLE:
        return f"No step could be checked: {sheet.name('unusable_why')}.{_ignored(sheet)}"
    if sheet.kind == StepKind.NO_STEP:
        return f"No step was saved.{_ignored(sheet)}"
    if sheet.kind == StepKind.UNREAD:
        return f"No step of the files of scalars could be read.{_ignored(sheet)}"
    what_to_do = needs
    if sheet.get("of_scalars") is not None:
        names = tuple(str(each.value) for each in sheet.all("scalar"))
        losses = tuple(str(each.value) for each in sheet.all("taken_for_loss"))
        found = FoundScalars(names, losses, more=sheet.get("scalars_more") is not None)
        what_to_do = scalar_needs(rule, needs, found)
    if sheet.kind == StepKind.TOO_FEW:
        held = _hold("waiting_steps", sheet)
        return f"{held} what the rule checks, too few to compare. {what_to_do}{_notes(sheet, bound)}"
    return f"None of {_hold('saved_steps', sheet)} what the rule checks. {what_to_do}{_ignored(sheet)}"


def _hold(name: str, sheet: FactSheet) -> str:
    count = int(sheet.number(name))
    return f"{counted(count, 'saved step')} hold{'s' if count == 1 else ''}"


def _notes(sheet: FactSheet, bound: tuple[str, str]) -> str:
    """Return sentences about what was not used, each after a blank; empty where there is nothing to say."""
    notes = ""
    unusable, left_out = sheet.get("unusable"), sheet.get("left_out")
    if unusable is not None:
        count = int(unusable.value)
        times, last = ("Once", "") if count == 1 else (f"{count:,} times", "the last time ")
        notes += f" {times} a tensor could not be checked, {last}because {sheet.name('unusable_why')}."
    if left_out is not None:
        what, which = bound
        notes += f" Left out: {counted(int(left_out.value), what)} {which}."
    return notes + _ignored(sheet)


def _ignored(sheet: FactSheet) -> str:
    ignored = [str(each.value) for each in sheet.all("ignored_parameter")]
    if not ignored:
        return ""
    one = len(ignored) == 1
    return (
        f" {'Parameter' if one else 'Parameters'} {', '.join(ignored)} {'is' if one else 'are'} unknown and not used."
    )
