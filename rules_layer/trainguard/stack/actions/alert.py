"""The alert: text for people, one JSON document for machines, a message for chats, attributes to filter by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainguard.core.canary_name import CANARY_KIND, is_canary
from trainguard.core.finding import flat
from trainguard.core.links import open_command
from trainguard.core.run_links import plain_links
from trainguard.core.text import LONGEST_SENTENCE, one_line, plain_document
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions import wording
from trainguard.stack.actions.chat import chat_message
from trainguard.stack.actions.request import AlertInput, AlertRequest
from trainguard.stack.actions.routing import STAGED, Routing, route

SCHEMA_VERSION = "1"
SENT_LATE = "alert sent late"
UNKNOWN = "unknown"
LONGEST_TEXT = 4_000
"""Of a text in the document: a link into the console is three times as long as a key can be."""

_STOPPED = {True: "true", False: "false", None: UNKNOWN}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, ready to publish; ``action`` is for the rule's row, ``waiting`` for the time until quiet hours end."""

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
    """Compose the alert of a fire or follow-up with its stop; ``now``, epoch seconds, is for quiet hours."""
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
    """Return the sentence for the rule's row; a staged rule stops nothing."""
    if routing.withheld == STAGED:
        return STAGED
    note = routing.withheld or (None if fire.resend is None else SENT_LATE)
    return done if note is None else f"{note}. {done}"


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
