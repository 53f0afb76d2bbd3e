"""Stops outside SageMaker: nothing of them by default, each behind its switch, bound to tags by IAM, and looked up."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infra.constructs.fire_machine import definition
from tests.infra.states_language import Execution, TaskError
from tests.infra.template import Template

TAGGED = {
    "StringEquals": {"aws:ResourceTag/trainguard:stop-on-fire": "allowed"},
    "Null": {"aws:ResourceTag/trainguard:stop-exempt": "true", "aws:ResourceTag/trainguard:job": "false"},
}
BATCH = (
    "StopOptedInBatchJobs",
    ("batch:TerminateJob",),
    "arn:{AWS::Partition}:batch:{AWS::Region}:{AWS::AccountId}:job/*",
)
INSTANCES = (
    "StopOptedInInstances",
    ("ec2:StopInstances",),
    "arn:{AWS::Partition}:ec2:{AWS::Region}:{AWS::AccountId}:instance/*",
)


def states(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = definition(**given)["States"]["ActAndReport"]["Branches"][0]["States"]
    return found


def test_given_the_default_when_synthesised_then_no_role_and_no_state_speaks_of_other_resources(
    template: Template,
) -> None:
    actions = {action for _, each in template.role_statements() for action in each.actions}
    assert not any(action.startswith(("batch:", "ec2:Stop", "ec2:DescribeInstances")) for action in actions)
    assert "TerminateBatchJob" not in states()
    assert states()["IsRecorded"]["Choices"][0]["Next"] == "StopTrainingJob"


@pytest.mark.parametrize(("variant", "wanted"), [("stops", [BATCH, INSTANCES]), ("digest", [INSTANCES])])
def test_given_a_switch_when_synthesised_then_the_fire_role_stops_what_its_owner_tagged_and_nothing_else(
    variants: Path, variant: str, wanted: list[tuple[str, tuple[str, ...], str]]
) -> None:
    template = Template(variants / variant / "TrainGuard.template.json")
    held = [each for role, each in template.role_statements() if role == "ActionsFireRole"]
    stops = [
        each for each in held if any(action in {"batch:TerminateJob", "ec2:StopInstances"} for action in each.actions)
    ]
    assert [(each.sid, each.actions, each.resources[0]) for each in stops] == wanted
    assert all(each.condition == TAGGED for each in stops)
    decides = {
        action
        for role, each in template.role_statements()
        if role == "ActionsDecideStopRole"
        for action in each.actions
    }
    assert not any("Terminate" in action or "ec2:Stop" in action for action in decides)
    assert "ec2:DescribeInstances" in decides


@pytest.mark.parametrize(
    ("stoppable", "kinds"),
    [
        (("batch-job",), {"batch-job"}),
        (("instance",), {"instance"}),
        (("batch-job", "instance"), {"batch-job", "instance"}),
    ],
    ids=["batch", "instances", "both"],
)
def test_given_kinds_when_defined_then_each_has_its_call_its_look_and_the_record_before_and_after(
    stoppable: tuple[str, ...], kinds: set[str]
) -> None:
    found = states(stoppable=stoppable)
    assert found["IsRecorded"]["Choices"][0]["Next"] == "WhatToStop"
    choices = {choice["Condition"]: choice["Next"] for choice in found["WhatToStop"]["Choices"]}
    calls = {"batch-job": "TerminateBatchJob", "instance": "StopInstances"}
    assert choices == {f"{{% $decision.kind = '{kind}' %}}": calls[kind] for kind in kinds}
    assert found["WhatToStop"]["Default"] == "StopTrainingJob"
    for kind in kinds:
        call = found[calls[kind]]
        assert call["Next"] == "RecordStop"
        look = found[call["Catch"][0]["Next"]]
        assert look["Next"] == look["Catch"][0]["Next"] == "RecordStop"
        assert call["Assign"] == {"stop": {"made": True, "error": None}}
    assert "aws-sdk:ec2" in json.dumps(found) or "instance" not in kinds


FIRE = {
    "kind": "fire",
    "job": "run-17",
    "jobArn": "unknown:run-17",
    "rule": "LowGPUUtilization",
    "fireId": "f1",
    "episode": 0,
    "node": "*",
    "reason": "low.",
    "firedAt": "2026-11-23T08:00:00.000Z",
    "reportUri": "s3://profiles/report.json",
}
ALERT: dict[str, Any] = {
    **dict.fromkeys(("alertId", "subject", "text", "json", "chat", "action", "waiting"), ""),
    "document": {},
    "attributes": {},
    "send": False,
    "waitUntil": None,
}
GONE = TaskError("Client.Gone", "the answer is lost")


def stopped(decision: dict[str, Any], **answers: Any) -> tuple[Execution, dict[str, Any]]:
    """Run a fire with a decision; return the execution, and what was told of the stop."""
    told: list[dict[str, Any]] = []

    def answer(given: Any, _: Any) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    def compose(arguments: Any) -> Any:
        told.append(arguments["Payload"]["stop"])
        return {"Payload": ALERT}

    written = ("MarkFired", "RecordDecision", "RecordStop", "EmitEvent", "RecordOutcome", "RecordReport")
    tasks: dict[str, Any] = dict.fromkeys(written, lambda _: {})
    tasks |= {
        "DecideStop": lambda _: {"Payload": decision},
        "ComposeAlert": compose,
        "BuildReport": lambda _: {"Payload": {"reportUri": "s3://profiles/report.json"}},
        **{name: partial(answer, given) for name, given in answers.items()},
    }
    execution = Execution(definition(("batch-job", "instance")), tasks)
    execution.run(dict(FIRE))
    return execution, told[0]


def decided(kind: str, *resources: str) -> dict[str, Any]:
    said = {"stop": True, "decision": "stop", "why": "", "stopAt": None, "optedIn": True}
    return {**said, "kind": kind, "resources": list(resources)} if kind else said


def test_given_a_decision_when_executed_then_its_kind_s_call_is_made_and_no_other() -> None:
    execution, stop = stopped(decided("batch-job", "b-1"), TerminateBatchJob={})
    assert stop == {"made": True, "error": None}
    assert execution.arguments_of("TerminateBatchJob") == [
        {"JobId": "b-1", "Reason": "TrainGuard: LowGPUUtilization fired"}
    ]
    execution, _ = stopped(decided("instance", "i-1", "i-2"), StopInstances={})
    assert execution.arguments_of("StopInstances") == [{"InstanceIds": ["i-1", "i-2"]}]
    execution, _ = stopped(decided(""), StopTrainingJob={})
    assert execution.arguments_of("StopTrainingJob") == [{"TrainingJobName": "run-17"}]


@pytest.mark.parametrize(
    ("decision", "answers", "made"),
    [
        (decided("batch-job", "b"), {"LookAtBatchJob": {"Jobs": [{"IsTerminated": True}]}}, True),
        (decided("batch-job", "b"), {"LookAtBatchJob": {"Jobs": [{"IsTerminated": False}]}}, False),
        (decided("batch-job", "b"), {"LookAtBatchJob": {"Jobs": []}}, False),
        (decided("batch-job", "b"), {"LookAtBatchJob": GONE}, False),
        (
            decided("instance", "i"),
            {"LookAtInstances": {"Reservations": [{"Instances": [{"State": {"Name": "stopping"}}]}]}},
            True,
        ),
        (
            decided("instance", "i", "j"),
            {
                "LookAtInstances": {
                    "Reservations": [
                        {"Instances": [{"State": {"Name": "stopped"}}]},
                        {"Instances": [{"State": {"Name": "running"}}]},
                    ]
                }
            },
            False,
        ),
        (
            decided("instance", "i", "j"),
            {
                "LookAtInstances": {
                    "Reservations": [{"Instances": [{"State": {"Name": "stopped"}}, {"State": {"Name": "stopping"}}]}]
                }
            },
            True,
        ),
        (decided("instance", "i"), {"LookAtInstances": {"Reservations": []}}, False),
    ],
    ids=["terminated", "runs", "unknown", "no-answer", "stopping", "one-of-two", "two-of-two", "none"],
)
def test_given_a_call_whose_answer_is_lost_when_looked_then_the_resource_says_whether_it_was_stopped(
    decision: dict[str, Any], answers: dict[str, Any], made: bool
) -> None:
    _, stop = stopped(decision, TerminateBatchJob=GONE, StopInstances=GONE, **answers)
    assert stop["made"] is made
    assert (stop["error"] is None) is made
