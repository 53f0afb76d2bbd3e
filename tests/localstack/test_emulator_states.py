"""Step Functions on the emulator: JSONata, parallel branches with their own Catch, and AWS integrations."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.emulator_kit import (
    ROLE,
    make_function,
    make_queue,
    make_table,
    make_training_job,
    receive,
    until,
)

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


def _make_machine(emulator: Emulator, name: str, start: str, states: dict[str, Any]) -> str:
    definition = {"QueryLanguage": "JSONata", "StartAt": start, "States": states}
    arn: str = emulator.client("stepfunctions").create_state_machine(
        name=name, definition=json.dumps(definition), roleArn=ROLE
    )["stateMachineArn"]
    return arn


def _run(emulator: Emulator, machine: str, name: str, data: object) -> dict[str, Any]:
    client = emulator.client("stepfunctions")
    arn = client.start_execution(stateMachineArn=machine, name=name, input=json.dumps(data))["executionArn"]
    return _wait(emulator, arn)


def _wait(emulator: Emulator, execution: str) -> dict[str, Any]:
    client = emulator.client("stepfunctions")

    def ended() -> dict[str, Any] | None:
        description: dict[str, Any] = client.describe_execution(executionArn=execution)
        return None if description["status"] == "RUNNING" else description

    return until(ended, what=f"end of {execution}")


def _caught(next_state: str) -> list[dict[str, Any]]:
    return [{"ErrorEquals": ["States.ALL"], "Output": "{% $states.errorOutput %}", "Next": next_state}]


def _stop_branch() -> dict[str, Any]:
    return {
        "StartAt": "Stop",
        "States": {
            "Stop": {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:sagemaker:stopTrainingJob",
                "Arguments": {"TrainingJobName": "{% $job %}"},
                "Catch": _caught("NotStopped"),
                "Next": "Describe",
            },
            "Describe": {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob",
                "Arguments": {"TrainingJobName": "{% $job %}"},
                "Output": {
                    "status": "{% $states.result.TrainingJobStatus %}",
                    "created_ms": "{% $toMillis($states.result.CreationTime) %}",
                },
                "End": True,
            },
            "NotStopped": {"Type": "Pass", "Output": {"error": "{% $states.input.Error %}"}, "End": True},
        },
    }


def _report_branch(function: str) -> dict[str, Any]:
    return {
        "StartAt": "Report",
        "States": {
            "Report": {
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Arguments": {"FunctionName": function, "Payload": {"job": "{% $job %}", "text": "{% $text %}"}},
                "Output": "{% $states.result.Payload %}",
                "Catch": _caught("NotReported"),
                "End": True,
            },
            "NotReported": {"Type": "Pass", "Output": {"error": "{% $states.input.Error %}"}, "End": True},
        },
    }


def _fire_states(function: str, table: str, topic: str) -> dict[str, Any]:
    """Return the product's shape in small: remember, stop and report side by side, record, tell."""
    return {
        "Remember": {
            "Type": "Pass",
            "Assign": {"job": "{% $states.input.job %}", "text": "{% $states.input.text %}"},
            "Next": "Act",
        },
        "Act": {
            "Type": "Parallel",
            "Branches": [_stop_branch(), _report_branch(function)],
            "Assign": {"stop": "{% $states.result[0] %}", "report": "{% $states.result[1] %}"},
            "Next": "Record",
        },
        "Record": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:dynamodb:updateItem",
            "Arguments": {
                "TableName": table,
                "Key": {"id": {"S": "{% $job %}"}},
                "UpdateExpression": "SET Stopped = :stop, Report = :report",
                "ExpressionAttributeValues": {
                    ":stop": {"S": "{% $string($stop) %}"},
                    ":report": {"S": "{% $string($report) %}"},
                },
            },
            "Next": "Count",
        },
        "Count": {
            "Type": "Task",
            "Resource": "arn:aws:states:::dynamodb:updateItem",
            "Arguments": {
                "TableName": table,
                "Key": {"id": {"S": "{% $job %}"}},
                "UpdateExpression": "ADD Fires :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            },
            "Next": "Tell",
        },
        "Tell": {
            "Type": "Task",
            "Resource": "arn:aws:states:::sns:publish",
            "Arguments": {
                "TopicArn": topic,
                "Message": "{% $string({'job': $job, 'text': $text}) %}",
                "MessageAttributes": {
                    "Severity": {"DataType": "String", "StringValue": "{% $states.input.none ? 'low' : 'high' %}"}
                },
            },
            "Output": {"stop": "{% $stop %}", "report": "{% $report %}"},
            "End": True,
        },
    }


@pytest.fixture(scope="module")
def fire(emulator: Emulator) -> tuple[str, str]:
    """The state machine's ARN, and the URL of a queue that gets the alerts of high severity."""
    source = """
def handler(event, context):
    if event["job"] == "unreported":
        raise RuntimeError("no report")
    return {"length": len(event["text"])}
"""
    function = make_function(emulator, "fire-report", source)
    make_table(emulator, "fires")
    sns = emulator.client("sns")
    topic = sns.create_topic(Name="alerts")["TopicArn"]
    url, queue = make_queue(emulator, "alerts")
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=queue,
        Attributes={"RawMessageDelivery": "true", "FilterPolicy": json.dumps({"Severity": ["high"]})},
    )
    return _make_machine(emulator, "fire", "Remember", _fire_states(function, "fires", topic)), url


def test_fire_of_a_running_job_stops_reports_records_and_alerts(emulator: Emulator, fire: tuple[str, str]) -> None:
    machine, alerts = fire
    make_training_job(emulator, "fired")
    text = 'quotes " and \\ backslashes\nand $names, {% %}, ümlauts'

    execution = _run(emulator, machine, "fired", {"job": "fired", "text": text})

    output = json.loads(execution["output"])
    assert execution["status"] == "SUCCEEDED"
    assert output["report"] == {"length": len(text)}
    assert output["stop"]["status"] in {"Stopping", "Stopped"}
    created = datetime.fromtimestamp(output["stop"]["created_ms"] / 1000, UTC)
    described = emulator.client("sagemaker").describe_training_job(TrainingJobName="fired")
    assert abs(created - described["CreationTime"]) < timedelta(seconds=1)
    item = emulator.resource("dynamodb").Table("fires").get_item(Key={"id": "fired"})["Item"]
    assert json.loads(item["Report"]) == {"length": len(text)}
    assert item["Fires"] == 1
    message = until(lambda: receive(emulator, alerts), what="alert")[0]
    assert json.loads(message["Body"]) == {"job": "fired", "text": text}
    assert len(emulator.sagemaker_calls(action="StopTrainingJob", job="fired")) == 1


@pytest.mark.thorough
def test_both_failing_branches_of_a_fire_are_caught_separately(emulator: Emulator, fire: tuple[str, str]) -> None:
    machine, alerts = fire

    execution = _run(emulator, machine, "unreported", {"job": "unreported", "text": ""})

    assert json.loads(execution["output"]) == {
        "stop": {"error": "SageMaker.SageMakerException"},
        "report": {"error": "RuntimeError"},
    }
    assert until(lambda: receive(emulator, alerts), what="alert")


def test_repeated_execution_name_is_refused_for_other_input(
    emulator: Emulator,
) -> None:
    machine = _make_machine(emulator, "waits", "Wait", {"Wait": {"Type": "Wait", "Seconds": 5, "End": True}})
    client = emulator.client("stepfunctions")

    def start(data: str) -> str:
        arn: str = client.start_execution(stateMachineArn=machine, name="once", input=data)["executionArn"]
        return arn

    first = start('{"n": 1}')

    assert start('{"n": 1}') == first
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        start('{"n": 2}')
    _wait(emulator, first)
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        start('{"n": 1}')


def test_jsonata_expressions_give_the_values_of_jsonata(emulator: Emulator) -> None:
    output = {
        "sum": "{% $sum($states.input.rows.value) %}",
        "kept_null": "{% $states.input.none %}",
        "one_in_a_list": "{% [$states.input.rows[value > 2].name] %}",
        "parsed": "{% $parse($states.input.json).a %}",
        "hash": "{% $hash('abc', 'SHA-256') %}",
        "name": "{% $states.context.Execution.Name %}",
        "parts": "{% $partition([1..5], 2) %}",
        "range": "{% $range(1, 9, 4) %}",
        "seen": "{% $seen %}",
    }
    states = {
        "See": {"Type": "Pass", "Assign": {"seen": {"deep": "{% $states.input.rows[0] %}"}}, "Next": "Say"},
        "Say": {"Type": "Pass", "Output": output, "End": True},
    }
    rows = [{"name": "a", "value": 1}, {"name": "b", "value": 2.5}]
    machine = _make_machine(emulator, "expressions", "See", states)

    execution = _run(emulator, machine, "expressions", {"rows": rows, "none": None, "json": '{"a": [1]}'})

    assert json.loads(execution["output"]) == {
        "sum": 3.5,
        "kept_null": None,
        "one_in_a_list": ["b"],
        "parsed": [1],
        "hash": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "name": "expressions",
        "parts": [[1, 2], [3, 4], [5]],
        "range": [1, 5, 9],
        "seen": {"deep": rows[0]},
    }


def test_expression_without_a_result_is_caught_by_its_error(
    emulator: Emulator,
) -> None:
    catch = [{"ErrorEquals": ["States.QueryEvaluationError"], "Next": "Caught"}]
    states = {
        "Ask": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob",
            "Arguments": {"TrainingJobName": "{% $states.input.missing %}"},
            "Catch": catch,
            "End": True,
        },
        "Caught": {"Type": "Pass", "Output": "caught", "End": True},
    }
    machine = _make_machine(emulator, "undefined", "Ask", states)

    execution = _run(emulator, machine, "undefined", {})

    assert (execution["status"], json.loads(execution["output"])) == ("SUCCEEDED", "caught")
