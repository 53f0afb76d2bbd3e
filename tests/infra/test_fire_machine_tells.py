"""The fire path, run in memory: chats and the event bus, alerts that wait or are withheld, and what is told later."""

import json
from typing import Any

import pytest

from tests.infra.states_language import Ending
from tests.infra.test_fire_machine import ALERT, FIRE, REFUSED, STEPS, TOLD, WAITING, execute, machine, written
from trainguard.plain_text import chat_escaped

__all__ = ["machine"]

WITHHELD = ALERT | {"send": False, "action": "staged: nobody paged"}


def names(execution: Any) -> list[str]:
    return [name for name, _ in execution.calls]


def test_given_a_fire_when_told_then_the_chat_s_topic_gets_the_message_as_it_is_and_the_bus_the_document(
    machine: dict[str, Any],
) -> None:
    execution, _ = execute(machine, FIRE)
    (chat,) = execution.arguments_of("PublishChat")
    assert chat == {
        "TopicArn": "{ActionsChat}",
        "Message": ALERT["chat"],
        "MessageAttributes": ALERT["attributes"],
    }
    (event,) = execution.arguments_of("EmitEvent")
    entry = {"Source": "trainguard", "DetailType": "TrainGuard Finding", "Detail": ALERT["document"]}
    assert event == {"Entries": [entry]}


def test_given_an_alert_that_is_withheld_when_handled_then_nobody_is_paged_and_bus_row_and_report_know(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, decision=REFUSED, alert=WITHHELD)
    assert ending == Ending("SUCCEEDED")
    assert set(names(execution)) == {*STEPS} - {
        "RecordDecision",
        "StopTrainingJob",
        "PublishAlert",
        "PublishChat",
    }
    outcome = written(execution, "RecordOutcome")
    assert (outcome["Action"], outcome["AlertId"]) == ({"S": "staged: nobody paged"}, {"NULL": True})


def test_given_an_alert_in_quiet_hours_when_handled_then_row_stop_and_bus_know_at_once_and_people_later(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, alert=WAITING)
    assert ending == Ending("SUCCEEDED")
    act = [name for name in names(execution) if name not in {"MarkFired", "BuildReport", "RecordReport"}]
    assert act == [
        "DecideStop",
        "RecordDecision",
        "StopTrainingJob",
        "RecordStop",
        "ComposeAlert",
        "EmitEvent",
        "RecordWaiting",
        "AwaitQuietEnd",
        "PublishAlert",
        "PublishChat",
        "RecordOutcome",
    ]
    assert execution.arguments_of("AwaitQuietEnd") == [WAITING["waitUntil"]]
    waiting = written(execution, "RecordWaiting")
    assert set(waiting) == {"Action", "ActionAt"}
    assert waiting["Action"] == {"S": "alert waits"}
    assert written(execution, "RecordOutcome")["AlertId"] == {"S": FIRE["fireId"]}


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("escalation", {*TOLD, "RecordNews", "BuildReport", "RecordReport"}),
        ("cleared", {*TOLD, "RecordNews"}),
        ("notice", {*TOLD}),
    ],
)
def test_given_what_is_told_later_when_handled_then_nothing_is_marked_decided_or_stopped(
    machine: dict[str, Any], kind: str, steps: set[str]
) -> None:
    later = {**FIRE, "kind": kind, "alertId": f"3f1c-{kind}"}
    execution, ending = execute(machine, later)
    assert ending == Ending("SUCCEEDED")
    assert set(names(execution)) == steps
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"] == {
        "fire": later,
        "decision": {"stop": False, "decision": "none", "why": "", "stopAt": None, "optedIn": False},
        "stop": {"made": False, "error": None},
    }


@pytest.mark.parametrize("failing", [set(), {"PublishAlert"}])
def test_given_what_is_told_later_when_recorded_then_the_alert_id_stays_that_of_the_fire(
    machine: dict[str, Any], failing: set[str]
) -> None:
    later = {**FIRE, "kind": "cleared", "alertId": "3f1c-cleared"}
    execution, _ = execute(machine, later, alert={**WAITING, "alertId": "3f1c-cleared"}, failing=failing)
    for step in ("RecordWaiting", "RecordNews"):
        assert set(written(execution, step)) == {"Action", "ActionAt"}
        assert "REMOVE" not in execution.arguments_of(step)[0]["UpdateExpression"]
    action = written(execution, "RecordNews")["Action"]["S"]
    assert action.startswith("alert failed (PublishAlert: ") if failing else action == ALERT["action"]


def test_given_a_notice_in_quiet_hours_when_handled_then_it_waits_without_a_row(machine: dict[str, Any]) -> None:
    execution, _ = execute(machine, {**FIRE, "kind": "notice"}, alert=WAITING)
    assert names(execution) == ["ComposeAlert", "EmitEvent", "AwaitQuietEnd", "PublishAlert", "PublishChat"]


@pytest.mark.parametrize("step", ["StopTrainingJob", "RecordDecision"])
def test_given_a_failing_composition_when_the_stop_of_a_muted_rule_failed_then_people_are_told_all_the_same(
    machine: dict[str, Any], step: str
) -> None:
    fire = {**FIRE, "policy": {"alerts": {"staged": [], "muted": ["all"]}}}
    execution, _ = execute(machine, fire, failing={"ComposeAlert", step})
    sent = step == "StopTrainingJob"
    assert len(execution.arguments_of("PublishAlert")) == len(execution.arguments_of("PublishChat")) == int(sent)
    for message in execution.arguments_of("PublishAlert"):
        text = json.loads(message["Message"])["email"]
        assert "\nStopping it failed: Service.Exception: StopTrainingJob is down\nReport: " in text


@pytest.mark.parametrize(
    ("alerts", "kind", "stopped", "sent"),
    [
        ({"staged": ["LowGPUUtilization"], "muted": []}, "fire", False, False),
        ({"staged": ["all"], "muted": []}, "fire", False, False),
        ({"staged": ["CPUBottleneck"], "muted": ["CPUBottleneck"]}, "fire", False, True),
        ({"staged": [], "muted": ["LowGPUUtilization"]}, "fire", False, False),
        ({"staged": [], "muted": ["all"]}, "fire", True, True),
        ({"staged": ["all"], "muted": ["all"]}, "notice", False, True),
        (None, "fire", False, True),
    ],
)
def test_given_a_failing_composition_when_handled_then_the_plain_alert_obeys_staged_and_muted_rules(
    machine: dict[str, Any], alerts: Any, kind: str, stopped: bool, sent: bool
) -> None:
    fire = {name: value for name, value in FIRE.items() if name != "policy"} | {"kind": kind}
    if alerts is not None:
        fire["policy"] = {"alerts": alerts}
    execution, ending = execute(machine, fire, decision=None if stopped else REFUSED, failing={"ComposeAlert"})
    assert len(execution.arguments_of("PublishAlert")) == len(execution.arguments_of("PublishChat")) == int(sent)
    assert (ending.cause or "").startswith("ComposeAlert: ")


def test_given_a_failing_composition_when_told_then_chat_and_bus_get_what_they_read(machine: dict[str, Any]) -> None:
    fire = {**FIRE, "kind": "cleared", "alertId": "3f1c-cleared", "severity": None}
    execution, _ = execute(machine, fire, failing={"ComposeAlert"})
    (message,) = execution.arguments_of("PublishAlert")
    assert message["Subject"] == "TrainGuard: LowGPUUtilization (cleared) on llm-7b-2026-01-01"
    assert len(message["Subject"]) < 100
    attributes = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    assert (attributes["AlertId"], attributes["Kind"], attributes["Severity"]) == ("3f1c-cleared", "cleared", "unknown")
    chat = json.loads(execution.arguments_of("PublishChat")[0]["Message"])
    assert (chat["version"], chat["source"]) == ("1.0", "custom")
    assert FIRE["reason"] in chat["content"]["description"]
    (entry,) = execution.arguments_of("EmitEvent")[0]["Entries"]
    assert entry["Detail"]["fireId"] == FIRE["fireId"]


def test_given_a_failing_composition_when_a_profile_names_people_then_the_chat_s_text_mentions_nobody(
    machine: dict[str, Any],
) -> None:
    fire = {**FIRE, "node": "<!channel>", "reason": "@here <https://evil|a&b> " + "x" * 9_000}
    execution, _ = execute(machine, fire, failing={"ComposeAlert"})
    content = json.loads(execution.arguments_of("PublishChat")[0]["Message"])["content"]
    assert content["title"] == chat_escaped(f"TrainGuard: {FIRE['rule']} fired on {FIRE['job']}")
    assert chat_escaped("<!channel>: @here <https://evil|a&b> xxx") in content["description"]
    assert len(content["description"]) < 3_000
