"""Which alerts were not sent, by the executions that should have sent them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from trainguard.actions.request import AlertInput, AlertRequest
from trainguard.actions.resend import STEP_FAILED, recorded_outcome, resend_name, resend_payload
from trainguard.actions.routing import Routing, route
from trainguard.canary_name import is_canary
from trainguard.errors import StateCodecError
from trainguard.ports import ExecutionRecord, ExecutionRecords
from trainguard.records import AlertKind, RuleRow
from trainguard.stores import RuleStates

_DONE = "SUCCEEDED"
_UNSUCCESSFUL = frozenset({"FAILED", "TIMED_OUT", "ABORTED"})


@dataclass(frozen=True, slots=True)
class UnsentAlert:
    """An alert that no execution has sent so far.

    Attributes
    ----------
    request : AlertRequest
        What the alert is made of when it is sent now.
    payload : mapping
        Input of the execution that should have sent it.
    last : ExecutionRecord
        The newest execution that tried.
    attempt : int
        Which attempt on request comes next, from 1.
    under_way : bool
        Whether the newest one still runs: it may yet send it.
    routing : Routing
        Until when it would wait if it were sent now.
    """

    origin: str
    request: AlertRequest
    payload: Mapping[str, object]
    last: ExecutionRecord
    attempt: int
    under_way: bool
    routing: Routing

    @property
    def resend(self) -> tuple[str, dict[str, object]]:
        """Name and input of the execution that sends it."""
        payload = resend_payload(
            self.payload,
            origin=self.origin,
            attempt=self.attempt,
            decision=self.request.decision,
            stop=self.request.stop,
        )
        return resend_name(self.origin, self.attempt), payload


def unsent_alerts(
    records: ExecutionRecords, rows: RuleStates, *, since: float, now: float, job: str | None = None
) -> Iterator[UnsentAlert]:
    """Find the alerts that executions which ended at ``since`` or later could not send.

    What would be withheld, as of a staged or muted rule, is not among them, nor are a canary's alerts.

    Parameters
    ----------
    records : ExecutionRecords
        Those of the fire machine.
    rows : RuleStates
        Where it writes what came of a fire.
    since, now : float
        Epoch seconds.
    job : str, optional
        A training job's name; by default all jobs.
    """
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
    if _says_sent(fire, row):
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
    """Return the row of the fire's job and rule; one that cannot be read says nothing about the fire."""
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
    """Return what an execution handles; None where a person has started one of something else."""
    try:
        return AlertInput.read(record.payload)
    except msgspec.ValidationError:
        return None


def has_sent(record: ExecutionRecord) -> bool:
    """Whether an execution has sent its alert, or had none to send: it ends in another error where it could not."""
    return record.status == _DONE or record.error == STEP_FAILED


def _says_sent(fire: AlertInput, row: RuleRow | None) -> bool:
    if row is None or fire.entry.kind is not AlertKind.FIRE:
        return False
    return row.fire_id == fire.entry.fire_id and row.alert_id is not None


def _newest(first: ExecutionRecord, records: ExecutionRecords) -> tuple[ExecutionRecord, int]:
    """Return the newest execution that has tried to send the alert of ``first``, and which attempt would be next."""
    last, attempt = first, 1
    while (made := records.find(resend_name(first.name, attempt))) is not None:
        last, attempt = made, attempt + 1
    return last, attempt
