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
from trainguard.records import Status
from trainguard.rules.family_rules import bare
from trainguard.rules.protocol import NonNegativeInt, Rule, RuleParameters
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.training.scalar_advice import FoundScalars, scalar_needs
from trainguard.rules.units import counted
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

    ``reason`` is one sentence with the step's own numbers. ``tensor``, ``value`` and ``threshold`` are those of the
    tensor that is furthest over its threshold; None where the condition has none, or the value is not finite. ``kind``
    says which of the rule's conditions it is about, of a rule that has several.
    """

    step: int
    at: float
    fires: bool
    reason: str
    tensor: str | None = None
    value: float | None = None
    threshold: float | None = None
    kind: str | None = None


class StepState(msgspec.Struct, kw_only=True):
    """What every rule over steps remembers; a rule with a state of its own derives from it.

    ``evaluated`` counts steps that could be checked, ``fired`` those that fired, ``first`` is the first of them, and
    ``steps`` the first hundred; ``onsets`` are those after a check that did not fire, 32 at most. ``latest`` is the
    newest check, ``firing`` the newest that fired. ``waiting`` counts steps that hold what the rule checks, and that it
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
    waiting: int = 0
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
    bound: ClassVar[tuple[str, str]] = ("value", "of further tensors")

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
        if check is not None:
            remember(state, check)

    def at_end(self, state: S, parameters: P) -> Check | None:
        """Check a run that has ended as a whole; None where its newest check stands. The same state, the same check."""
        del state, parameters
        return None

    def judge(self, state: S, view: RunView, parameters: P) -> RuleResult:
        """Say what the steps so far mean; of a run that has ended, remember the check of the whole once."""
        if view.closed:
            whole = self.at_end(state, parameters)
            if whole is not None and whole != state.latest:
                remember(state, whole)
        latest = state.latest
        if latest is None:
            return self._unchecked(state, view, parameters)
        return RuleResult(
            Status.FIRED if latest.fires else Status.OK,
            latest.reason + self.notes(state, parameters),
            measured=_finite(latest.value),
            threshold=_finite(latest.threshold),
            measure=self.measure(latest),
            worst=latest.tensor,
            data_points=state.evaluated,
            advice=self.advice(latest, parameters) if latest.fires else None,
            onset=latest.at if latest.fires and state.fired == 1 else None,
        )

    def notes(self, state: S, parameters: P) -> str:
        """Return sentences about what was not used, each after a blank; empty where there is nothing to say."""
        notes = ""
        if state.unusable:
            times = "Once" if state.unusable == 1 else f"{state.unusable:,} times"
            notes += f" {times} a tensor could not be checked, {_last(state.unusable)}because {state.unusable_why}."
        if state.left_out:
            what, which = self.bound
            notes += f" Left out: {counted(state.left_out, what)} {which}."
        return notes + _ignored(parameters)

    def _unchecked(self, state: S, view: RunView, parameters: P) -> RuleResult:
        if state.unusable_why is not None:
            reason = f"No step could be checked: {state.unusable_why}."
            return RuleResult(Status.ERROR, reason + _ignored(parameters))
        if view.steps == 0 and not view.closed:
            return RuleResult(Status.WARMING_UP, "No step was saved yet." + _ignored(parameters))
        if state.waiting:
            status = Status.NOT_APPLICABLE if view.closed else Status.WARMING_UP
            held = f"{counted(state.waiting, 'saved step')} hold{'s' if state.waiting == 1 else ''}"
            reason = f"{held} what the rule checks, too few to compare. {self._what_to_do(view)}"
            return RuleResult(status, reason + self.notes(state, parameters))
        if view.scalars is not None and view.steps == 0:
            return RuleResult(
                Status.NOT_APPLICABLE, "No step of the files of scalars could be read." + _ignored(parameters)
            )
        seen = f"{counted(view.steps, 'saved step')} hold{'s' if view.steps == 1 else ''}"
        reason = f"None of {seen} what the rule checks. {self._what_to_do(view)}"
        return RuleResult(Status.NOT_APPLICABLE, reason + _ignored(parameters))

    def _what_to_do(self, view: RunView) -> str:
        if view.scalars is None:
            return self.needs
        return scalar_needs(bare(self.name), self.needs, view.scalars)


def remember(state: StepState, check: Check) -> None:
    """Count a check, and keep what people ask for: the first fire, the newest, the newest check."""
    state.evaluated += 1
    begins = check.fires and not (state.latest is not None and state.latest.fires)
    if begins and len(state.onsets) < MOST_EPISODES:
        state.onsets.append(check.step)
    state.latest = check
    if check.fires:
        state.fired += 1
        state.firing = check
        state.first = state.first or check
        if len(state.steps) < MOST_STEPS:
            state.steps.append(check.step)


def _last(times: int) -> str:
    return "" if times == 1 else "the last time "


def _ignored(parameters: StepParameters) -> str:
    if not parameters.ignored:
        return ""
    one = len(parameters.ignored) == 1
    names = ", ".join(parameters.ignored)
    return f" {'Parameter' if one else 'Parameters'} {names} {'is' if one else 'are'} unknown and not used."


def _finite(value: float | None) -> float | None:
    """Return a number that a table and JSON can hold; None of one that is not finite."""
    return value if value is not None and math.isfinite(value) else None
