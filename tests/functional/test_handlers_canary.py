"""canary as it is deployed, on moto: planted, found by the evaluator, looked at."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.functional.deployment import BUCKET, Context, Deployment, object_message, ringing
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.core.canary_name import canary_name, planted_at
from trainguard.stack.canary import RULE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

PLANT = {"step": "plant", "time": "2026-08-01T06:00:00Z"}
LOOK = {"step": "look", "time": "2026-08-01T06:15:00Z"}
AT = 1_785_564_000.0
JOB = canary_name(AT, Context("canary", iter(())).aws_request_id)
REPORT = f"{JOB}/rule-output/TrainGuardReport/report.json"
TOLD: Mapping[str, "AttributeValueTypeDef"] = {
    "AlertId": {"S": "f1"},
    "Action": {"S": "Training job not stopped."},
    "ActionAt": {"S": "2026-08-01T06:00:48.000Z"},
    "StopDecision": {"S": "refused"},
    "StopWhy": {"S": "SageMaker does not know it"},
    "ReportUri": {"S": f"s3://{BUCKET}/{JOB}/rule-output/TrainGuardReport/report.html"},
}


def planted(deployment: Deployment) -> list[str]:
    """Return the keys in the bucket, oldest minute first."""
    return [each.key for each in S3ProfileObjects(client=deployment.clients.s3).list(BUCKET, "trainguard-canary-", "")]


def evaluate(deployment: Deployment, at: float = AT) -> Any:
    """Let the evaluator get the events of everything that was planted, and of its own tasks."""
    function = deployment.function("evaluate_objects")
    answer = function(ringing([object_message(key, at=at) for key in planted(deployment)]))
    function(deployment.tasks())
    return answer


def test_planted_canary_is_found_and_starts_one_execution(
    deployment: Deployment,
) -> None:
    answer = deployment.function("canary")(PLANT)
    evaluated = evaluate(deployment)
    (payload,) = deployment.world.started().values()
    assert answer.value == {"job": JOB}
    assert planted_at(JOB) == AT
    assert evaluated.value == {"batchItemFailures": []}
    assert (payload["job"], payload["rule"], payload["kind"]) == (JOB, RULE, "fire")


def test_alerted_and_reported_canary_passes_with_its_latency(
    deployment: Deployment,
) -> None:
    deployment.function("canary")(PLANT)
    evaluate(deployment)
    deployment.reconcile_jobs()
    deployment.world.update_row(JOB, RULE, TOLD)
    deployment.clients.s3.put_object(Bucket=BUCKET, Key=REPORT, Body=b"{}")
    answer = deployment.function("canary")(LOOK)
    assert answer.value == {"job": JOB, "passed": True, "missing": []}
    assert answer.metrics == {"CanaryPassed": 1, "CanaryLatencySeconds": 48.0}
    assert answer.dimensions == {("service",)}


def test_unalerted_canary_logs_what_is_missing(
    deployment: Deployment,
) -> None:
    deployment.function("canary")(PLANT)
    answer = deployment.function("canary")(LOOK)
    (line,) = (line for line in answer.logged if line["message"] == "canary_failed")
    assert answer.value["passed"] is False
    assert answer.metrics == {"CanaryPassed": 0, "CanaryFailed": 1}
    assert (line["level"], line["job"]) == ("WARNING", JOB)
    assert "has no row" in line["reason"]


def test_canary_as_a_training_job_goes_the_whole_way(deployment: Deployment) -> None:
    deployment.plant_jobs()
    # moto says when a job was created.
    now = datetime.now(UTC)
    plant, look, end = (
        {"step": step, "time": (now + timedelta(minutes=minutes)).isoformat()}
        for step, minutes in (("plant", 0), ("look", 15), ("end", 30))
    )
    planting = deployment.function("canary")
    job = planting(plant).value["job"]
    deployment.set_status("InProgress", name=job)
    assert planting(plant).value["job"] == job
    deployment.set_status("InProgress", name=job)
    evaluate(deployment, now.timestamp())
    deployment.reconcile_jobs()
    item = deployment.world.job(job)
    (payload,) = deployment.world.started().values()
    assert item["TrainingJobArn"]["S"].startswith("arn:aws:sagemaker:")
    assert (item["Canary"], item["StopAllowed"]) == ({"BOOL": True}, {"BOOL": True})
    assert item["Status"] == {"S": "InProgress"}
    assert (payload["job"], payload["canary"]) == (job, True)
    deployment.function("record_fire")({"fire": payload})
    case = {**payload, "attempt": "first"}
    decision = deployment.function("decide_stop")(case).value
    assert (decision["decision"], decision["optedIn"]) == ("dry-run", True)
    page = f"s3://{BUCKET}/{job}/rule-output/TrainGuardReport/report.json"
    told: dict[str, AttributeValueTypeDef] = {**TOLD, "StopDecision": {"S": "dry-run"}, "ReportUri": {"S": page}}
    deployment.world.update_row(job, RULE, told)
    deployment.clients.s3.put_object(Bucket=BUCKET, Key=page.removeprefix(f"s3://{BUCKET}/"), Body=b"{}")
    canary = deployment.function("canary")
    assert canary(look).value == {"job": job, "passed": True, "missing": []}
    assert deployment.clients.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "Stopping"
    early = canary(end)
    assert early.metrics == {"CanaryFailed": 1}
    deployment.set_status("Stopped", name=job)
    assert deployment.function("job_lifecycle")({"detail": {"TrainingJobName": job}}).value["followed"]
    deployment.function("evaluate_objects")(deployment.tasks())
    deployment.reconcile_jobs()
    ended = deployment.function("canary")(end)
    assert ended.value == {"job": job, "passed": True, "missing": []}
    assert ended.metrics == {}


def test_second_canary_removes_the_first(deployment: Deployment) -> None:
    canary = deployment.function("canary")
    canary({"step": "plant", "time": "2026-07-31T06:00:00Z"})
    canary(PLANT)
    assert {key.partition("/")[0] for key in planted(deployment)} == {JOB}


@pytest.mark.parametrize("asked", [{}, {"step": "dance", "time": PLANT["time"]}, {"step": "plant", "time": "today"}])
def test_invalid_canary_call_fails_and_writes_nothing(deployment: Deployment, asked: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"step|time|Invalid"):
        deployment.function("canary")(asked)
    assert planted(deployment) == []
