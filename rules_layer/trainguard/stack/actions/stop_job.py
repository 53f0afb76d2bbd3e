"""Carries out a decision on a stop, recorded before the call and looked up after an error; a repeat makes none."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.fire_row import FireRows
from trainguard.stack.actions.request import FireInput, StopResult
from trainguard.stack.actions.stop_resources import ResourceDecision

UNRECORDED = "RuleState could not be written with the decision, so nothing was stopped"
OVERTAKEN = "the rule's row is gone, or of another fire by now, so nothing was stopped"


class StopCalls(Protocol):
    """The services that stop what a job runs on; both methods raise PortUnavailableError."""

    def stop(self, fire: FireInput, decision: ResourceDecision) -> StopResult:
        """Stop the training job, or the resources that the decision names; pending where an agent is to do it."""

    def is_stopped(self, fire: FireInput, decision: ResourceDecision) -> bool:
        """Whether all of it stops or is stopped."""


class StopCall(msgspec.Struct, frozen=True):
    """A fire, and the decision on its stop."""

    fire: FireInput
    decision: ResourceDecision


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """The final decision, its result, and errors on the way."""

    decision: ResourceDecision
    stop: StopResult
    faults: tuple[str, ...] = ()


def carry_out(
    fire: FireInput, decision: ResourceDecision, rows: FireRows, calls: StopCalls, *, now: float
) -> StopOutcome:
    """Stop the job if so decided, and record decision and outcome; ``now`` in epoch seconds."""
    outcome = StopOutcome(decision, StopResult())
    if decision.stop:
        called = _recorded_and_made(fire, decision, rows, calls, now=now)
        if called is None:
            return StopOutcome(decision, StopResult(made=True))
        outcome = called
    if outcome.stop.pending:
        return outcome
    try:
        rows.record_stop(fire, outcome.decision, made=outcome.stop.made, now=now)
    except PortUnavailableError as fault:
        return StopOutcome(outcome.decision, outcome.stop, (*outcome.faults, f"RecordStop: {fault}"))
    return outcome


def _recorded_and_made(
    fire: FireInput, decision: ResourceDecision, rows: FireRows, calls: StopCalls, *, now: float
) -> StopOutcome | None:
    """Record the decision and stop; None where the row says that this very stop was made before."""
    try:
        recorded = rows.record_decision(fire, decision, now=now)
    except PortUnavailableError as fault:
        return StopOutcome(_refused(UNRECORDED), StopResult(), (f"RecordDecision: {fault}",))
    if recorded == "made before":
        return None
    if recorded == "overtaken":
        return StopOutcome(_refused(OVERTAKEN), StopResult())
    try:
        return StopOutcome(decision, calls.stop(fire, decision))
    except PortUnavailableError as fault:
        return _looked_up(fire, decision, calls, str(fault))


def _looked_up(fire: FireInput, decision: ResourceDecision, calls: StopCalls, error: str) -> StopOutcome:
    """Ask after an error whether all is stopped, for the answer of a call can be lost."""
    try:
        if calls.is_stopped(fire, decision):
            return StopOutcome(decision, StopResult(made=True))
    except PortUnavailableError as fault:
        unknown = f"{error}; and whether it was stopped could not be asked: {fault}"
        return StopOutcome(decision, StopResult(made=None, error=unknown), (f"StopJob: {unknown}",))
    return StopOutcome(decision, StopResult(made=False, error=error), (f"StopJob: {error}",))


def _refused(why: str) -> ResourceDecision:
    return ResourceDecision(decision="refused", why=why, opted_in=True)
