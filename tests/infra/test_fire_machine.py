"""The fire path, run in memory: whichever steps fail, all others run, and the execution says so at its end."""

import itertools
import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.infra.machines import assert_outwaits_its_function, assert_standard_and_logged, deployed_definition
from tests.infra.states_language import Ending, Execution, TaskError
from tests.infra.template import Template
from trainguard.actions.resend import STEP_FAILED

FIRE: dict[str, Any] = {
    "kind": "fire",
    "alertId": "3f1c",
    "severity": "high",
    "policy": {"alerts": {"staged": [], "muted": [], "quiet_hours": []}},
    "job": "llm-7b-2026-01-01",
    "jobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/llm-7b-2026-01-01",
    "bucket": "profiles",
    "prefix": "team/",
    "rule": "LowGPUUtilization",
    "fireId": "3f1c",
    "episode": 0,
    "node": "algo-1",
    "reason": "95 % of the samples lie below 70 %.",
    "measured": 23.0,
    "threshold": 70.0,
    "firedAt": "2026-01-01T12:34:00Z",
    "reportUri": "s3://profiles/team/llm-7b-2026-01-01/rule-output/TrainGuardReport/report.json",
    "reportPage": "s3://profiles/team/llm-7b-2026-01-01/rule-output/TrainGuardReport/report.html",
    "reportLink": "https://us-east-1.console.aws.amazon.com/s3/object/profiles?region=us-east-1&prefix=team/report.html",
}
STOP = {"stop": True, "decision": "stop", "why": "the job carries the tag", "stopAt": None}
REFUSED = {"stop": False, "decision": "refused", "why": "the job did not opt in", "stopAt": None}
GRACE = {"stop": False, "decision": "grace", "why": "its grace time has begun", "stopAt": "2026-01-01T12:44:00.000Z"}
ALERT = {
    "subject": "TrainGuard: LowGPUUtilization on llm-7b-2026-01-01",
    "alertId": "3f1c",
    "text": "The GPUs wait.",
    "document": {"alert_id": "3f1c"},
    "json": '{"alertId": "3f1c"}',
    "chat": '{"version": "1.0"}',
    "attributes": {"AlertId": {"DataType": "String", "StringValue": "3f1c"}},
    "action": "alert sent, training job stopped",
    "send": True,
    "waitUntil": None,
    "waiting": "",
}
WARNING = ALERT | {"subject": "TrainGuard: will stop", "alertId": "3f1c-warning", "document": {"kind": "warning"}}
WAITING = ALERT | {"waitUntil": "2026-01-02T07:00:00.000Z", "waiting": "alert waits"}
STEPS = (
    "MarkFired",
    "DecideStop",
    "RecordDecision",
    "StopTrainingJob",
    "RecordStop",
    "ComposeAlert",
    "EmitEvent",
    "PublishAlert",
    "PublishChat",
    "RecordOutcome",
    "BuildReport",
    "RecordReport",
)
GRACE_STEPS = ("RecordWarning", "ComposeWarning", "PublishWarning", "ChatWarning", "EmitWarning", "DecideAgain")
OTHER_STEPS = ("NameFire", "LookAtJob", "RecordWaiting", "RecordNews", "RecordSent", "RecordSentNews")
AGAIN = {"PublishAlert": "PublishAlertAgain", "PublishChat": "PublishChatAgain"}
"""The states that send what another one could not: a redrive repeats them."""

FIRST = {again: name for name, again in AGAIN.items()}
UNMET = "DynamoDB.ConditionalCheckFailedException"
TOLD = ("ComposeAlert", "EmitEvent", "PublishAlert", "PublishChat")


@pytest.fixture(scope="module")
def machine(template: Template) -> dict[str, Any]:
    """Return the definition as it is deployed."""
    return deployed_definition(template, "ActionsFire")


def execute(
    machine: dict[str, Any],
    data: dict[str, Any],
    *,
    decision: dict[str, Any] | None = None,
    again: dict[str, Any] | None = None,
    alert: dict[str, Any] | None = None,
    failing: Collection[str] = (),
    throttled: Collection[str] = (),
    unmet: Collection[str] = (),
    status: str = "InProgress",
    arn: str = FIRE["jobArn"],
    outlasted: bool = False,
) -> tuple[Execution, Ending]:
    """Run an execution in which the steps of ``failing`` fail at every attempt; ``again`` is the final decision.

    What could not be sent cannot be sent at the end either, unless the failure is ``outlasted``.
    Functions of ``throttled`` are refused for ten attempts, as the account has none left to run. Conditions of the
    writes of ``unmet`` do not hold; ``status`` and ``arn`` are the job's when it is looked at.
    """
    answers: dict[str, Any] = {
        "DecideStop": {"Payload": decision or STOP},
        "DecideAgain": {"Payload": again or STOP},
        "ComposeAlert": {"Payload": alert or ALERT},
        "ComposeWarning": {"Payload": WARNING},
        "BuildReport": {"Payload": {"reportUri": FIRE["reportPage"], "files": 13}},
        "PublishAlert": {"MessageId": "m"},
        "LookAtJob": {"TrainingJobName": FIRE["job"], "TrainingJobArn": arn, "TrainingJobStatus": status},
    }

    refused = {name: iter(range(10)) for name in throttled}

    def answer(name: str) -> Callable[[Any], Any]:
        def run(arguments: Any) -> Any:
            del arguments
            if next(refused.get(name, iter(())), None) is not None:
                raise TaskError("Lambda.TooManyRequestsException", "Rate Exceeded.")
            if name in failing or (not outlasted and FIRST.get(name) in failing):
                raise TaskError("Service.Exception", f"{name} is down")
            if name in unmet:
                raise TaskError(UNMET, "The conditional request failed")
            return answers.get(name, {})

        return run

    steps = (*STEPS, *GRACE_STEPS, *OTHER_STEPS, *AGAIN.values())
    execution = Execution(machine, {name: answer(name) for name in steps})
    return execution, execution.run(data)


def written(execution: Execution, state: str) -> dict[str, Any]:
    """Return the attributes that a step writes into the rule's row."""
    update = execution.arguments_of(state)[-1]
    assert update["TableName"] == "{StorageRuleState}"
    assert update["Key"] == {"TrainingJobName": {"S": FIRE["job"]}, "RuleTarget": {"S": FIRE["rule"]}}
    names, values = update["ExpressionAttributeNames"], update["ExpressionAttributeValues"]
    sets, _, _ = update["UpdateExpression"].removeprefix("SET ").partition(" REMOVE ")
    assignments = [part.split(" = ") for part in sets.split(", ")]
    return {names[name]: values[value] for name, value in assignments}


@pytest.mark.parametrize("function", ["DecideStop", "ComposeAlert", "BuildReport", "ComposeWarning", "DecideAgain"])
def test_given_an_account_with_no_function_left_when_a_rule_fires_then_the_execution_waits_and_nothing_is_lost(
    machine: dict[str, Any], function: str
) -> None:
    graced = function in {"ComposeWarning", "DecideAgain"}
    execution, ending = execute(machine, FIRE, decision=GRACE if graced else STOP, throttled={function})
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of(function)) == 11
    assert execution.arguments_of("StopTrainingJob")


def test_given_an_opted_in_job_when_a_rule_fires_then_it_is_marked_stopped_alerted_recorded_and_reported(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE)
    assert ending == Ending("SUCCEEDED")
    assert sorted(name for name, _ in execution.calls) == sorted(STEPS)
    assert written(execution, "MarkFired") == {
        "Status": {"S": "FIRED"},
        "DebuggerStatus": {"S": "IssuesFound"},
        "Reason": {"S": FIRE["reason"]},
        "FiredAt": {"S": FIRE["firedAt"]},
        "FireId": {"S": FIRE["fireId"]},
        "FireEpisode": {"N": "0"},
        "FireJobArn": {"S": FIRE["jobArn"]},
    }
    assert execution.arguments_of("StopTrainingJob") == [{"TrainingJobName": FIRE["job"]}]
    stop = written(execution, "RecordStop")
    assert stop.pop("StopAt")["S"].endswith("Z")
    assert stop == {
        "StopDecision": {"S": "stop"},
        "StopWhy": {"S": STOP["why"]},
        "StopFireId": {"S": FIRE["fireId"]},
        "StopMade": {"BOOL": True},
    }
    outcome = written(execution, "RecordOutcome")
    assert outcome["Action"] == {"S": ALERT["action"]}
    assert outcome["AlertId"] == {"S": FIRE["fireId"]}
    assert outcome["ActionAt"]["S"].endswith("Z")
    assert written(execution, "RecordReport") == {"ReportUri": {"S": FIRE["reportPage"]}}


def test_given_a_fire_when_the_alert_is_sent_then_mail_carries_the_text_and_machines_the_document(
    machine: dict[str, Any],
) -> None:
    execution, _ = execute(machine, FIRE)
    (message,) = execution.arguments_of("PublishAlert")
    assert message["TopicArn"] == "{ActionsAlerts}"
    assert message["Subject"] == ALERT["subject"]
    assert message["MessageStructure"] == "json"
    assert message["MessageAttributes"] == ALERT["attributes"]
    body = json.loads(message["Message"])
    assert body["default"] == body["email"] == ALERT["text"]
    assert body["sqs"] == body["lambda"] == body["https"] == ALERT["json"]


def test_given_a_fire_when_functions_are_called_then_they_get_what_their_contract_says(
    machine: dict[str, Any],
) -> None:
    execution, _ = execute(machine, FIRE, decision=REFUSED)
    assert [call["Payload"] for call in execution.arguments_of("DecideStop")] == [{**FIRE, "attempt": "first"}]
    assert [call["Payload"] for call in execution.arguments_of("BuildReport")] == [FIRE]
    assert [call["Payload"] for call in execution.arguments_of("ComposeAlert")] == [
        {"fire": FIRE, "decision": REFUSED, "stop": {"made": False, "error": None}}
    ]


@pytest.mark.parametrize(
    "decision",
    [
        REFUSED,
        {"stop": False, "decision": "dry-run", "why": "the switch says dry-run"},
        {"stop": "true", "decision": "stop", "why": "text is not true"},
        {"decision": "stop", "why": "no word of stop"},
        {},
    ],
)
def test_given_a_decision_that_is_not_plainly_to_stop_when_a_rule_fires_then_the_job_runs_on_and_the_alert_goes_out(
    machine: dict[str, Any], decision: dict[str, Any]
) -> None:
    execution, ending = execute(machine, FIRE, decision=decision or {"unknown": 1})
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("StopTrainingJob") == []
    assert len(execution.arguments_of("PublishAlert")) == 1


def test_given_a_failing_decision_when_a_rule_fires_then_the_job_is_not_stopped_and_the_alert_says_undecided(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, failing={"DecideStop"})
    assert execution.arguments_of("StopTrainingJob") == []
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["decision"] == {
        "stop": False,
        "decision": "undecided",
        "why": "Service.Exception: DecideStop is down",
        "stopAt": None,
        "optedIn": False,
    }
    assert ending.status == "FAILED"


def test_given_a_stop_when_made_then_the_decision_was_recorded_before_without_an_outcome(
    machine: dict[str, Any],
) -> None:
    execution, _ = execute(machine, FIRE)
    stop = [name for name, _ in execution.calls if name in {"RecordDecision", "StopTrainingJob", "RecordStop"}]
    assert stop == ["RecordDecision", "StopTrainingJob", "RecordStop"]
    recorded = written(execution, "RecordDecision")
    assert recorded.pop("StopAt")["S"].endswith("Z")
    assert recorded == {
        "StopDecision": {"S": "stop"},
        "StopWhy": {"S": STOP["why"]},
        "StopFireId": {"S": FIRE["fireId"]},
    }
    assert execution.arguments_of("RecordDecision")[0]["UpdateExpression"].endswith(" REMOVE #StopMade")


def test_given_a_decision_that_cannot_be_recorded_when_a_rule_fires_then_nothing_is_stopped_and_people_hear_why(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, failing={"RecordDecision"})
    assert execution.arguments_of("StopTrainingJob") == []
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["stop"]["made"] is False
    assert call["Payload"]["decision"] == {
        "stop": False,
        "decision": "refused",
        "why": "the decision could not be recorded, and what leaves no trace is not done",
        "stopAt": None,
        "optedIn": True,
    }
    assert written(execution, "RecordStop")["StopDecision"] == {"S": "refused"}
    assert (ending.cause or "").startswith("RecordDecision: ")


def test_given_a_newer_fire_in_the_row_when_a_stop_is_decided_then_it_is_not_made_and_that_is_no_fault(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, unmet={"RecordDecision", "RecordStop", "RecordOutcome"})
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("StopTrainingJob") == []
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["decision"]["decision"] == "refused"
    assert call["Payload"]["decision"]["why"].startswith("the rule's row is not that of this fire")
    assert len(execution.arguments_of("PublishAlert")) == 1


@pytest.mark.parametrize(
    "step", ["MarkFired", "NameFire", "RecordDecision", "RecordStop", "RecordOutcome", "RecordReport"]
)
def test_given_a_condition_that_does_not_hold_when_a_row_is_written_then_it_is_tried_once_and_is_no_fault(
    machine: dict[str, Any], step: str
) -> None:
    execution, ending = execute(machine, FIRE, unmet={"MarkFired", step})
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of(step)) == 1
    assert len(execution.arguments_of("NameFire")) == len(execution.arguments_of("PublishAlert")) == 1


def test_given_a_failing_stop_when_a_rule_fires_then_the_alert_is_told_the_error(machine: dict[str, Any]) -> None:
    execution, ending = execute(machine, FIRE, failing={"StopTrainingJob"})
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["stop"] == {"made": False, "error": "Service.Exception: StopTrainingJob is down"}
    assert ending.cause == "StopTrainingJob: Service.Exception: StopTrainingJob is down"


@pytest.mark.parametrize("stopped", [True, False])
def test_given_a_failing_composition_when_a_rule_fires_then_a_plain_alert_says_the_truth_about_the_stop(
    machine: dict[str, Any], stopped: bool
) -> None:
    execution, _ = execute(machine, FIRE, decision=STOP if stopped else REFUSED, failing={"ComposeAlert"})
    (message,) = execution.arguments_of("PublishAlert")
    text = json.loads(message["Message"])["email"]
    assert FIRE["reason"] in text
    assert f"\nReport: {FIRE['reportPage']}\nOpen it in the console: {FIRE['reportLink']}\n" in text
    assert text.endswith(f"\nOr with a link: trainguard open {FIRE['job']}")
    assert f"Training job stopped: {'yes' if stopped else 'no'}\n" in text
    assert {name: each["StringValue"] for name, each in message["MessageAttributes"].items()} == {
        "AlertId": FIRE["fireId"],
        "Job": FIRE["job"],
        "Rule": FIRE["rule"],
        "Kind": "fire",
        "Severity": "high",
        "Stopped": "true" if stopped else "false",
    }
    document = json.loads(json.loads(message["Message"])["sqs"])
    assert document == {**FIRE, "stopMade": stopped, "stopError": None}
    assert "Stopping it failed" not in text


@pytest.mark.parametrize("link", [{"reportLink": None}, {}])
def test_given_a_fire_that_knows_no_console_when_its_plain_alert_goes_out_then_it_names_the_place(
    machine: dict[str, Any], link: dict[str, Any]
) -> None:
    fire = {name: value for name, value in FIRE.items() if name not in {"reportLink", "reportPage"}} | link
    execution, _ = execute(machine, fire, failing={"ComposeAlert"})
    (message,) = execution.arguments_of("PublishAlert")
    text = json.loads(message["Message"])["email"]
    assert f"\nReport: {FIRE['reportUri']}\nOr with a link: " in text


def test_given_a_failing_alert_when_recorded_then_the_row_says_so_and_has_no_alert(machine: dict[str, Any]) -> None:
    execution, _ = execute(machine, FIRE, failing={"PublishAlert"})
    outcome = written(execution, "RecordOutcome")
    assert outcome["Action"]["S"].startswith("alert failed (PublishAlert: Service.Exception")
    assert outcome["Action"]["S"].endswith("training job stopped: yes")
    assert outcome["AlertId"] == {"NULL": True}


@pytest.mark.parametrize("count", [0, 1, 2, 3, len(STEPS) - 1, len(STEPS)])
def test_given_any_set_of_failing_steps_when_a_rule_fires_then_every_other_step_runs_and_every_failure_is_named(
    machine: dict[str, Any], count: int
) -> None:
    for failing in itertools.combinations(STEPS, count):
        unsent = [AGAIN[name] for name in AGAIN if name in failing]
        down = {*failing}
        execution, ending = execute(machine, FIRE, failing=down)
        skipped = {"RecordReport"} if "BuildReport" in failing else set()
        skipped |= {"StopTrainingJob"} if {"DecideStop", "RecordDecision"} & {*failing} else set()
        skipped |= {"RecordDecision"} if "DecideStop" in failing else set()
        looked = {"LookAtJob"} if "StopTrainingJob" in {*failing} - skipped else set()
        assert {name for name, _ in execution.calls} == set(STEPS) - skipped | looked | {*unsent[:1]}
        if unsent:
            assert ending == Ending("FAILED", "Service.Exception", f"{unsent[0]} is down")
            down.clear()
            ending = execution.redrive()
        named = set(failing) - skipped - set(AGAIN)
        assert ending.status == ("FAILED" if named else "SUCCEEDED")
        assert ending.error == (STEP_FAILED if named else None)
        assert {part.split(":")[0] for part in (ending.cause or "").split("; ") if part} == named


def test_given_the_machine_when_read_then_it_is_standard_logged_traced_and_limited_in_time(
    template: Template, machine: dict[str, Any]
) -> None:
    assert_standard_and_logged(template, "ActionsFire")
    assert machine["QueryLanguage"] == "JSONata"
    assert machine["TimeoutSeconds"] == 9 * 86_400


def test_given_the_tasks_when_read_then_each_waits_longer_than_its_function(
    template: Template, machine: dict[str, Any]
) -> None:
    act, report = (branch["States"] for branch in machine["States"]["ActAndReport"]["Branches"])
    states = {**machine["States"], **act, **report}
    functions = {
        "DecideStop": "ActionsDecideStop",
        "DecideAgain": "ActionsDecideStop",
        "ComposeAlert": "ActionsComposeAlert",
        "ComposeWarning": "ActionsComposeAlert",
        "BuildReport": "ReportsBuildReport",
    }
    for name, owner in functions.items():
        assert_outwaits_its_function(template, states[name], owner)
