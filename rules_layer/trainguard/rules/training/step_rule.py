"""The protocol of rules over training steps: complete steps in order, and a bounded state; one goes on after a fire."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from trainguard.core.errors import (
    RuleConfigError,
    TelemetryFormatError,
    TensorMissingError,
    TensorTooLargeError,
    TensorUnusableError,
)
from trainguard.core.finding import UNTIMED, Fact, Patience
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.protocol import NonNegativeInt, Rule, RuleParameters
from trainguard.rules.rule_result import FactSheet, Measure, RuleResult
from trainguard.rules.training.selection import check_pattern, selected
from trainguard.rules.training.step_words import MOST_NAMES, FoundScalars, StepKind, scalar_facts

MOST_STEPS, MOST_EPISODES = 100, 32
# Why a tensor cannot be used; anything else is a fault of the program.
USELESS = (TensorMissingError, TensorTooLargeError, TensorUnusableError, TelemetryFormatError)


class StepParameters(RuleParameters, frozen=True, kw_only=True):
    """What every rule over steps takes: global steps, the end exclusive.

    Who runs such a rule elsewhere passes more than its parameters: those are accepted and not used. An unknown
    name is not used either; ``ignored`` has these settings as written, and every judgement says so.
    """

    ignores_unknown: ClassVar[bool] = True
    accepted: ClassVar[re.Pattern[str]] = re.compile(
        "base_trial|other_trials?(_[0-9]+)?|action_json|rule_to_invoke|source_s3_uri"
    )
    start_step: NonNegativeInt | None = None
    end_step: NonNegativeInt | None = None
    ignored: tuple[str, ...] = ()

    @classmethod
    def settable(cls) -> frozenset[str]:
        return super().settable() - {"ignored"}

    def __post_init__(self) -> None:
        """Refuse patterns that are no regular expressions, or could take too long: evaluators serve other jobs, too."""
        for field in (name for name in self.__struct_fields__ if name.endswith("regex")):
            given = getattr(self, field)
            for pattern in (given,) if isinstance(given, str) else given or ():
                check_pattern(self.rule_name, field, pattern)

    @property
    def rule_name(self) -> str:
        return type(self).__name__.removesuffix("Parameters")

    def fault(self, field: str, value: object, expected: str) -> RuleConfigError:
        return RuleConfigError(self.rule_name, f"{self.rule_name}_{field}", value, expected)

    def covers(self, step: int) -> bool:
        return (self.start_step is None or step >= self.start_step) and (self.end_step is None or step < self.end_step)

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name != "ignored"}


class SelectingParameters(StepParameters, frozen=True, kw_only=True):
    """Collections and patterns as in the managed service; ``required`` says that one of them must be given."""

    required: ClassVar[bool] = False

    collection_names: tuple[str, ...] | None = None
    tensor_regex: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.required and not self.selects:
            raise self.fault("collection_names", None, f"collections, or patterns as {self.rule_name}_tensor_regex")

    @property
    def selects(self) -> bool:
        return bool(self.collection_names or self.tensor_regex)

    def tensors(self, step: StepView) -> tuple[str, ...]:
        return selected(step, self.collection_names, self.tensor_regex)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check of one step.

    ``tensor``, ``value`` and ``threshold`` are of the tensor furthest over its threshold; None where there is none, or
    the value is not finite. ``onset`` is in epoch seconds; None takes the first step that fires.
    """

    step: int
    at: float
    fires: bool
    # Always empty: the stored form keeps it.
    reason: str = ""

    tensor: str | None = None
    value: float | None = None
    threshold: float | None = None
    kind: str | None = None
    facts: tuple[Fact, ...] = ()
    onset: float | None = None


class StepState(msgspec.Struct, kw_only=True):
    """The state of every rule over steps; a rule with its own state derives from it.

    ``evaluated`` and ``fired`` count checked steps; ``steps`` are the first hundred that fired, ``onsets`` those after
    a check that did not, 32 at most. ``latest`` is the newest check, ``firing`` the newest that fired; ``onset`` is in
    epoch seconds, None without times. ``untimed`` counts steps without a time, ``waiting`` those that nothing earlier
    compares with, ``unusable`` tensors that could not be used, and ``left_out`` what a bounded state did not take.
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
    """A rule's view of a run; ``scalars`` are those found in files of scalars, None of a run that has tensors."""

    steps: int
    closed: bool = False
    scalars: FoundScalars | None = None


P = TypeVar("P", bound=StepParameters)
S = TypeVar("S", bound=StepState)


class StepRule(Rule[P], Generic[P, S]):
    """A rule over the complete steps of one run; `step_spec` makes its spec."""

    state_type: type[S]

    # Whether it runs where nobody chose rules.
    by_default: ClassVar[bool] = False

    # The first step that is checked and does not fire ends an episode.
    clear_s = 0.0

    # Kinds of a check that does not tell, or not yet, what the rule asks.
    undecided: ClassVar[frozenset[str]] = frozenset()

    # By kind, what a check's value is; of any other kind the first of the rule's measures.
    measures_by_kind: ClassVar[Mapping[str, Measure]] = {}

    def watch(self, state: S, step: StepView, parameters: P) -> None:
        """Take note of a step that is not to be checked, of a rule whose reference may lie before ``start_step``."""

    @abstractmethod
    def check(self, state: S, step: StepView, parameters: P) -> Check | None:
        """Check a step; None where it lacks what the rule needs. Called once a step, in order."""

    def score(self, check: Check) -> float | None:
        """Say how much a check that fires matters, 0 to 100; None leaves it to what was lost."""
        return None

    def progress(self, state: S, view: RunView, parameters: P) -> Patience | None:
        """Say how far the rule's patience is; None of a rule that has none."""
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
        return None

    def judge(self, state: S, view: RunView, parameters: P) -> RuleResult:
        """Say what the steps so far mean; of a run that has ended, remember the check of the whole once."""
        if view.closed:
            whole = self.at_end(state, parameters)
            if whole is not None and whole != state.latest:
                remember(state, whole, timed=False)
        if state.latest is not None:
            return self.result(state, state.latest, view, parameters, onset=state.onset)
        progress = self.progress(state, view, parameters)
        status, kind, facts = _unchecked(state, view, parameters, progress)
        return RuleResult.of(self.text, status, kind, facts, progress=progress)

    def result(self, state: S, check: Check, view: RunView, parameters: P, *, onset: float | None) -> RuleResult:
        """Return what a check means; ``onset`` is when its condition began, epoch seconds."""
        no_times = check.fires and onset is None and state.untimed
        untimed = (Fact(name=UNTIMED, value=state.untimed, unit="steps"),) if no_times else ()
        return RuleResult.of(
            self.text,
            self._status_of(check, view),
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

    def _status_of(self, check: Check, view: RunView) -> Status:
        if check.fires or check.kind not in self.undecided:
            return Status.FIRED if check.fires else Status.OK
        return Status.NOT_APPLICABLE if view.closed else Status.WARMING_UP

    def measure(self, check: Check) -> Measure | None:
        """Return what a check's value is; None, of a rule that measures one thing, is that."""
        by_kind = self.measures_by_kind
        return by_kind.get(check.kind or "", self.spec.measures[0]) if by_kind else None

    def said(self, check: Check) -> str:
        """Return a check's sentences, without notes."""
        status = Status.FIRED if check.fires else Status.OK
        return self.text(FactSheet(status, check.kind or "", check.facts)).reason


def notes(state: StepState, parameters: StepParameters) -> tuple[Fact, ...]:
    facts = []
    if state.unusable:
        facts.append(Fact(name="unusable", value=state.unusable))
        facts.append(Fact(name="unusable_why", value=str(state.unusable_why)))
    if state.left_out:
        facts.append(Fact(name="left_out", value=state.left_out))
    return (*facts, *_ignored(parameters))


def _unchecked(
    state: StepState, view: RunView, parameters: StepParameters, progress: Patience | None
) -> tuple[Status, StepKind, tuple[Fact, ...]]:
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
        return status, StepKind.TOO_FEW, (held, *_values(progress), *found, *notes(state, parameters))
    if view.scalars is not None and view.steps == 0:
        return Status.NOT_APPLICABLE, StepKind.UNREAD, ignored
    saved = Fact(name="saved_steps", value=view.steps, unit="steps")
    return Status.NOT_APPLICABLE, StepKind.NOTHING, (saved, *found, *ignored)


def _values(progress: Patience | None) -> tuple[Fact, ...]:
    """Return how many values a rule has that it can use, and how many it needs; none of one that counts otherwise."""
    if progress is None or progress.counts != "values" or progress.seen >= progress.needed:
        return ()
    return Fact(name="values_seen", value=progress.seen), Fact(name="values_needed", value=progress.needed)


def remember(state: StepState, check: Check, *, timed: bool = True) -> None:
    """Count a check, and keep the first fire and the newest; ``timed`` checks are of one step with a time."""
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
