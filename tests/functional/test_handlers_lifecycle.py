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
from trainguard.ports import NodeTask
from trainguard.records import JobRecord, JobStatus

FINAL = ("Completed", "Failed", "Stopped")
CLOSE_ALL = {NodeTask(JOB, f"algo-{number}", "system", "close") for number in (1, 2)}
FOLLOWED = {"job": JOB, "followed": True}
NOT_FOLLOWED = {"job": JOB, "followed": False}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def stored(deployment: Deployment) -> JobRecord:
    """Return the job's item, which must exist."""
    record = deployment.world.jobs.load(JOB)
    assert record is not None
    return record


def test_given_a_job_that_starts_when_its_event_comes_then_it_is_registered_once(deployment: Deployment) -> None:
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


def test_given_a_job_with_a_run_elsewhere_when_its_event_comes_then_its_item_has_the_page_and_no_secret(
    deployment: Deployment,
) -> None:
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:run-url": "https://runs.example.com/=23/7"})
    given = {"MLFLOW_RUN_ID": '"a1"', "MLFLOW_TRACKING_URI": '"https://mlflow"', "WANDB_API_KEY": "secret"}
    deployment.describe_with(hyper_parameters=given)
    deployment.function("job_lifecycle")(event("training_job_in_progress"))
    assert stored(deployment).run_links == {"run": "https://runs.example.com/#/7", "MLflow": "https://mlflow/#/runs/a1"}
    assert stored(deployment).owners == {"team": "vision"}
    assert "secret" not in str(stored(deployment))


def test_given_a_job_that_goes_on_when_its_event_comes_then_its_secondary_status_follows(
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
def test_given_a_job_that_has_ended_when_its_events_come_in_any_order_and_twice_then_it_closes(
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


def test_given_a_job_that_is_closed_when_a_late_event_comes_then_it_stays_closed(deployment: Deployment) -> None:
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
def test_given_a_job_whose_profile_lies_in_another_bucket_when_its_event_comes_then_it_is_not_followed(
    deployment: Deployment, status: str
) -> None:
    deployment.create_training_job(status=status, bucket="another-bucket")
    answer = deployment.function("job_lifecycle")(event("training_job_in_progress"))
    assert answer.value == NOT_FOLLOWED
    assert answer.metrics == {"JobsElsewhere": 1}
    assert answer.dimensions == {("service",)}
    assert deployment.world.jobs.load(JOB) is None
    assert deployment.world.drain() == []


def test_given_a_job_that_sagemaker_does_not_know_when_its_event_comes_then_it_is_not_followed(
    deployment: Deployment,
) -> None:
    answer = deployment.function("job_lifecycle")(event("training_job_completed"))
    assert answer.value == NOT_FOLLOWED
    assert answer.metrics == {"UnknownJobs": 1}
    assert deployment.world.jobs.load(JOB) is None


@pytest.mark.parametrize("given", [{}, {"detail": {}}, {"detail": {"TrainingJobName": 7}}, event("tick")])
def test_given_an_event_of_another_shape_when_it_comes_then_it_is_counted_and_nothing_is_followed(
    deployment: Deployment, given: object
) -> None:
    answer = deployment.function("job_lifecycle")(given)
    assert answer.value == {"job": None, "followed": False}
    assert answer.metrics == {"MalformedEvents": 1}


@pytest.mark.parametrize("way", ["job_lifecycle", "tick"])
def test_given_objects_before_sagemaker_knows_the_job_when_it_does_then_the_job_is_registered_anew_and_judged(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    evaluate = deployment.function("evaluate_objects")
    objects = recorded_objects()[:80]
    at_the_root = [replace(each, key=each.key.removeprefix(PREFIX)) for each in objects]
    first, second = at_the_root[:40], objects[40:]
    deployment.put([*at_the_root, *objects])
    evaluate(ringing([object_message(each.key, at=each.appears_at) for each in first]))
    deployment.look_after_jobs()
    assert (stored(deployment).arn, stored(deployment).stop_allowed) == (f"unknown:{JOB}", False)
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:LowGPUUtilization_threshold_p95": "60"})
    monkeypatch.setattr("trainguard.engine.tick.tick.DOUBTED_EVERY", 1)
    if way == "tick":
        deployment.look_after_jobs()
    else:
        deployment.function(way)(event("training_job_in_progress"))
    job = stored(deployment)
    assert job.arn.endswith(f":training-job/{JOB}")
    assert (job.generation, job.stop_allowed, job.prefix) == (1, True, PREFIX)
    assert job.rule_settings == {"LowGPUUtilization_threshold_p95": "60"}
    deployment.function("evaluate_objects")(ringing([object_message(each.key, at=each.appears_at) for each in second]))
    assert deployment.look_after_jobs()[JOB].value["failed"] is None
    items = deployment.world.nodes.of_job(JOB)
    assert {item.generation for item in items} == {1}
    assert {row.generation for row in deployment.world.rows.of_job(JOB)} == {1}
    alone = {item.key: item.state for item in items if item.key.stream == "system"}
    assert all(alone.values())
    fires = [given for given in deployment.world.started().values() if given["kind"] == "fire"]
    of_low = [str(given["jobArn"]) for given in fires if given["rule"] == "LowGPUUtilization"]
    assert sorted(of_low) == [job.arn, f"unknown:{JOB}"]
