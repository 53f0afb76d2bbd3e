"""Stops outside SageMaker: nothing of them by default, each behind its switch, bound to tags by IAM, and looked up."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from tests.infra.template import Template
from tests.support.fires import fire_of
from trainguard.aws.stop_calls import AwsStopCalls
from trainguard.stack.actions.fire_row import Recorded
from trainguard.stack.actions.request import StopResult
from trainguard.stack.actions.stop_job import carry_out
from trainguard.stack.actions.stop_resources import ResourceDecision

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


def test_default_stack_has_no_role_or_state_for_other_resources(
    template: Template,
) -> None:
    actions = {action for _, each in template.role_statements() for action in each.actions}
    assert not any(action.startswith(("batch:", "ec2:Stop", "ec2:DescribeInstances")) for action in actions)


@pytest.mark.parametrize(("variant", "wanted"), [("stops", [BATCH, INSTANCES]), ("digest", [INSTANCES])])
def test_switch_lets_one_role_stop_only_what_its_owner_tagged(
    variants: Path, variant: str, wanted: list[tuple[str, tuple[str, ...], str]]
) -> None:
    template = Template(variants / variant / "TrainGuard.template.json")
    held = [each for role, each in template.role_statements() if role == "ActionsStopJobRole"]
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


FIRE = fire_of("run-17", "arn:run-17", "LowGPUUtilization", at=0.0)
GONE = ClientError({"Error": {"Code": "Gone", "Message": "the answer is lost"}}, "Stop")


class Service:
    """A service that answers each of its calls as a test says, and notes what it was asked."""

    def __init__(self, answers: dict[str, Any], asked: list[Any]) -> None:
        self._answers = answers
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self._asked.append((name, arguments))
            answer = self._answers.get(name, {})
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Rows:
    """Takes every record of a stop."""

    def record_decision(self, *_: Any, **__: Any) -> Recorded:
        return "written"

    def record_stop(self, *_: Any, **__: Any) -> None:
        return


def stopped(decision: ResourceDecision, **answers: Any) -> tuple[list[Any], StopResult]:
    """Carry a decision out; return what the services were asked, and what came of the stop."""
    asked: list[Any] = []
    service = Service(answers, asked)
    clients = cast("Any", SimpleNamespace(sagemaker=service, batch=service, ec2=service))
    calls = AwsStopCalls(clients, cast("Any", None), time.time)
    outcome = carry_out(FIRE, decision, cast("Any", Rows()), calls, now=0.0)
    return asked, outcome.stop


def decided(kind: str, *resources: str) -> ResourceDecision:
    return ResourceDecision(stop=True, decision="stop", kind=kind, resources=resources)


def test_decision_leads_to_the_call_of_its_kind_alone() -> None:
    reason = "TrainGuard: LowGPUUtilization fired"
    made = StopResult(made=True)
    assert stopped(decided("batch-job", "b-1")) == ([("terminate_job", {"jobId": "b-1", "reason": reason})], made)
    ids = {"InstanceIds": ["i-1", "i-2"]}
    assert stopped(decided("instance", "i-1", "i-2")) == ([("stop_instances", ids)], made)
    assert stopped(decided("")) == ([("stop_training_job", {"TrainingJobName": "run-17"})], made)


def test_refusal_leads_to_no_call() -> None:
    assert stopped(ResourceDecision(decision="refused")) == ([], StopResult())


def held(*states: str) -> dict[str, Any]:
    """Return how EC2 describes instances in these states, each of a reservation of its own."""
    return {"Reservations": [{"Instances": [{"State": {"Name": state}}]} for state in states]}


def job(status: str, arn: str = "arn:run-17") -> dict[str, Any]:
    return {"TrainingJobStatus": status, "TrainingJobArn": arn}


@pytest.mark.parametrize(
    ("decision", "answers", "made"),
    [
        (decided(""), {"describe_training_job": job("Stopping")}, True),
        (decided(""), {"describe_training_job": job("Stopped")}, True),
        (decided(""), {"describe_training_job": job("InProgress")}, False),
        (decided(""), {"describe_training_job": job("Completed")}, False),
        (decided(""), {"describe_training_job": job("Stopping", "arn:another")}, False),
        (decided(""), {"describe_training_job": GONE}, None),
        (decided("batch-job", "b"), {"describe_jobs": {"jobs": [{"isTerminated": True}]}}, True),
        (decided("batch-job", "b"), {"describe_jobs": {"jobs": [{"isTerminated": False}]}}, False),
        (decided("batch-job", "b"), {"describe_jobs": {"jobs": []}}, False),
        (decided("batch-job", "b"), {"describe_jobs": GONE}, None),
        (decided("instance", "i"), {"describe_instances": held("stopping")}, True),
        (decided("instance", "i", "j"), {"describe_instances": held("stopped", "running")}, False),
        (decided("instance", "i", "j"), {"describe_instances": held("stopped", "stopping")}, True),
        (decided("instance", "i"), {"describe_instances": held()}, False),
    ],
)
def test_lost_answer_is_looked_up(decision: ResourceDecision, answers: dict[str, Any], made: bool | None) -> None:
    lost = dict.fromkeys(("stop_training_job", "terminate_job", "stop_instances"), GONE)
    _, stop = stopped(decision, **lost, **answers)
    assert stop.made is made
    assert (stop.error is None) is (made is True)
