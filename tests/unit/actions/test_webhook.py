"""The body of a webhook is its service's, names all alerts of a fire by one key, and holds no markup of a job's."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from infra.config import WEBHOOK_SERVICES
from tests.support.memory import MemoryJournal
from tests.unit.actions.test_send_alert import ALL, CALL, NOW, REFUSED, Network, about, brake, policy
from trainguard.core.brakes import BrakeList
from trainguard.stack.actions.alert import bare_alert, compose_alert
from trainguard.stack.actions.marks import Channel
from trainguard.stack.actions.request import AlertRequest
from trainguard.stack.actions.send_alert import AlertSender
from trainguard.stack.actions.webhook import WebhookService, webhook_event

FIRE_ID = CALL["fire"]["fireId"]
HOSTILE = '<!channel> <https://evil.example|Report> "}],"routing_key":"x" *a* & @here'


def detail(service: WebhookService, **fire: Any) -> dict[str, Any]:
    alert = compose_alert(AlertRequest.read(CALL | {"fire": about(**fire)}), now=NOW)
    event: dict[str, Any] = json.loads(json.dumps(webhook_event(service, "Research", alert)))
    assert event.pop("stack") == "Research"
    return event


def test_services_of_the_setting_are_those_with_a_body() -> None:
    assert get_args(WebhookService) == WEBHOOK_SERVICES
    assert detail("json")["body"]["schema_version"] == "1"


@pytest.mark.parametrize(
    ("severity", "pagerduty", "opsgenie"),
    [
        ("critical", "critical", "P1"),
        ("high", "error", "P2"),
        ("medium", "warning", "P3"),
        ("low", "info", "P4"),
        (None, "warning", "P3"),
    ],
)
def test_body_has_the_severity_in_the_services_words(severity: str | None, pagerduty: str, opsgenie: str) -> None:
    paged = detail("pagerduty", severity=severity)["body"]
    assert (paged["event_action"], paged["payload"]["severity"]) == ("trigger", pagerduty)
    assert {"summary", "source", "component", "class", "group"} <= paged["payload"].keys()
    assert (paged["payload"]["source"], paged["payload"]["class"]) == (CALL["fire"]["job"], "LowGPUUtilization")
    assert paged["links"][0]["href"] == CALL["fire"]["reportLink"]
    assert detail("opsgenie", severity=severity)["body"]["priority"] == opsgenie


def test_all_alerts_of_a_fire_have_one_key_and_its_end_closes_it() -> None:
    for kind in ("fire", "escalation", "cause"):
        later = {"kind": kind, "alertId": f"{FIRE_ID}-{kind}", "previousSeverity": "low"}
        assert detail("pagerduty", **later)["body"]["dedup_key"] == FIRE_ID
        opened = detail("opsgenie", **later)
        assert (opened["body"]["alias"], opened.get("closes")) == (FIRE_ID, None)
    over = {"kind": "cleared", "alertId": f"{FIRE_ID}-cleared"}
    assert detail("pagerduty", **over)["body"] == {"event_action": "resolve", "dedup_key": FIRE_ID}
    closed = detail("opsgenie", **over)
    assert (closed["closes"], sorted(closed["body"])) == (FIRE_ID, ["note", "source"])
    assert "is over" in detail("slack", **over)["body"]["text"]


@pytest.mark.parametrize("is_bare", [False, True])
def test_hostile_names_stay_text_in_every_body(is_bare: bool) -> None:
    call = CALL | {"fire": about(reason=HOSTILE, node=HOSTILE, job=HOSTILE, reportLink=f"https://x/{HOSTILE}")}
    alert = bare_alert(call) if is_bare else compose_alert(AlertRequest.read(call), now=NOW)
    for service in get_args(WebhookService):
        body = json.loads(json.dumps(webhook_event(service, "S", alert)))["body"]
        assert "routing_key" not in body
    message = webhook_event("slack", "S", alert)["body"]
    texts = [message["text"], *(block["text"] for block in message["blocks"])]
    marked = [each if isinstance(each, str) else each["text"] for each in texts if "plain_text" not in str(each)]
    assert len(marked) == 2
    assert not any("<!" in each or "|Report> " in each for each in marked)
    assert marked[1].count("|") == marked[1].count("<") == marked[1].count(">") == 1
    dedup = webhook_event("pagerduty", "S", alert)["body"]["dedup_key"]
    assert dedup == FIRE_ID


@pytest.mark.parametrize("link", [None, "http://plain.example", "javascript:alert(1)", f"https://x/{'k' * 3_000}"])
def test_body_without_a_usable_link_has_none(link: str | None) -> None:
    if link is None or not link.startswith("https"):
        assert detail("pagerduty", reportLink=link)["body"]["links"] == []
    assert len(detail("slack", reportLink=link)["body"]["blocks"]) == 2


QUIET = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "start": "00:00", "end": "23:59", "timezone": "UTC"}


@pytest.mark.parametrize(
    ("call", "brakes", "goes"),
    [
        ({}, (), True),
        ({"fire": about(policy=policy(quiet_hours=[QUIET])), **REFUSED}, (), False),
        ({"fire": about(policy=policy(quiet_hours=[QUIET])), **REFUSED, "due": True}, (), True),
        ({"fire": about(policy=policy(muted=["LowGPUUtilization"])), **REFUSED}, (), False),
        (REFUSED, (brake(),), False),
        ({"fire": about(job="trainguard-canary-20261124-060000", jobArn="unknown:c")}, (), False),
    ],
)
def test_webhook_gets_what_people_get(call: dict[str, Any], brakes: Any, goes: bool) -> None:
    network = Network(brakes=brakes)
    sender = AlertSender(network, network, MemoryJournal(), lambda: BrakeList(brakes), has_webhook=True)
    answers = [sender.send(CALL | {"execution": "first"} | call, now=NOW) for _ in range(2)]
    assert answers[0] == answers[1]
    assert (network.sent.count(Channel.WEBHOOK) == 1) is goes


def test_webhook_that_is_down_leaves_the_alert_unsent() -> None:
    network = Network(down={Channel.WEBHOOK})
    sender = AlertSender(network, network, MemoryJournal(), lambda: BrakeList(()), has_webhook=True)
    answer = sender.send(CALL, now=NOW)
    assert (network.sent, answer["sent"]) == (ALL, False)
    assert answer["unsent"] == ["webhook: SNS.Publish failed: it is down"]
    assert replace(sender, has_webhook=False).send(CALL, now=NOW)["sent"]
