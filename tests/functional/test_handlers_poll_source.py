"""poll_source as it is deployed, on moto: the scheduler asks for a poll, and a log becomes steps that are judged."""

from dataclasses import replace
from typing import Any

import pytest

from tests.functional.deployment import BUCKET, JOB, Deployment, event, object_message, ringing
from tests.functional.offline import LAMBDA
from tests.support.wandb_files import run, run_file, stats
from trainguard.core.job_policy import JobPolicy
from trainguard.core.records import JobRecord
from trainguard.stack.polling.delivery import read_status, status_key

GROUP = "/aws/sagemaker/TrainingJobs"

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def polled(deployment: Deployment) -> Deployment:
    """Return a deployment with a running job that names its log as its source."""
    deployment.create_training_job(tags={"trainguard:source": "logs"})
    deployment.function("job_lifecycle")(event("training_job_in_progress"))
    return deployment


def the_job(deployment: Deployment) -> JobRecord:
    job = deployment.world.jobs.load(JOB)
    assert job is not None
    return job


def log(deployment: Deployment, begun: float, *lines: str) -> None:
    client: Any = deployment.clients.session.create_client("logs", region_name="us-east-1")
    client.create_log_group(logGroupName=GROUP)
    client.create_log_stream(logGroupName=GROUP, logStreamName=f"{JOB}/algo-1")
    events = [{"timestamp": int((begun + 10.0 * number) * 1_000), "message": line} for number, line in enumerate(lines)]
    client.put_log_events(logGroupName=GROUP, logStreamName=f"{JOB}/algo-1", logEvents=events)


def test_scheduler_requests_a_poll_of_a_job_with_a_source(polled: Deployment) -> None:
    assert the_job(polled).policy.source == "logs"
    polled.reconcile_jobs()
    (asked,) = LAMBDA.polls
    assert asked["job"] == JOB


def test_scheduler_requests_no_poll_without_a_source(deployment: Deployment) -> None:
    deployment.create_training_job()
    deployment.function("job_lifecycle")(event("training_job_in_progress"))
    deployment.reconcile_jobs()
    assert not LAMBDA.polls


def test_losses_of_a_polled_log_are_judged_as_scalars(polled: Deployment) -> None:
    job = the_job(polled)
    begun = (job.started_at or job.created_at or 0.0) // 60.0 * 60.0
    log(polled, begun, *(f"step {number} loss: {'nan' if number > 8 else 1.0}" for number in range(12)))
    answer = polled.function("poll_source")({"job": JOB, "at": begun + 300.0})
    assert answer.value == {"through": begun + 180.0, "fault": ""}
    (written,) = (
        each.key for each in polled.world.objects.list(BUCKET, job.root.folder, "") if "tensorboard" in each.key
    )
    polled.function("evaluate_objects")(ringing([object_message(written, at=begun + 301.0)]))
    rows = {row.rule: row for row in polled.world.rows.of_job(JOB) if row.rule.startswith("training/")}
    assert rows["training/TrainingDiverged"].finding.reason


def test_polled_stack_without_log_access_says_so(
    polled: Deployment,
) -> None:
    polled.live_sources = "prometheus+https://prom.example.com"
    begun = the_job(polled).started_at or 0.0
    answer = polled.function("poll_source")({"job": JOB, "at": begun + 600.0})
    assert "of a kind that this stack does not read" in answer.value["fault"]
    assert answer.metrics["SourcePollsFailed"] == 1.0
    job = the_job(polled)
    status = read_status(polled.world.objects, job.bucket, status_key(job.root, "source"))
    assert status is not None
    assert status.fault == answer.value["fault"]


def test_written_run_file_gets_its_minutes_beside_it(
    deployment: Deployment,
) -> None:
    at = 1_800_000_000.0
    key = "runs/bert/wandb/run-1/run-abc.wandb"
    body = run_file([run(at=at), *(stats(at + 30.0 * number, {"gpu.0.gpu": 40.0}) for number in range(9))])
    deployment.world.objects.put(BUCKET, key, body, "application/octet-stream")
    written = {"source": "aws.s3", "detail": {"bucket": {"name": BUCKET}, "object": {"key": key}}}
    assert deployment.function("poll_source")(written).value == {"through": at + 240.0, "fault": ""}
    minutes = list(deployment.world.objects.list(BUCKET, "runs/bert/profiler-output/", ""))
    assert len(minutes) == 4


def test_item_without_a_source_names_none(deployment: Deployment) -> None:
    deployment.create_training_job()
    deployment.function("job_lifecycle")(event("training_job_in_progress"))
    job = the_job(deployment)
    assert job.policy.source == ""
    stored = replace(job, job="other", policy=JobPolicy(source="prometheus pod=a"))
    deployment.world.jobs.register(stored)
    known = deployment.world.jobs.load("other")
    assert known is not None
    assert known.policy.source == "prometheus pod=a"
