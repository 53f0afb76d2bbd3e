"""What a rule over training steps is: it checks one complete step after another and remembers a bounded state.

After its first fire a rule goes on. It holds while the newest step that it could check fires.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import msgspec

from trainguard.records import Status
from trainguard.rules.protocol import NonNegativeInt, Rule, RuleParameters
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted
from trainguard.tensors.step_view import StepView

MOST_STEPS = 100
"""How many firing steps a state names; further ones are counted."""


class StepParameters(RuleParameters, frozen=True, kw_only=True):
    """What every rule over steps takes: global steps, the end exclusive; ``base_trial`` is accepted and not used."""

    start_step: NonNegativeInt | None = None
    end_step: NonNegativeInt | None = None
    base_trial: str | None = None

    def covers(self, step: int) -> bool:
        """Whether a global step lies in the range."""
        return (self.start_step is None or step >= self.start_step) and (self.end_step is None or step < self.end_step)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one step says.

    ``reason`` is one sentence with the step's own numbers. ``tensor``, ``value`` and ``threshold`` are those of the
    tensor that is furthest over its threshold; None where the condition has none.
    """

    step: int
    at: float
    fires: bool
    reason: str
    tensor: str | None = None
    value: float | None = None
    threshold: float | None = None


class StepState(msgspec.Struct, kw_only=True):
    """What every rule over steps remembers; a rule with a state of its own derives from it.

    ``evaluated`` counts steps that could be checked, ``fired`` those that fired, ``first`` is the first of them, and
    ``steps`` the first hundred. ``latest`` is the newest check, ``firing`` the newest that fired. ``unusable`` counts
    tensors that could not be used, ``unusable_why`` says why the last one could not.
    """

    evaluated: int = 0
    fired: int = 0
    first: Check | None = None
    firing: Check | None = None
    latest: Check | None = None
    steps: list[int] = msgspec.field(default_factory=list)
    unusable: int = 0
    unusable_why: str | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """What a rule is judged with: how many steps the run has saved, and whether it has ended."""

    steps: int
    closed: bool = False


P = TypeVar("P", bound=StepParameters)
S = TypeVar("S", bound=StepState)


class StepRule(Rule[P], Generic[P, S]):
    """A rule over the complete steps of one run.

    ``needs`` says in words which tensors it checks and how to record them, for runs that hold none.
    """

    state_type: type[S]
    needs: ClassVar[str]

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

    def observe(self, state: S, step: StepView, parameters: P) -> None:
        """Check one complete step, and remember what it says."""
        if not parameters.covers(step.step):
            self.watch(state, step, parameters)
            return
        check = self.check(state, step, parameters)
        if check is None:
            return
        state.evaluated += 1
        state.latest = check
        if check.fires:
            state.fired += 1
            state.firing = check
            state.first = state.first or check
            if len(state.steps) < MOST_STEPS:
                state.steps.append(check.step)

    def judge(self, state: S, view: RunView, parameters: P) -> RuleResult:
        """Say what the steps so far mean."""
        latest = state.latest
        if latest is None:
            return self._unchecked(state, view)
        return RuleResult(
            Status.FIRED if latest.fires else Status.OK,
            latest.reason,
            measured=_finite(latest.value),
            threshold=_finite(latest.threshold),
            worst=latest.tensor,
            data_points=state.evaluated,
            advice=self.advice(latest, parameters) if latest.fires else None,
            onset=latest.at if latest.fires and state.fired == 1 else None,
        )

    def _unchecked(self, state: S, view: RunView) -> RuleResult:
        if state.unusable_why is not None:
            return RuleResult(Status.ERROR, f"No step could be checked: {state.unusable_why}.")
        if view.steps == 0 and not view.closed:
            return RuleResult(Status.WARMING_UP, "No step was saved yet.")
        seen = f"{counted(view.steps, 'saved step')} hold{'s' if view.steps == 1 else ''}"
        return RuleResult(Status.NOT_APPLICABLE, f"None of {seen} what the rule checks. {self.needs}")


def _finite(value: float | None) -> float | None:
    """Return a number that a table and JSON can hold; None of one that is not finite."""
    return value if value is not None and math.isfinite(value) else None
