"""``trainguard alerts``: lists the alerts that were not sent, and has the fire machine send them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainguard.aws.stepfunctions import StepFunctionsExecutions
from trainguard.cli.output.rendering import Block, Cell, Line, Shown, TerminalColumn, table
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import iso
from trainguard.cli.services.deployment import Deployment
from trainguard.cli.services.names import unknown_job
from trainguard.core.ports import ExecutionRecord
from trainguard.core.units import counted
from trainguard.stack.actions.marks import PEOPLE, AlertMark, AlertMarks
from trainguard.stack.actions.unsent_alerts import UnsentAlert, is_sent, unsent_alerts

MACHINE_OUTPUT = "FireStateMachineArn"

_EVERY_S = 2.0
_LOOKS = 60
_WHY_LIMIT = 300

_UNSENT, _UNDER_WAY, _SENT = "unsent", "under way", "sent"
_STYLES = {_UNSENT: "bold red", _SENT: "green"}

# An alert; ``execution`` is the newest that tried to send it, ``attempts`` counts those on request before it.
AlertEntry = Mapping[str, Any]


def machine_of(deployment: Deployment) -> StepFunctionsExecutions:
    machine = deployment.output(MACHINE_OUTPUT)
    return StepFunctionsExecutions(client=deployment.clients.stepfunctions, state_machine_arn=machine)


def find(deployment: Deployment, job: str | None, since: float, now: float) -> Sequence[UnsentAlert]:
    """Return the alerts, the oldest finding first; raises for an unknown job."""
    stores = deployment.stores
    found = list(unsent_alerts(machine_of(deployment), stores.rows, stores.alerts, since=since, now=now, job=job))
    if not found and job is not None and stores.jobs.load(job) is None:
        raise unknown_job(job, stores.jobs)
    return sorted(found, key=lambda alert: alert.request.fire.fired_at)


def send_all(found: Sequence[UnsentAlert], machine: StepFunctionsExecutions, marks: AlertMarks) -> Sequence[AlertEntry]:
    """Start an execution for each alert, then wait for those that send at once."""
    names = {}
    for alert in found:
        name, payload = alert.resend
        if not alert.under_way:
            machine.start(name, payload)
        names[alert.origin] = alert.last.name if alert.under_way else name
    ended: dict[str, ExecutionRecord] = {}
    for _ in range(_LOOKS):
        waited = [alert for alert in found if alert.origin not in ended and alert.routing.wait_until is None]
        if not waited:
            break
        time.sleep(_EVERY_S)
        for alert in waited:
            record = machine.find(names[alert.origin])
            if record is not None and record.ended_at is not None:
                ended[alert.origin] = record
    return [
        _entry(alert, names[alert.origin], ended.get(alert.origin), marks.mark(alert.request.fire.own_id))
        for alert in found
    ]


def listed(alert: UnsentAlert) -> AlertEntry:
    return _entry(alert, alert.last.name, None if alert.under_way else alert.last, alert.mark)


def _entry(alert: UnsentAlert, execution: str, last: ExecutionRecord | None, mark: AlertMark) -> AlertEntry:
    """Return an alert as it stands; ``last`` is the end of the ``execution`` that sends it, None until then."""
    fire = alert.request.fire
    state = _UNDER_WAY if last is None else _SENT if is_sent(last, mark) else _UNSENT
    why = None
    if last is not None and state == _UNSENT:
        why = f"{last.error}: {last.cause}" if last.error else f"the execution is {last.status}"
        why = why if mark.silenced is None else f"silenced by {mark.silenced}"
    return {
        "alert_id": fire.own_id,
        "kind": fire.entry.kind.value,
        "job": fire.job,
        "rule": fire.entry.finding.rule,
        "fired_at": fire.fired_at,
        "state": state,
        "why": why and why[:_WHY_LIMIT],
        "channels": {channel.value: state == _SENT or channel in mark.sent for channel in PEOPLE},
        "execution": execution,
        "ended_at": None if last is None else iso(last.ended_at),
        "attempts": alert.attempt - 1,
        "waits_until": iso(alert.routing.wait_until),
    }


def alerts_result(
    entries: Sequence[AlertEntry], job: str | None, since: float, now: float, *, sent: bool = False
) -> CommandResult:
    """Return the alerts as they stand; where they should have been ``sent``, one that is not fails the command."""
    document = {"generated_at": iso(now), "since": iso(since), "alerts": entries}
    if not entries:
        whose = "" if job is None else f" of {job}"
        text = Line(f"No alert{whose} is unsent since {document['since']}.")
        return CommandResult(document=document, blocks=[text])
    blocks: list[Block] = [table(entries, _CELLS)]
    unsent = sum(each["state"] == _UNSENT for each in entries)
    if unsent:
        blocks.append(
            Line(f"{counted(unsent, 'alert')} not sent. To send them: trainguard alerts send {job or '--all'}")
        )
    return CommandResult(document=document, blocks=blocks, failed=sent and unsent > 0)


def _state(entry: AlertEntry) -> Cell:
    waits = entry["state"] == _UNDER_WAY and entry["waits_until"] is not None
    text = f"waits until {entry['waits_until']} (quiet hours)" if waits else entry["state"]
    return Cell(text, _STYLES.get(entry["state"], "yellow"))


_CELLS: Mapping[TerminalColumn, Callable[[AlertEntry], Shown]] = {
    TerminalColumn("job"): lambda each: each["job"],
    TerminalColumn("alert", drops=1): lambda each: f"{each['rule']} {each['kind']}",
    TerminalColumn("fired at", drops=2): lambda each: each["fired_at"],
    TerminalColumn("state"): _state,
    TerminalColumn("why", folds=True, drops=3): lambda each: each["why"] or "",
}
