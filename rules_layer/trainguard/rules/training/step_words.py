"""Words that all rules over steps share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from trainguard.core.finding import Fact, Status
from trainguard.core.units import counted, show_duration
from trainguard.formats.tensors.scalars.names import MEANINGS, has_meaning
from trainguard.formats.tensors.scalars.objective import signal_of, words_of
from trainguard.rules.family_rules import TRAINING
from trainguard.rules.rule_result import FactSheet, Named, Words
from trainguard.rules.spec import STEPS, ParameterHelp, RuleSpec


class FoundScalars(NamedTuple):
    """Scalars that files hold: their names (``more`` says that there are others), and those taken for losses."""

    names: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    more: bool = False


def _is_known(name: str) -> bool:
    """Whether a name says that it is no loss: a reward, a score, a rate, a count or a time."""
    counts = not _COUNTS.isdisjoint(words_of(name))
    return counts or signal_of(name) is not None or any(has_meaning(each, name) for each in MEANINGS)


_COUNTS = frozenset(
    {"count", "episode", "episodes", "epoch", "fps", "length", "num", "scale", "seconds", "step", "steps", "time"}
    | {"timestamp", "tokens", "total"}
)
BOUND = ("value", "of further tensors")
MOST_NAMES = 8

RANGE_HELP = {
    "start_step": ParameterHelp("step", "the first step that is checked; None for the first saved one"),
    "end_step": ParameterHelp("step", "the first step that is not checked any more; None for no end"),
}
ROWS_HELP = {
    "min_rows": ParameterHelp("values", "as many recorded losses are needed to judge a run that has ended"),
    "live_rows": ParameterHelp("values", "as many are needed to judge one that goes on"),
}
SELECTION_HELP = {
    "collection_names": ParameterHelp("names", "collections, separated by commas, whose tensors are checked"),
    "tensor_regex": ParameterHelp(
        "patterns",
        "regular expressions, separated by commas; tensors whose name one of them is found in are checked too",
    ),
}
# What rules over selected tensors check of scalars.
SELECTS = (
    "It checks the scalars that tensor_regex selects: set it to a regular expression that is found in their names."
)


class StepKind(StrEnum):
    """Why a rule over steps has checked none."""

    UNUSABLE = "no step could be checked"
    NO_STEP = "no step yet"
    TOO_FEW = "too few steps"
    UNREAD = "no step could be read"
    NOTHING = "nothing to check"


@dataclass(frozen=True, slots=True)
class StepText:
    """The text of a rule over steps: the words of a check, with notes on unused tensors, or why nothing was checked.

    ``needs`` says which tensors it checks and how to record them; ``bound`` has the noun that ``left_out`` counts, and
    which of them the rule leaves out. ``kinds`` are those of its checks. ``on_scalars`` says which scalars it checks
    and how to log them: None of a rule that checks tensors alone. ``of_losses`` says that it needs a loss among them.
    """

    needs: str
    say: Callable[[FactSheet], Words]
    bound: tuple[str, str] = BOUND
    kinds: tuple[str, ...] = ()
    on_scalars: str | None = None
    of_losses: bool = True

    def __call__(self, sheet: FactSheet) -> Words:
        if sheet.kind in tuple(StepKind):
            return Words(_unchecked(sheet, self))
        words = self.say(sheet)
        return Words(words.reason + _notes(sheet, self.bound), words.advice, words.clause)

    def scalar_needs(self, found: FoundScalars, *, serves: bool = False) -> str:
        """Say what was found and what to do about it.

        What a rule checks is recorded where it ``serves``: more of it is what is missing.
        """
        if not found.names:
            return self.needs if self.on_scalars is None else self.on_scalars
        held = f"The files of scalars hold {', '.join(found.names)}{' and others' if found.more else ''}"
        if self.on_scalars is None:
            return f"{held}, and no tensors. {self.needs}"
        if found.losses or not self.of_losses:
            taken = f"; taken for losses: {', '.join(found.losses)}" if found.losses else ""
            return f"{held}{taken}." if serves else f"{held}{taken}. {self.on_scalars}"
        unknown = [name for name in found.names if not _is_known(name)]
        example = f", for example ScalarNames_losses={min(unknown, key=len)}" if unknown else ""
        return (
            f"{held}; none of these names is taken for a loss. If one is the loss, set ScalarNames_losses to a regular "
            f"expression that is found in it{example}."
        )


def step_spec(
    rule: str,
    *,
    needs: str,
    say: Callable[[FactSheet], Words],
    bound: tuple[str, str] = BOUND,
    kinds: tuple[str, ...] = (),
    on_scalars: str | None = None,
    of_losses: bool = True,
    **more: Any,
) -> RuleSpec:
    """Return the spec of a rule over steps, named without its family.

    ``more`` are other fields of it; ``parameters`` lack those that all rules over steps take.
    """
    text = StepText(needs, say, bound, kinds, on_scalars, of_losses)
    helped = {**more.pop("parameters", {}), **RANGE_HELP}
    return RuleSpec(name=f"{TRAINING}/{rule}", family=TRAINING, counts=STEPS, parameters=helped, text=text, **more)


def scalar_facts(found: FoundScalars) -> tuple[Fact, ...]:
    """Return the names of scalars that files hold, eight at most, and of those taken for losses."""
    more = found.more or len(found.names) > MOST_NAMES
    return (
        *(Fact(name="scalar", value=name) for name in found.names[:MOST_NAMES]),
        *(Fact(name="taken_for_loss", value=name, series=name) for name in found.losses[:2]),
        *([Fact(name="scalars_more", value=1)] if more else []),
    )


def _unchecked(sheet: FactSheet, text: StepText) -> str:
    if sheet.kind == StepKind.UNUSABLE:
        return f"No step could be checked: {sheet.name('unusable_why')}.{_ignored(sheet)}"
    if sheet.kind == StepKind.NO_STEP:
        return f"No step was saved.{_ignored(sheet)}"
    if sheet.kind == StepKind.UNREAD:
        return (
            "No step was found in the files of scalars: they are empty, hold a header alone or lines without a loss, "
            f"or could not be read.{_ignored(sheet)}"
        )
    what_to_do, seen = text.needs, sheet.get("values_seen")
    if sheet.get("of_scalars") is not None:
        names = tuple(str(each.value) for each in sheet.all("scalar"))
        losses = tuple(str(each.value) for each in sheet.all("taken_for_loss"))
        found = FoundScalars(names, losses, more=sheet.get("scalars_more") is not None)
        what_to_do = text.scalar_needs(found, serves=seen is not None and bool(seen.value))
    if sheet.kind == StepKind.TOO_FEW and seen is not None:
        values = counted(int(seen.value), "value") if seen.value else "no value"
        why = f"It is not known yet: {values} can be used, and it takes {sheet.count('values_needed')}."
        return f"{why} {what_to_do}{_notes(sheet, text.bound)}"
    if sheet.kind == StepKind.TOO_FEW:
        held = _hold("waiting_steps", sheet)
        return f"{held} what the rule checks, too few to compare. {what_to_do}{_notes(sheet, text.bound)}"
    return f"None of {_hold('saved_steps', sheet)} what the rule checks. {what_to_do}{_ignored(sheet)}"


def _hold(name: str, sheet: FactSheet) -> str:
    count = int(sheet.number(name))
    return f"{counted(count, 'saved step')} hold{'s' if count == 1 else ''}"


def _notes(sheet: FactSheet, bound: tuple[str, str]) -> str:
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


def several_words(sheet: FactSheet, what: str = "tensors") -> str:
    """Say how many fire, of which the named one is the worst; empty of one alone."""
    firing = sheet.get("firing")
    if firing is None:
        return ""
    return f" (the worst of {firing.value} such {what}, of {sheet['judged'].value} in all)"


def said(sheet: FactSheet, sentence: str, advice: str = "", clause: str = "", *, what: str = "tensors") -> Words:
    """Return the words of a step: its number before a clause about the worst of its tensors, and how many there are."""
    reason = f"Step {sheet.number('step'):.0f}: {sentence}{several_words(sheet, what)}."
    return Words(reason, advice, clause) if fires(sheet) else Words(reason)


def fires(sheet: FactSheet) -> bool:
    return sheet.status is Status.FIRED


MANY_TIMES = 10.0


def _side(sheet: FactSheet, _: Fact, words: str) -> str:
    when, otherwise = words.split("|")
    return when if fires(sheet) else otherwise


def _began(sheet: FactSheet, fact: Fact, digits: str) -> str:
    """Say where a series began: a value, or of a long one about what its first values are."""
    start, prefix = f"{float(fact.value):.{digits or 6}g}", fact.name
    values = sheet.get(f"{prefix}_values")
    if values is None:
        return f"{start} at the start (step {sheet.count(f'{prefix}_step')})"
    begins, until = sheet.count(f"{prefix}_step"), sheet.count(f"{prefix}_until")
    return f"about {start} over the first {int(values.value):,} values (steps {begins} to {until})"


def _ended(sheet: FactSheet, fact: Fact, digits: str) -> str:
    """Say what a series is in its last quarter."""
    until = sheet.count(f"{fact.name}_step")
    return f"{float(fact.value):.{digits or 6}g} in the last quarter (until step {until})"


def _moved(_: FactSheet, fact: Fact, __: str) -> str:
    """Say a signed share: ``fell by 14 %``, ``did not change``, ``rose by 50 times its first size``."""
    change = float(fact.value)
    if change == 0.0:
        return "did not change"
    by = f"{abs(change):.3g} times its first size" if abs(change) >= MANY_TIMES else f"{100.0 * abs(change):.3g} %"
    return f"{'fell' if change < 0.0 else 'rose'} by {by}"


_FORMS: Mapping[str, Callable[[FactSheet, Fact, str], str]] = {
    "side": _side,
    "against": lambda sheet, fact, words: f"{_side(sheet, fact, words)} the threshold {fact.threshold or 0.0:.6g}",
    "began": _began,
    "ended": _ended,
    "moved": _moved,
    "counted": lambda _, fact, what: counted(int(fact.value), what),
    "duration": lambda _, fact, __: show_duration(float(fact.value)),
    "percent": lambda _, fact, __: f"{100.0 * float(fact.value):.3g} %",
    "fall": lambda _, fact, __: f"{-100.0 * float(fact.value):.3g} %",
    "size": lambda _, fact, __: f"{100.0 * abs(float(fact.value)):.3g} %",
}


class _Shown:
    """A fact in a template, with its attributes; without a format a float has four digits."""

    def __init__(self, sheet: FactSheet, fact: Fact) -> None:
        self._sheet = sheet
        self._fact = fact

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fact, name)

    def __format__(self, form: str) -> str:
        word, _, rest = form.partition(" ")
        if word in _FORMS:
            return _FORMS[word](self._sheet, self._fact, rest)
        value = self._fact.value
        return value if isinstance(value, str) else f"{value:{form or ('.4g' if isinstance(value, float) else '')}}"


def filled(sheet: FactSheet, template: str, **more: str) -> str:
    """Return a template with the facts of a sheet, and ``more``, in the place of their names.

    Beside Python's formats a fact has ``{name:against above|not above}``, on which ``side`` of its threshold it is
    where the rule fires or does not, ``{steps:counted step}``, ``{time_s:duration}`` and ``{change:moved}``; a share in
    per cent as ``percent``, ``fall`` or ``size``; ``{loss_first:began 4}`` and ``{loss_last:ended 4}`` in so many
    digits.
    """
    return template.format_map(Named(sheet, more, _Shown))


def filled_each(sheet: FactSheet, templates: Mapping[str, str]) -> str:
    """Return the templates, by the fact that each is of, of which a sheet has that fact."""
    return "; ".join(filled(sheet, each) for name, each in templates.items() if sheet.get(name) is not None)


def worded(
    sentence: str | Mapping[str, str],
    advice: str | Mapping[str, str] = "",
    clause: str | Mapping[str, str] = "",
    *,
    what: str = "tensors",
) -> Callable[[FactSheet], Words]:
    """Return what makes the words of a step by templates, as `filled` takes them, where they differ by kind."""

    def say(sheet: FactSheet) -> Words:
        of_kind = (each if isinstance(each, str) else each.get(sheet.kind, "") for each in (sentence, advice, clause))
        return said(sheet, *(filled(sheet, each) for each in of_kind), what=what)

    return say
