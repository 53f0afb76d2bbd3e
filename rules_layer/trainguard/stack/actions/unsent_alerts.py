"""Which alerts were not sent, by the executions that should have sent them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from trainguard.core.canary_name import is_canary
from trainguard.core.errors import StateCodecError
from trainguard.core.ports import ExecutionRecord, ExecutionRecords
from trainguard.core.records import AlertKind, RuleRow, StopRecord
from trainguard.core.stores import RuleStates
from trainguard.stack.actions.request import AlertInput, AlertRequest, StopDecision, StopResult
from trainguard.stack.actions.routing import Routing, route

STEP_FAILED = "TrainGuard.StepFailed"
"""Error of an execution in which steps failed, and that has sent its alert or had none to send."""

NAME_LIMIT = 80

_STOP, _GRACE = "stop", "grace"
_UNRECORDED = "unrecorded"


def resend_name(origin: str, attempt: int) -> str:
    """Return the name of the execution that sends the alert of ``origin``, at its ``attempt`` from 1."""
    return f"resend-{attempt}-{origin}"[:NAME_LIMIT]


def recorded_outcome(fire: AlertInput, row: RuleRow | None) -> tuple[StopDecision, StopResult]:
    """Return the decision on a fire's stop and its result from the rule's row; unknown where it is of another fire."""
    if fire.entry.kind is not AlertKind.FIRE:
        return StopDecision(), StopResult()
    record = None if row is None else row.stop
    if record is None or record.fire_id != fire.entry.fire_id:
        unknown = "the rule's row does not say what was decided for this fire"
        return StopDecision(decision=_UNRECORDED, why=unknown), StopResult(made=None, error=unknown)
    if record.decision == _GRACE:
        ended = "the execution ended before the grace time did"
        return StopDecision(decision="refused", why=ended, opted_in=True), _result(record)
    return StopDecision(stop=record.decision == _STOP, decision=record.decision, why=record.why), _result(record)


def _result(record: StopRecord) -> StopResult:
    if record.decision != _STOP or record.made:
        return StopResult(made=bool(record.made))
    if record.made is None:
        return StopResult(made=None, error="the call was decided on, and its outcome was not recorded")
    return StopResult(made=False, error="StopTrainingJob failed; the first execution of this fire has its error")


_DONE = "SUCCEEDED"
_UNSUCCESSFUL = frozenset({"FAILED", "TIMED_OUT", "ABORTED"})


@dataclass(frozen=True, slots=True)
class UnsentAlert:
    """An alert that no execution has sent; ``last`` tried, ``under_way`` it may send it yet, else ``attempt``."""

    origin: str
    request: AlertRequest
    payload: Mapping[str, object]
    last: ExecutionRecord
    attempt: int
    under_way: bool
    routing: Routing

    @property
    def resend(self) -> tuple[str, dict[str, object]]:
        outcome = {
            "decision": msgspec.to_builtins(self.request.decision),
            "stop": msgspec.to_builtins(self.request.stop),
        }
        resend = {"of": self.origin, "attempt": self.attempt, **outcome}
        return resend_name(self.origin, self.attempt), {**self.payload, "resend": resend}


def unsent_alerts(
    records: ExecutionRecords, rows: RuleStates, *, since: float, now: float, job: str | None = None
) -> Iterator[UnsentAlert]:
    """Yield alerts that executions ended since ``since``, epoch seconds, could not send, of one ``job`` or of all."""
    seen: set[str] = set()
    for record in records.unsuccessful(since):
        origin = _origin(record)
        if origin in seen:
            continue
        seen.add(origin)
        first = record if origin == record.name else records.find(origin)
        found = None if first is None else _unsent(first, records, rows, now=now, job=job)
        if found is not None:
            yield found


def _unsent(
    first: ExecutionRecord, records: ExecutionRecords, rows: RuleStates, *, now: float, job: str | None
) -> UnsentAlert | None:
    fire = _fire(first)
    if fire is None or is_canary(fire.job, fire.job_arn) or job not in {None, fire.job} or has_sent(first):
        return None
    row = _row(fire, rows)
    is_own = row is not None and row.fire_id == fire.entry.fire_id and row.alert_id is not None
    if is_own and fire.entry.kind is AlertKind.FIRE:
        return None
    decision, stop = recorded_outcome(fire, row)
    request = AlertRequest(fire=fire, decision=decision, stop=stop)
    routing = route(request, now=now)
    last, attempt = _newest(first, records)
    if routing.withheld is not None or has_sent(last):
        return None
    running = last.status not in _UNSUCCESSFUL
    return UnsentAlert(first.name, request, first.payload, last, attempt, running, routing)


def _row(fire: AlertInput, rows: RuleStates) -> RuleRow | None:
    """Return the row of the fire's job and rule; None where it cannot be read."""
    if fire.entry.kind is AlertKind.NOTICE:
        return None
    try:
        return rows.load(fire.job, fire.entry.finding.rule)
    except StateCodecError:
        return None


def _origin(record: ExecutionRecord) -> str:
    """Return the name of the execution whose alert a record is about: another one's, if it was started on request."""
    fire = _fire(record)
    return record.name if fire is None or fire.resend is None else fire.resend.of


def _fire(record: ExecutionRecord) -> AlertInput | None:
    """Return the fire of an execution; None where a person has started one of something else."""
    try:
        return AlertInput.read(record.payload)
    except msgspec.ValidationError:
        return None


def has_sent(record: ExecutionRecord) -> bool:
    """Whether an execution has sent its alert, or had none to send: it ends in another error where it could not."""
    return record.status == _DONE or record.error == STEP_FAILED


def _newest(first: ExecutionRecord, records: ExecutionRecords) -> tuple[ExecutionRecord, int]:
    """Return the newest execution that has tried to send the alert of ``first``, and which attempt would be next."""
    last, attempt = first, 1
    while (made := records.find(resend_name(first.name, attempt))) is not None:
        last, attempt = made, attempt + 1
    return last, attempt
