"""An alert as the body of a webhook: of PagerDuty, Opsgenie or Slack, or as its document.

Names, reasons and links come from jobs. They are values of JSON, which an encoder writes, and Slack gets them with its
markup escaped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainguard.core.records import AlertKind
from trainguard.core.text import chat_escaped, chat_line, mail_place
from trainguard.stack.actions.alert import Alert

# Values of the setting ``webhook_service``.
WebhookService = Literal["json", "slack", "pagerduty", "opsgenie"]

# The event that the rule of its ``stack`` sends on; its ``body`` is what is posted.
WEBHOOK_EVENT = "TrainGuard Webhook"

# The field that the rule for ends of alerts looks for: an alias in Opsgenie, whose API closes an alert by its address.
CLOSES = "closes"

_PAGERDUTY_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}
_OPSGENIE_PRIORITY = {"critical": "P1", "high": "P2", "medium": "P3", "low": "P4"}

# Limits of the services, in characters; a subject and a fire's id are shorter than any.
_DESCRIPTION, _SLACK_TEXT = 15_000, 3_000


@dataclass(frozen=True, slots=True)
class _Told:
    """What all bodies are made of; all alerts of a fire have one ``key``."""

    key: str
    kind: str
    subject: str
    severity: str
    text: str
    job: str
    rule: str
    node: str
    link: str | None

    @property
    def is_over(self) -> bool:
        return self.kind == AlertKind.CLEARED.value


def webhook_event(service: WebhookService, stack: str, alert: Alert) -> dict[str, Any]:
    """Return the detail of the event for an alert: the ``body``, and what it closes in Opsgenie."""
    if service == "json":
        return {"stack": stack, "body": alert.document}
    told = _told(alert)
    if service == "opsgenie" and told.is_over:
        return {"stack": stack, CLOSES: told.key, "body": {"source": "TrainGuard", "note": told.subject}}
    return {"stack": stack, "body": {"slack": _slack, "pagerduty": _pagerduty, "opsgenie": _opsgenie}[service](told)}


def _told(alert: Alert) -> _Told:
    document, of = alert.document, alert.attributes
    # A bare alert has the execution's input as its document.
    link = document.get("report_link") or document.get("reportLink")
    return _Told(
        key=str(document.get("fire_id") or document.get("fireId") or alert.alert_id),
        kind=of["Kind"],
        subject=alert.subject,
        severity=of["Severity"],
        text=alert.text,
        job=of["Job"],
        rule=of["Rule"],
        node=str(document.get("node")),
        link=mail_place(str(link)) if str(link).startswith("https://") else None,
    )


def _details(told: _Told) -> dict[str, str]:
    return {"rule": told.rule, "kind": told.kind, "node": told.node, "severity": told.severity}


def _pagerduty(told: _Told) -> Mapping[str, Any]:
    """Return an event of the Events API v2; the connection adds ``routing_key``."""
    if told.is_over:
        return {"event_action": "resolve", "dedup_key": told.key}
    return {
        "event_action": "trigger",
        "dedup_key": told.key,
        "client": "TrainGuard",
        "payload": {
            "summary": told.subject,
            "severity": _PAGERDUTY_SEVERITY.get(told.severity, "warning"),
            "source": told.job,
            "component": told.node,
            "group": told.job,
            "class": told.rule,
            "custom_details": {**_details(told), "text": told.text},
        },
        "links": [{"href": told.link, "text": "Report"}] if told.link else [],
    }


def _opsgenie(told: _Told) -> Mapping[str, Any]:
    return {
        "message": told.subject,
        "alias": told.key,
        "description": told.text[:_DESCRIPTION],
        "entity": told.job,
        "source": "TrainGuard",
        "priority": _OPSGENIE_PRIORITY.get(told.severity, "P3"),
        "tags": ["TrainGuard", told.rule],
        "details": {**_details(told), **({"report": told.link} if told.link else {})},
    }


def _slack(told: _Told) -> Mapping[str, Any]:
    """Return a message whose blocks are plain texts, in which Slack looks for no mention and no link."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(told.subject)},
        {"type": "section", "text": _plain(told.text)},
    ]
    report = f"<{chat_escaped(told.link).replace('|', '%7C')}|Report>" if told.link else ""
    if 0 < len(report) <= _SLACK_TEXT:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": report}})
    return {"text": chat_line(told.subject), "blocks": blocks}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text[:_SLACK_TEXT], "emoji": False}
