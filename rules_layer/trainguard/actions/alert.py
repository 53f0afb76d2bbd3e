"""The alert: text for people, one JSON document for machines, a message for chats, attributes to filter by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.actions import wording
from trainguard.actions.chat import chat_message
from trainguard.actions.request import AlertInput, AlertRequest
from trainguard.actions.routing import STAGED, Routing, route
from trainguard.canary_name import CANARY_KIND, is_canary
from trainguard.finding import flat
from trainguard.links import open_command
from trainguard.plain_text import LONGEST_SENTENCE, one_line, plain_document
from trainguard.run_links import plain_links
from trainguard.timestamps import iso_time

SCHEMA_VERSION = "1"
SENT_LATE = "alert sent late"
UNKNOWN = "unknown"
LONGEST_TEXT = 4_000
"""Of a text in the document: a link into the console is three times as long as a key can be."""

_STOPPED = {True: "true", False: "false", None: UNKNOWN}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, ready to publish.

    ``action`` is the sentence for the rule's row, ``waiting`` that for the time until a quiet time ends. ``routing``
    says whether and when it goes out.
    """

    alert_id: str
    subject: str
    text: str
    document: Mapping[str, Any]
    chat: Mapping[str, Any]
    attributes: Mapping[str, str]
    action: str
    waiting: str
    routing: Routing


def compose_alert(request: AlertRequest, *, now: float) -> Alert:
    """Compose the alert of one fire, or a later one about it; it states whether the job was stopped.

    ``now``, epoch seconds, is what quiet hours are asked for.
    """
    fire, routing, done = request.fire, route(request, now=now), wording.action(request)
    waiting = "" if routing.wait_until is None else f"alert waits until {iso_time(routing.wait_until)} (quiet hours)"
    return Alert(
        alert_id=fire.own_id,
        subject=wording.subject(fire),
        text=wording.text(request, done),
        document=plain_document(_document(request, done, routing), LONGEST_TEXT),
        chat=chat_message(request, done),
        attributes=plain_document(_attributes(request), LONGEST_TEXT),
        action=one_line(_recorded(fire, routing, done), LONGEST_SENTENCE),
        waiting=one_line(f"{waiting}. {done}", LONGEST_SENTENCE),
        routing=routing,
    )


def _attributes(request: AlertRequest) -> dict[str, str]:
    fire = request.fire
    return {
        "AlertId": fire.own_id,
        "Job": fire.job,
        "Rule": fire.entry.finding.rule,
        "Kind": CANARY_KIND if is_canary(fire.job, fire.job_arn) else fire.entry.kind.value,
        "Severity": fire.entry.finding.severity or UNKNOWN,
        "Stopped": _STOPPED[request.stop.made],
    }


def _recorded(fire: AlertInput, routing: Routing, done: str) -> str:
    """Return the sentence for the rule's row; a staged rule stops nothing, so that there is nothing else to say."""
    if routing.withheld == STAGED:
        return STAGED
    said = routing.withheld or (None if fire.resend is None else SENT_LATE)
    return done if said is None else f"{said}. {done}"


def _document(request: AlertRequest, done: str, routing: Routing) -> dict[str, Any]:
    fire, entry, decision = request.fire, request.fire.entry, request.decision
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": entry.kind.value,
        "canary": is_canary(fire.job, fire.job_arn),
        "alert_id": fire.own_id,
        "fire_id": entry.fire_id,
        "job": fire.job,
        "job_arn": fire.job_arn,
        "tuning_job": fire.tuning_job,
        "episode": entry.episode,
        "fired_at": fire.fired_at,
        "previous_severity": entry.previous_severity,
        "lasted_s": entry.lasted_s,
        "faults": fire.faults,
        **flat(entry.finding),
        "stop": {
            "made": request.stop.made,
            "decision": decision.decision,
            "why": decision.why,
            "stop_at": decision.stop_at,
        },
        "stop_error": request.stop.error,
        "action": done,
        "late": fire.resend is not None,
        "withheld": routing.withheld,
        "waits_until": None if routing.wait_until is None else iso_time(routing.wait_until),
        **_report(fire),
    }


def _report(fire: AlertInput) -> dict[str, Any]:
    return {
        "report_uri": fire.report_uri,
        "report_page": fire.report_page,
        "report_link": fire.report_link,
        "report_command": open_command(fire.job),
        "run_links": plain_links(fire.run_links),
    }


def publishable(alert: Alert) -> dict[str, Any]:
    """Return the alert as the state machine publishes it."""
    wait_until = alert.routing.wait_until
    return {
        "alertId": alert.alert_id,
        "subject": alert.subject,
        "text": alert.text,
        "document": dict(alert.document),
        "json": msgspec.json.encode(alert.document).decode(),
        "chat": msgspec.json.encode(alert.chat).decode(),
        "attributes": {name: {"DataType": "String", "StringValue": value} for name, value in alert.attributes.items()},
        "action": alert.action,
        "send": alert.routing.withheld is None,
        "waitUntil": None if wait_until is None else iso_time(wait_until),
        "waiting": alert.waiting,
    }
