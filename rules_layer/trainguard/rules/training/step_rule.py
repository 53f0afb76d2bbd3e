"""What a rule over training steps is: it checks one complete step after another and remembers a bounded state.

After its first fire a rule goes on. It holds while the newest step that it could check fires.
"""

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from trainguard.errors import (
    RuleConfigError,
    TelemetryFormatError,
    TensorMissingError,
    TensorTooLargeError,
    TensorUnusableError,
)
from trainguard.finding import UNTIMED, Fact, Progress
from trainguard.records import Status
from trainguard.rules.default_spec import spec_of_rule
from trainguard.rules.family_rules import bare
from trainguard.rules.protocol import NonNegativeInt, Rule, RuleParameters
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.training.scalar_advice import FoundScalars
from trainguard.rules.training.step_text import BOUND, MOST_NAMES, StepKind, scalar_facts, step_words
from trainguard.rules.words import FactSheet, Text, Words
from trainguard.tensors.name_patterns import NamePatternError, name_pattern
from trainguard.tensors.step_view import StepView

MOST_STEPS, MOST_EPISODES = 100, 32
"""How many firing steps a state names, and how many of those at which firing began; further ones are counted."""

USELESS = (TensorMissingError, TensorTooLargeError, TensorUnusableError, TelemetryFormatError)
"""Why a tensor cannot be used; anything else is a fault of the program."""


class StepParameters(RuleParameters, frozen=True, kw_only=True):
    """What every rule over steps takes: global steps, the end exclusive.

    Who runs such a rule elsewhere passes more than its parameters: those are accepted and not used. A name that nobody
    knows is not used either; ``ignored`` has these settings as written, and every judgement says so.
    """

    ignores_unknown: ClassVar[bool] = True
    accepted: ClassVar[re.Pattern[str]] = re.compile(
        "base_trial|other_trials?(_[0-9]+)?|action_json|rule_to_invoke|source_s3_uri"
    )
    rule_name: ClassVar[str]
    regex_fields: ClassVar[tuple[str, ...]] = ()

    start_step: NonNegativeInt | None = None
    end_step: NonNegativeInt | None = None
    ignored: tuple[str, ...] = ()

    @classmethod
    def settable(cls) -> frozenset[str]:
        """Return the names of the parameters that a user may set."""
        return super().settable() - {"ignored"}

    def __post_init__(self) -> None:
        """Refuse patterns that are no regular expressions, or could take too long: evaluators serve other jobs, too."""
        for field in self.regex_fields:
            for pattern in _texts(getattr(self, field)):
                try:
                    name_pattern(pattern)
                except NamePatternError as fault:
                    raise self.fault(field, pattern, f"a regular expression ({fault})") from fault

    def fault(self, field: str, value: object, expected: str) -> RuleConfigError:
        """Return the fault of a field, named as a user sets it."""
        return RuleConfigError(self.rule_name, f"{self.rule_name}_{field}", value, expected)

    def covers(self, step: int) -> bool:
        """Whether a global step lies in the range."""
        return (self.start_step is None or step >= self.start_step) and (self.end_step is None or step < self.end_step)

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return values by name, without what was ignored."""
        return {name: value for name, value in values.items() if name != "ignored"}


def _texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one step says.

    ``kind`` is one of the rule's enumeration, and ``facts`` are what its words are made of; a rule without a text gives
    ``reason``, one sentence with the step's own numbers. ``tensor``, ``value`` and ``threshold`` are those of the
    tensor that is furthest over its threshold; None where the condition has none, or the value is not finite. ``onset``
    is when the condition began, epoch seconds; None leaves it to the time of the first step that fires.
    """

    step: int
    at: float
    fires: bool
    reason: str = ""
    tensor: str | None = None
    value: float | None = None
    threshold: float | None = None
    kind: str | None = None
    facts: tuple[Fact, ...] = ()
    onset: float | None = None


class StepState(msgspec.Struct, kw_only=True):
    """What every rule over steps remembers; a rule with a state of its own derives from it.

    ``evaluated`` counts steps that could be checked, ``fired`` those that fired, ``first`` is the first of them, and
    ``steps`` the first hundred; ``onsets`` are those after a check that did not fire, 32 at most. ``latest`` is the
    newest check, ``firing`` the newest that fired, and ``onset`` is when the condition began that holds now, epoch
    seconds; None where steps have no times. ``untimed`` counts steps that
    do not say when they were saved. ``waiting`` counts steps that hold what the rule checks, and that it
    could not compare with earlier ones yet. ``unusable`` counts how often a tensor could not be used, ``unusable_why``
    says why the last one could not. ``left_out`` counts what a rule did not take in because its state is bounded.
    """

    evaluated: int = 0
    fired: int = 0
    first: Check | None = None
    firing: Check | None = None
    latest: Check | None = None
    steps: list[int] = msgspec.field(default_factory=list)
    onsets: list[int] = msgspec.field(default_factory=list)
    onset: float | None = None
    waiting: int = 0
    untimed: int = 0
    unusable: int = 0
    unusable_why: str | None = None
    left_out: int = 0

    def leave_out(self, why: str) -> None:
        """Count a tensor that could not be used; ``why`` is a clause that names it."""
        self.unusable += 1
        self.unusable_why = why


@dataclass(frozen=True, slots=True)
class RunView:
    """What a rule is judged with: how many steps the run has saved, and whether it has ended.

    ``scalars`` are those that were found of a run in files of scalars; None of a run that has tensors.
    """

    steps: int
    closed: bool = False
    scalars: FoundScalars | None = None


P = TypeVar("P", bound=StepParameters)
S = TypeVar("S", bound=StepState)


class StepRule(Rule[P], Generic[P, S]):
    """A rule over the complete steps of one run.

    ``needs`` says in words which tensors it checks and how to record them, for runs that hold none. ``bound`` says what
    ``StepState.left_out`` counts, a singular noun, and which of them the rule leaves out.
    """

    state_type: type[S]
    needs: ClassVar[str]
    bound: ClassVar[tuple[str, str]] = BOUND

    def clear_after_s(self, parameters: P, interval_s: float) -> float:
        """Return 0: the first step that is checked and does not fire ends an episode."""
        del parameters, interval_s
        return 0.0

    def watch(self, state: S, step: StepView, parameters: P) -> None:
        """Take note of a step that is not to be checked, of a rule whose reference may lie before ``start_step``."""
        del state, step, parameters

    @abstractmethod
    def check(self, state: S, step: StepView, parameters: P) -> Check | None:
        """Check a step; None where it lacks what the rule needs. Called once a step, in order."""

    def advice(self, check: Check, parameters: P) -> str | None:
        """Say what to do about a check that fires."""
        del check, parameters
        return None

    def measure(self, check: Check) -> Measure | None:
        """Say what a check's value is; None stands for the first of the rule's measures."""
        del check
        return None

    def score(self, check: Check) -> float | None:
        """Say how much a check that fires matters, 0 to 100; None leaves it to what was lost."""
        del check
        return None

    def progress(self, state: S, view: RunView, parameters: P) -> Progress | None:
        """Say how far the rule's patience is; None of a rule that has none."""
        del state, view, parameters
        return None

    def observe(self, state: S, step: StepView, parameters: P) -> None:
        """Check one complete step, and remember what it says."""
        try:
            if not parameters.covers(step.step):
                self.watch(state, step, parameters)
                return
            check = self.check(state, step, parameters)
        except USELESS as fault:
            # Not of one tensor, which a rule leaves out by itself: nothing says when the step was saved.
            state.leave_out(str(fault))
            return
        state.untimed += not step.timed
        if check is not None:
            remember(state, check, timed=step.timed)

    def at_end(self, state: S, parameters: P) -> Check | None:
        """Check a run that has ended as a whole; None where its newest check stands. The same state, the same check."""
        del state, parameters
        return None

    def judge(self, state: S, view: RunView, parameters: P) -> RuleResult:
        """Say what the steps so far mean; of a run that has ended, remember the check of the whole once."""
        if view.closed:
            whole = self.at_end(state, parameters)
            if whole is not None and whole != state.latest:
                remember(state, whole, timed=False)
        if state.latest is not None:
            return self.result(state, state.latest, view, parameters, onset=state.onset)
        status, kind, facts = _unchecked(state, view, parameters)
        progress = self.progress(state, view, parameters)
        return RuleResult.of(self._text(None, parameters), status, kind, facts, progress=progress)

    def result(self, state: S, check: Check, view: RunView, parameters: P, *, onset: float | None) -> RuleResult:
        """Return what a check means; ``onset`` is when its condition began, epoch seconds."""
        no_times = check.fires and onset is None and state.untimed
        untimed = (Fact(name=UNTIMED, value=state.untimed, unit="steps"),) if no_times else ()
        return RuleResult.of(
            self._text(check, parameters),
            Status.FIRED if check.fires else Status.OK,
            check.kind or "",
            (*map(_storable, check.facts), *untimed, *notes(state, parameters)),
            measured=_finite(check.value),
            threshold=_finite(check.threshold),
            measure=self.measure(check),
            worst=check.tensor,
            data_points=state.evaluated,
            onset=onset if check.fires else None,
            score=self.score(check) if check.fires else None,
            progress=self.progress(state, view, parameters),
        )

    def said(self, check: Check) -> str:
        """Return a check's sentences, without notes."""
        text = spec_of_rule(self).text
        if text is None:
            return check.reason
        status = Status.FIRED if check.fires else Status.OK
        return text(FactSheet(status, check.kind or "", check.facts)).reason

    def _text(self, check: Check | None, parameters: P) -> Text:
        """Return the rule's text; of one that has none, a text that says what its check says."""
        text = spec_of_rule(self).text
        if text is not None:
            return text

        def own(sheet: FactSheet) -> Words:
            del sheet
            advice = self.advice(check, parameters) if check is not None and check.fires else None
            return Words("" if check is None else check.reason, advice)

        return lambda sheet: step_words(sheet, own, rule=bare(self.name), needs=self.needs, bound=self.bound)


def notes(state: StepState, parameters: StepParameters) -> tuple[Fact, ...]:
    """Return facts about what was not used."""
    facts = []
    if state.unusable:
        facts.append(Fact(name="unusable", value=state.unusable))
        facts.append(Fact(name="unusable_why", value=str(state.unusable_why)))
    if state.left_out:
        facts.append(Fact(name="left_out", value=state.left_out))
    return (*facts, *_ignored(parameters))


def _unchecked(
    state: StepState, view: RunView, parameters: StepParameters
) -> tuple[Status, StepKind, tuple[Fact, ...]]:
    """Return why no step was checked."""
    ignored = _ignored(parameters)
    if state.unusable_why is not None:
        why = Fact(name="unusable_why", value=state.unusable_why)
        return Status.ERROR, StepKind.UNUSABLE, (why, *ignored)
    if view.steps == 0 and not view.closed:
        return Status.WARMING_UP, StepKind.NO_STEP, ignored
    found = () if view.scalars is None else (Fact(name="of_scalars", value=1), *scalar_facts(view.scalars))
    if state.waiting:
        status = Status.NOT_APPLICABLE if view.closed else Status.WARMING_UP
        held = Fact(name="waiting_steps", value=state.waiting, unit="steps")
        return status, StepKind.TOO_FEW, (held, *found, *notes(state, parameters))
    if view.scalars is not None and view.steps == 0:
        return Status.NOT_APPLICABLE, StepKind.UNREAD, ignored
    saved = Fact(name="saved_steps", value=view.steps, unit="steps")
    return Status.NOT_APPLICABLE, StepKind.NOTHING, (saved, *found, *ignored)


def remember(state: StepState, check: Check, *, timed: bool = True) -> None:
    """Count a check, and keep what people ask for: the first fire, the newest, the newest check.

    ``timed`` says that the check is of one step, which says itself when it was saved.
    """
    state.evaluated += 1
    begins = check.fires and not (state.latest is not None and state.latest.fires)
    if begins:
        state.onset = check.at if check.onset is None and timed else check.onset
        if len(state.onsets) < MOST_EPISODES:
            state.onsets.append(check.step)
    state.latest = check
    if check.fires:
        state.fired += 1
        state.firing = check
        state.first = state.first or check
        if len(state.steps) < MOST_STEPS:
            state.steps.append(check.step)


def _ignored(parameters: StepParameters) -> tuple[Fact, ...]:
    return tuple(Fact(name="ignored_parameter", value=name) for name in parameters.ignored[:MOST_NAMES])


def _storable(fact: Fact) -> Fact:
    """Return a fact that JSON can hold: a value that is not finite as a text, for example ``nan``."""
    if isinstance(fact.value, float) and not math.isfinite(fact.value):
        return msgspec.structs.replace(fact, value=str(fact.value))
    return fact


def _finite(value: float | None) -> float | None:
    """Return a number that a table and JSON can hold; None of one that is not finite."""
    return value if value is not None and math.isfinite(value) else None
