"""An alert as the body of a webhook: of PagerDuty, Opsgenie or Slack, or as its document.

Names, reasons and links come from jobs. They are values of JSON, which an encoder writes, and Slack gets them with its
markup escaped.
"""

from collections.abc import Mapping
from typing import Any, Literal

from trainguard.core.records import AlertKind
from trainguard.core.text import chat_escaped, chat_line, mail_place
from trainguard.stack.actions.alert import ReadyAlert

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


def webhook_event(service: WebhookService, stack: str, alert: ReadyAlert) -> dict[str, Any]:
    """Return the detail of the event for an alert: the ``body``, and what it closes in Opsgenie."""
    # A bare alert has the execution's input as its document.
    document = alert.document
    if service == "json":
        return {"stack": stack, "body": document}
    link = str(document.get("report_link") or document.get("reportLink"))
    report = mail_place(link) if link.startswith("https://") else ""
    if service == "slack":
        return {"stack": stack, "body": _slack(alert, report)}
    # All alerts of a fire have one key.
    key = str(document.get("fire_id") or document.get("fireId") or alert.alert_id)
    is_over = alert.attributes["Kind"] == AlertKind.CLEARED.value
    if service == "opsgenie" and is_over:
        return {"stack": stack, CLOSES: key, "body": {"source": "TrainGuard", "note": alert.subject}}
    if is_over:
        return {"stack": stack, "body": {"event_action": "resolve", "dedup_key": key}}
    body = {"pagerduty": _pagerduty, "opsgenie": _opsgenie}[service](alert, key, report)
    return {"stack": stack, "body": body}


def _details(alert: ReadyAlert) -> dict[str, str]:
    of = alert.attributes
    node = str(alert.document.get("node"))
    return {"rule": of["Rule"], "kind": of["Kind"], "node": node, "severity": of["Severity"]}


def _pagerduty(alert: ReadyAlert, key: str, report: str) -> Mapping[str, Any]:
    """Return an event of the Events API v2; the connection adds ``routing_key``."""
    details, job = _details(alert), alert.attributes["Job"]
    return {
        "event_action": "trigger",
        "dedup_key": key,
        "client": "TrainGuard",
        "payload": {
            "summary": alert.subject,
            "severity": _PAGERDUTY_SEVERITY.get(details["severity"], "warning"),
            "source": job,
            "component": details["node"],
            "group": job,
            "class": details["rule"],
            "custom_details": {**details, "text": alert.text},
        },
        "links": [{"href": report, "text": "Report"}] if report else [],
    }


def _opsgenie(alert: ReadyAlert, key: str, report: str) -> Mapping[str, Any]:
    details = _details(alert)
    return {
        "message": alert.subject,
        "alias": key,
        "description": alert.text[:_DESCRIPTION],
        "entity": alert.attributes["Job"],
        "source": "TrainGuard",
        "priority": _OPSGENIE_PRIORITY.get(details["severity"], "P3"),
        "tags": ["TrainGuard", details["rule"]],
        "details": {**details, **({"report": report} if report else {})},
    }


def _slack(alert: ReadyAlert, report: str) -> Mapping[str, Any]:
    """Return a message whose blocks are plain texts, in which Slack looks for no mention and no link."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(alert.subject)},
        {"type": "section", "text": _plain(alert.text)},
    ]
    link = f"<{chat_escaped(report).replace('|', '%7C')}|Report>" if report else ""
    if 0 < len(link) <= _SLACK_TEXT:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    return {"text": chat_line(alert.subject), "blocks": blocks}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text[:_SLACK_TEXT], "emoji": False}
