"""job_lifecycle as it is deployed: whatever order events come in, the job's item says what SageMaker says."""

from dataclasses import replace
from itertools import permutations

import pytest

from tests.functional.deployment import (
    BUCKET,
    JOB,
    OPTED_IN,
    PREFIX,
    Deployment,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from trainguard.core.ports import StreamTask
from trainguard.core.records import JobRecord, JobStatus

FINAL = ("Completed", "Failed", "Stopped")
CLOSE_ALL = {StreamTask(JOB, f"algo-{number}", "system", "close") for number in (1, 2)}
FOLLOWED = {"job": JOB, "followed": True}
NOT_FOLLOWED = {"job": JOB, "followed": False}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def stored(deployment: Deployment) -> JobRecord:
    """Return the job's item, which must exist."""
    record = deployment.world.jobs.load(JOB)
    assert record is not None
    return record


def test_started_job_is_registered_once(deployment: Deployment) -> None:
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:LowGPUUtilization_threshold_p95": "60"})
    follow = deployment.function("job_lifecycle")
    for _ in range(2):
        assert follow(event("training_job_in_progress")).value == FOLLOWED
    job = stored(deployment)
    assert (job.bucket, job.prefix, job.status) == (BUCKET, PREFIX, JobStatus.IN_PROGRESS)
    assert (job.instance_type, job.instance_count, job.profiling_interval_ms) == ("ml.p3.8xlarge", 2, 500)
    assert job.rule_settings == {"LowGPUUtilization_threshold_p95": "60"}
    assert (job.stop_allowed, job.active, job.closing) == (True, True, False)
    assert deployment.world.drain() == []


def test_item_has_the_external_run_page_and_no_secret(
    deployment: Deployment,
) -> None:
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:run-url": "https://runs.example.com/=23/7"})
    given = {"MLFLOW_RUN_ID": '"a1"', "MLFLOW_TRACKING_URI": '"https://mlflow"', "WANDB_API_KEY": "secret"}
    deployment.describe_with(hyper_parameters=given)
    deployment.function("job_lifecycle")(event("training_job_in_progress"))
    assert stored(deployment).run_links == {"run": "https://runs.example.com/#/7", "MLflow": "https://mlflow/#/runs/a1"}
    assert stored(deployment).owners == {"team": "vision"}
    assert "secret" not in str(stored(deployment))


def test_secondary_status_follows_a_running_job(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    follow = deployment.function("job_lifecycle")
    for secondary_status in ("Downloading", "Training"):
        deployment.set_status("InProgress", secondary_status)
        follow(event("training_job_in_progress"))
        assert stored(deployment).secondary_status == secondary_status


@pytest.mark.parametrize("final", FINAL)
@pytest.mark.parametrize("order", sorted(set(permutations(["in_progress", "final", "final"]))), ids="-".join)
def test_ended_job_closes_on_unordered_or_repeated_events(
    deployment: Deployment, final: str, order: tuple[str, ...]
) -> None:
    deployment.create_training_job()
    if order[0] == "in_progress":
        deployment.function("job_lifecycle")(event("training_job_in_progress"))
        assert stored(deployment).closing is False
    deployment.set_status(final)
    for name in order:
        given = event(f"training_job_{final.lower()}" if name == "final" else "training_job_in_progress")
        assert deployment.function("job_lifecycle")(given).value == FOLLOWED
    job = stored(deployment)
    assert (job.status, job.closing, job.active) == (JobStatus(final), True, True)
    assert job.ended_at is not None
    assert set(deployment.world.drain()) == CLOSE_ALL


def test_closed_job_stays_closed_on_a_late_event(deployment: Deployment) -> None:
    deployment.create_training_job(status="Completed")
    follow = deployment.function("job_lifecycle")
    follow(event("training_job_completed"))
    deployment.function("evaluate_objects")(deployment.tasks())
    deployment.set_status("InProgress")
    closed = stored(deployment)
    assert (closed.active, closed.status) == (False, JobStatus.COMPLETED)
    for name in ("training_job_in_progress", "training_job_completed"):
        assert deployment.function("job_lifecycle")(event(name)).value == FOLLOWED
    late = stored(deployment)
    assert (late.active, late.closing, late.status) == (False, True, JobStatus.COMPLETED)
    assert deployment.world.jobs.active() == []
    assert deployment.world.drain() == []


@pytest.mark.parametrize("status", ["InProgress", "Completed"])
def test_job_with_its_profile_in_another_bucket_is_not_followed(deployment: Deployment, status: str) -> None:
    deployment.create_training_job(status=status, bucket="another-bucket")
    answer = deployment.function("job_lifecycle")(event("training_job_in_progress"))
    assert answer.value == NOT_FOLLOWED
    assert answer.metrics == {"JobsElsewhere": 1}
    assert answer.dimensions == {("service",)}
    assert deployment.world.jobs.load(JOB) is None
    assert deployment.world.drain() == []


def test_job_unknown_to_sagemaker_is_not_followed(
    deployment: Deployment,
) -> None:
    answer = deployment.function("job_lifecycle")(event("training_job_completed"))
    assert answer.value == NOT_FOLLOWED
    assert answer.metrics == {"UnknownJobs": 1}
    assert deployment.world.jobs.load(JOB) is None


@pytest.mark.parametrize("given", [{}, {"detail": {}}, {"detail": {"TrainingJobName": 7}}, event("scheduler")])
def test_malformed_event_is_counted_and_not_followed(deployment: Deployment, given: object) -> None:
    answer = deployment.function("job_lifecycle")(given)
    assert answer.value == {"job": None, "followed": False}
    assert answer.metrics == {"MalformedEvents": 1}


@pytest.mark.parametrize("way", ["job_lifecycle", "scheduler"])
def test_job_known_after_its_objects_is_registered_and_judged(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    evaluate = deployment.function("evaluate_objects")
    objects = recorded_objects()[:80]
    at_the_root = [replace(each, key=each.key.removeprefix(PREFIX)) for each in objects]
    first, second = at_the_root[:40], objects[40:]
    deployment.put([*at_the_root, *objects])
    evaluate(ringing([object_message(each.key, at=each.appears_at) for each in first]))
    deployment.reconcile_jobs()
    assert (stored(deployment).arn, stored(deployment).stop_allowed) == (f"unknown:{JOB}", False)
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:LowGPUUtilization_threshold_p95": "60"})
    monkeypatch.setattr("trainguard.engine.reconcile.STALE_EVERY", 1)
    if way == "scheduler":
        deployment.reconcile_jobs()
    else:
        deployment.function(way)(event("training_job_in_progress"))
    job = stored(deployment)
    assert job.arn.endswith(f":training-job/{JOB}")
    assert (job.generation, job.stop_allowed, job.prefix) == (1, True, PREFIX)
    assert job.rule_settings == {"LowGPUUtilization_threshold_p95": "60"}
    deployment.function("evaluate_objects")(ringing([object_message(each.key, at=each.appears_at) for each in second]))
    assert deployment.reconcile_jobs()[JOB].value["failed"] is None
    items = deployment.world.nodes.of_job(JOB)
    assert {item.generation for item in items} == {1}
    assert {row.generation for row in deployment.world.rows.of_job(JOB)} == {1}
    alone = {item.key: item.state for item in items if item.key.stream == "system"}
    assert all(alone.values())
    fires = [given for given in deployment.world.started().values() if given["kind"] == "fire"]
    of_low = [str(given["jobArn"]) for given in fires if given["rule"] == "LowGPUUtilization"]
    assert sorted(of_low) == [job.arn, f"unknown:{JOB}"]
