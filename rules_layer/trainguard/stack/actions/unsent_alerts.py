"""Which alerts did not reach each channel of people: by executions that failed, and by brakes that silenced them.

The mark of a channel decides, where there is one: an alert that mail took and chat did not is unsent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from trainguard.core.canary_name import is_canary
from trainguard.core.errors import StateCodecError
from trainguard.core.ports import ExecutionRecord, ExecutionRecords
from trainguard.core.records import AlertKind, RuleRow, StopRecord
from trainguard.core.stores import RuleStates
from trainguard.stack.actions.alert import Routing, route
from trainguard.stack.actions.marks import AlertMark, AlertMarks
from trainguard.stack.actions.request import AlertRequest, FireInput, StopDecision, StopResult

# Error of an execution in which steps failed, and that has sent its alert or had none to send.
STEP_FAILED = "TrainGuard.StepFailed"

NAME_LIMIT = 80

_STOP, _GRACE = "stop", "grace"
_UNRECORDED = "unrecorded"


def resend_name(origin: str, attempt: int) -> str:
    """Return the name of the execution that sends the alert of ``origin``, at its ``attempt`` from 1."""
    return f"resend-{attempt}-{origin}"[:NAME_LIMIT]


def recorded_outcome(fire: FireInput, row: RuleRow | None) -> tuple[StopDecision, StopResult]:
    """Return the decision on a fire's stop and its result from the rule's row; unknown where it is of another fire."""
    if fire.entry.kind is not AlertKind.FIRE:
        return StopDecision(), StopResult()
    record = None if row is None else row.stop
    if record is None or record.fire_id != fire.fire_id:
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
    """An alert that no execution has sent; ``last`` tried, ``under_way`` it may send it yet, else ``attempt``.

    ``mark`` has the channels that took it, and the brake that silenced it.
    """

    origin: str
    request: AlertRequest
    payload: Mapping[str, object]
    last: ExecutionRecord
    attempt: int
    under_way: bool
    routing: Routing
    mark: AlertMark

    @property
    def resend(self) -> tuple[str, dict[str, object]]:
        outcome = {
            "decision": msgspec.to_builtins(self.request.decision),
            "stop": msgspec.to_builtins(self.request.stop),
        }
        resend = {"of": self.origin, "attempt": self.attempt, **outcome}
        return resend_name(self.origin, self.attempt), {**self.payload, "resend": resend}


def unsent_alerts(
    records: ExecutionRecords, rows: RuleStates, marks: AlertMarks, *, since: float, now: float, job: str | None = None
) -> Iterator[UnsentAlert]:
    """Yield alerts of ``since``, epoch seconds, or later that did not reach people, of one ``job`` or of all."""
    seen: set[str] = set()
    for record in _candidates(records, marks, since):
        origin = _origin(record)
        if origin in seen:
            continue
        seen.add(origin)
        first = record if origin == record.name else records.find(origin)
        found = None if first is None else _unsent(first, records, rows, marks, now=now, job=job)
        if found is not None:
            yield found


def _candidates(records: ExecutionRecords, marks: AlertMarks, since: float) -> Iterator[ExecutionRecord]:
    yield from records.unsuccessful(since)
    for mark in marks.silenced():
        is_due = mark.silenced_at is not None and mark.silenced_at >= since and not mark.reached_people
        found = records.find(mark.execution) if is_due and mark.execution is not None else None
        if found is not None:
            yield found


def _unsent(
    first: ExecutionRecord,
    records: ExecutionRecords,
    rows: RuleStates,
    marks: AlertMarks,
    *,
    now: float,
    job: str | None,
) -> UnsentAlert | None:
    fire = _fire(first)
    if fire is None or is_canary(fire.job, fire.job_arn, fire.canary) or job not in {None, fire.job}:
        return None
    mark = marks.mark(fire.own_id)
    if is_sent(first, mark):
        return None
    decision, stop = recorded_outcome(fire, _row(fire, rows))
    request = AlertRequest(fire=fire, decision=decision, stop=stop)
    routing = route(request, now=now)
    last, attempt = _newest(first, records)
    if routing.withheld is not None or is_sent(last, mark):
        return None
    running = last.status not in _UNSUCCESSFUL and not has_sent(last)
    return UnsentAlert(first.name, request, first.payload, last, attempt, running, routing, mark)


def _row(fire: FireInput, rows: RuleStates) -> RuleRow | None:
    """Return the row of the fire's job and rule; None where it cannot be read."""
    if not fire.entry.kind.is_of_rule:
        return None
    try:
        return rows.load(fire.job, fire.rule)
    except StateCodecError:
        return None


def _origin(record: ExecutionRecord) -> str:
    """Return the name of the execution whose alert a record is about: another one's, if it was started on request."""
    fire = _fire(record)
    return record.name if fire is None or fire.resend is None else fire.resend.of


def _fire(record: ExecutionRecord) -> FireInput | None:
    """Return the fire of an execution; None where a person has started one of something else."""
    try:
        return FireInput.read(record.payload)
    except msgspec.ValidationError:
        return None


def is_sent(record: ExecutionRecord, mark: AlertMark) -> bool:
    """Whether an alert reached people, or was not meant to: one that a brake silenced has marks alone to show it."""
    return mark.reached_people or (mark.silenced is None and has_sent(record))


def has_sent(record: ExecutionRecord) -> bool:
    """Whether an execution has sent its alert, or had none to send: it ends in another error where it could not."""
    return record.status == _DONE or record.error == STEP_FAILED


def _newest(first: ExecutionRecord, records: ExecutionRecords) -> tuple[ExecutionRecord, int]:
    """Return the newest execution that has tried to send the alert of ``first``, and which attempt would be next."""
    last, attempt = first, 1
    while (made := records.find(resend_name(first.name, attempt))) is not None:
        last, attempt = made, attempt + 1
    return last, attempt
