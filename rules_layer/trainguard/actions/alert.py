"""The alert of a fire: text for people, one JSON document for machines, attributes to filter by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.report.links import open_command

SCHEMA_VERSION = "1"
SUBJECT_LIMIT = 99
_DETAIL_LIMIT = 1_000


class Fire(msgspec.Struct, rename="camel"):
    """The execution's input, as the outbox wrote it.

    ``report_uri`` and ``report_page`` are S3 URIs of ``report.json`` and ``report.html``, ``report_link`` is the page
    in the console.
    """

    job: str
    job_arn: str
    rule: str
    fire_id: str
    episode: int
    node: str
    reason: str
    fired_at: str
    report_uri: str
    report_page: str | None = None
    report_link: str | None = None
    measured: float | None = None
    threshold: float | None = None
    severity: str | None = None
    advice: str | None = None
    cost: str | None = None


class Decision(msgspec.Struct):
    """What the stop decision was."""

    stop: bool
    decision: str
    why: str


class StopResult(msgspec.Struct):
    """What came of StopTrainingJob; ``error`` says why it failed."""

    made: bool
    error: str | None = None


class AlertRequest(msgspec.Struct):
    """Everything that the alert is made of."""

    fire: Fire
    decision: Decision
    stop: StopResult


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, ready to publish; ``action`` is the sentence for the rule's row."""

    subject: str
    text: str
    document: Mapping[str, Any]
    attributes: Mapping[str, str]
    action: str


def compose_alert(request: AlertRequest) -> Alert:
    """Compose the alert of one fire; it says truly whether the job was stopped."""
    fire = request.fire
    action = _action(request)
    document = {
        "schema_version": SCHEMA_VERSION,
        "alert_id": fire.fire_id,
        "job": fire.job,
        "job_arn": fire.job_arn,
        "rule": fire.rule,
        "episode": fire.episode,
        "node": fire.node,
        "fired_at": fire.fired_at,
        "reason": fire.reason,
        "severity": fire.severity,
        "advice": fire.advice,
        "cost": fire.cost,
        "measured": fire.measured,
        "threshold": fire.threshold,
        "stop": {"made": request.stop.made, "decision": request.decision.decision, "why": request.decision.why},
        "stop_error": request.stop.error,
        "action": action,
        "report_uri": fire.report_uri,
        "report_page": fire.report_page,
        "report_link": fire.report_link,
        "report_command": open_command(fire.job),
    }
    text = "\n".join(
        [
            f"{fire.rule} fired on training job {fire.job}.",
            "",
            fire.reason,
            "",
            *_matters(fire),
            f"Action: {action}",
            f"Fired at: {fire.fired_at} (node {fire.node}, episode {fire.episode})",
            *_report(fire),
            f"Alert id: {fire.fire_id} (the same alert may be delivered more than once)",
        ]
    )
    return Alert(
        subject=_subject(fire),
        text=text,
        document=document,
        attributes={
            "AlertId": fire.fire_id,
            "Job": fire.job,
            "Rule": fire.rule,
            "Kind": "fire",
            "Stopped": "true" if request.stop.made else "false",
        },
        action=action,
    )


def _matters(fire: Fire) -> list[str]:
    """Return lines about how much the fire matters and what to do, as far as that is known."""
    lines = (("What to do", fire.advice), ("Severity", fire.severity), ("Lost", fire.cost))
    return [f"{name}: {value[:_DETAIL_LIMIT]}" for name, value in lines if value]


def _report(fire: Fire) -> list[str]:
    """Return lines about where the report lies: its place, a link into the console, and the command without one."""
    link = [f"Open it in the console: {fire.report_link}"] if fire.report_link else []
    return [
        f"Report: {fire.report_page or fire.report_uri}",
        *link,
        f"Or by a link of its own: {open_command(fire.job)}",
    ]


def _action(request: AlertRequest) -> str:
    if request.stop.made:
        return f"Training job stopped: {request.decision.why}."
    if request.decision.stop:
        return f"Stopping the training job failed: {(request.stop.error or 'no reason given')[:_DETAIL_LIMIT]}"
    return f"Training job not stopped: {request.decision.why}."


def _subject(fire: Fire) -> str:
    """Return the e-mail subject: ASCII without control characters, under 100 characters, as SNS demands."""
    subject = f"TrainGuard: {fire.rule} fired on {fire.job}"
    printable = (character if " " <= character <= "~" else "?" for character in subject)
    return "".join(printable)[:SUBJECT_LIMIT]


def publishable(alert: Alert) -> dict[str, Any]:
    """Return the alert as the state machine publishes it."""
    return {
        "subject": alert.subject,
        "text": alert.text,
        "json": msgspec.json.encode(alert.document).decode(),
        "attributes": {name: {"DataType": "String", "StringValue": value} for name, value in alert.attributes.items()},
        "action": alert.action,
    }
