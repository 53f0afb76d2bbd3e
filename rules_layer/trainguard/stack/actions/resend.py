"""Alerts that were not sent, and the execution, named after the first, that sends one later and makes no stop."""

from collections.abc import Mapping

import msgspec

from trainguard.core.records import AlertKind, RuleRow, StopRecord
from trainguard.stack.actions.request import AlertInput, StopDecision, StopResult

STEP_FAILED = "TrainGuard.StepFailed"
"""Error of an execution in which steps failed, and that has sent its alert or had none to send."""

NAME_LIMIT = 80

_STOP, _GRACE = "stop", "grace"
_UNRECORDED = "unrecorded"


def resend_name(origin: str, attempt: int) -> str:
    """Return the name of the execution that sends the alert of ``origin``, at its ``attempt`` from 1."""
    return f"resend-{attempt}-{origin}"[:NAME_LIMIT]


def resend_payload(
    payload: Mapping[str, object], *, origin: str, attempt: int, decision: StopDecision, stop: StopResult
) -> dict[str, object]:
    """Return the input of that execution; ``payload`` is that of ``origin``."""
    outcome = {
        "decision": msgspec.to_builtins(decision),
        "stop": {"made": stop.made, "error": stop.error},
    }
    return {**payload, "resend": {"of": origin, "attempt": attempt, **outcome}}


def recorded_outcome(fire: AlertInput, row: RuleRow | None) -> tuple[StopDecision, StopResult]:
    """Return the decision on a fire's stop and its result from the rule's row; unknown where it is of another fire."""
    if fire.entry.kind is not AlertKind.FIRE:
        return StopDecision(), StopResult()
    record = None if row is None else row.stop
    if record is None or record.fire_id != fire.entry.fire_id:
        unknown = "the rule's row does not say what was decided for this fire"
        return StopDecision(decision=_UNRECORDED, why=unknown), StopResult(made=None, error=unknown)
    return _decision(record), _result(record)


def _decision(record: StopRecord) -> StopDecision:
    if record.decision == _GRACE:
        ended = "the execution ended before the grace time did"
        return StopDecision(decision="refused", why=ended, opted_in=True)
    return StopDecision(stop=record.decision == _STOP, decision=record.decision, why=record.why)


def _result(record: StopRecord) -> StopResult:
    if record.decision != _STOP or record.made:
        return StopResult(made=bool(record.made))
    if record.made is None:
        return StopResult(made=None, error="the call was decided on, and its outcome was not recorded")
    return StopResult(made=False, error="StopTrainingJob failed; the first execution of this fire has its error")
