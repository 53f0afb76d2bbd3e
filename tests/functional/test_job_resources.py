"""What jobs outside SageMaker run on, as the answers of AWS Batch and EC2 say; and decide_stop as it is deployed."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.functional.deployment import Deployment
from trainguard.aws.clients import Clients
from trainguard.aws.stoppable import batch_jobs, instances
from trainguard.core.errors import PortUnavailableError
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.timestamps import iso_time

ARN = "unknown:run-17@team-a/"
JOB = JobRecord("run-17@team-a/", ARN, "profiles", "team-a/", resources=("batch-job/b-1",))
RULE = "LowGPUUtilization"
TAGS = {"trainguard:stop-on-fire": "allowed", "trainguard:job": JOB.job}
BATCH_JOB = {"jobId": "b-1", "status": "RUNNING", "startedAt": 1_000, "tags": TAGS, "isTerminated": False}
INSTANCE = {
    "InstanceId": "i-1",
    "State": {"Name": "running"},
    "LaunchTime": datetime.fromtimestamp(1_000.0, UTC),
    "Tags": [{"Key": "a", "Value": "b"}],
}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


class Answering:
    """Answers each question in the same way, or with an error; nobody stops anything here."""

    def __init__(self, answer: Mapping[str, Any] | None = None, code: str = "") -> None:
        self._answer, self._code = answer, code

    def describe_jobs(self, *, jobs: Sequence[str]) -> Mapping[str, Any]:
        return self._said(jobs)

    def describe_instances(self, *, InstanceIds: Sequence[str]) -> Mapping[str, Any]:  # noqa: N803  # AWS's name.
        return self._said(InstanceIds)

    def terminate_job(self, **_: object) -> Mapping[str, Any]:
        raise NotImplementedError

    stop_instances = terminate_job

    def _said(self, asked: Sequence[str]) -> Mapping[str, Any]:
        assert asked
        if self._answer is None:
            raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, "Describe")
        return self._answer


@pytest.mark.parametrize(
    ("changes", "runs", "started_at", "objection"),
    [
        ({}, True, 1.0, None),
        ({"status": "STARTING"}, False, 1.0, None),
        ({"startedAt": 0}, True, None, None),
        ({"startedAt": None}, True, None, None),
        ({"isTerminated": True}, True, 1.0, "was terminated already"),
    ],
)
def test_described_batch_job_has_its_state(
    changes: dict[str, Any], runs: bool, started_at: float | None, objection: str | None
) -> None:
    (found,) = batch_jobs(Answering({"jobs": [BATCH_JOB | changes]}), ["b-1"])
    assert (found.identity, found.runs, found.started_at, found.objection) == ("b-1", runs, started_at, objection)
    assert found.tags == TAGS
    assert batch_jobs(Answering({"jobs": []}), ["b-1"]) == []


@pytest.mark.parametrize(
    ("changes", "runs", "objection"),
    [
        ({}, True, None),
        ({"State": {"Name": "stopping"}}, False, None),
        ({"InstanceLifecycle": "spot"}, True, "is of the lifecycle spot"),
        ({"Tags": [{"Key": "aws:autoscaling:groupName", "Value": "g"}]}, True, "belongs to an Auto Scaling group"),
    ],
)
def test_given_an_instance_when_described_then_its_state_is_read(
    changes: dict[str, Any], runs: bool, objection: str | None
) -> None:
    (found,) = instances(Answering({"Reservations": [{"Instances": [INSTANCE | changes]}]}), ["i-1"])
    assert (found.identity, found.runs, found.started_at) == ("i-1", runs, 1_000.0)
    assert (found.objection or "").startswith(objection or "")
    assert (found.objection is None) == (objection is None)


def test_missing_instance_is_described_as_none() -> None:
    assert instances(Answering(code="InvalidInstanceID.NotFound"), ["i-1"]) == []
    with pytest.raises(PortUnavailableError, match="EC2"):
        instances(Answering(code="UnauthorizedOperation"), ["i-1"])
    with pytest.raises(PortUnavailableError, match="Batch"):
        batch_jobs(Answering(code="AccessDenied"), ["b-1"])


@pytest.mark.parametrize(
    ("stoppable", "decision"), [("batch-job", "stop"), ("instance", "refused"), ("none", "refused")]
)
def test_outside_job_stops_only_where_the_deployment_allows(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, stoppable: str, decision: str
) -> None:
    now = time.time()
    began = {"startedAt": int((now - 7_200.0) * 1_000.0)}
    monkeypatch.setattr(Clients, "batch", Answering({"jobs": [BATCH_JOB | began]}))
    deployment.stoppable_resources = stoppable
    deployment.world.jobs.register(JOB)
    row = RuleRow(JOB.job, Finding(RULE, None, "low."), Status.FIRED, evaluated_through=now)
    deployment.world.rows.publish([row])
    _mark(deployment)
    case = {
        "job": JOB.job,
        "jobArn": ARN,
        "rule": RULE,
        "fireId": "f1",
        "episode": 0,
        "node": "*",
        "reason": "low.",
        "reportUri": "s3://profiles/report.json",
        "firedAt": iso_time(now - 60.0),
        "attempt": "final",
    }
    answer = deployment.function("decide_stop")(case).value
    assert answer["decision"] == decision, answer
    if decision == "stop":
        assert (answer["kind"], answer["resources"]) == ("batch-job", ["b-1"])


def _mark(deployment: Deployment) -> None:
    deployment.clients.dynamodb.update_item(
        TableName="RuleState",
        Key={"TrainingJobName": {"S": JOB.job}, "RuleTarget": {"S": RULE}},
        UpdateExpression="SET FireId = :fire",
        ExpressionAttributeValues={":fire": {"S": "f1"}},
    )
