"""A job that is not to be evaluated: known, with the reason, and otherwise left alone, whatever happens to it."""

import time

import pytest
from moto.ssm.exceptions import ValidationException

from tests.functional.deployment import (
    BRAKES,
    JOB,
    OPTED_IN,
    Deployment,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from trainguard.core.brakes import Braked, new_brake, released, written_brakes
from trainguard.core.records import JobRecord, JobStatus

NOTHING_FAILED: dict[str, list[str]] = {"batchItemFailures": []}
SWITCHES = {
    "tag": ({"trainguard:evaluate": "off"}, '{"evaluate": "all"}'),
    "stack": (OPTED_IN, '{"evaluate": "off"}'),
    "untagged": ({"team": "vision"}, '{"evaluate": "tagged"}'),
    "name": ({}, '{"evaluate": ["prod-*"]}'),
}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture(params=SWITCHES)
def left_alone(request: pytest.FixtureRequest, deployment: Deployment) -> Deployment:
    """Return a deployment with a running job that is not to be evaluated."""
    tags, default = SWITCHES[request.param]
    deployment.create_training_job(tags=tags)
    deployment.world.put_settings(deployment.world.settings.default, default)
    return deployment


def stored(deployment: Deployment) -> JobRecord:
    record = deployment.world.jobs.load(JOB)
    assert record is not None
    return record


def untouched(deployment: Deployment) -> bool:
    world = deployment.world
    return not (
        world.nodes.of_job(JOB) or world.rows.of_job(JOB) or world.started() or world.reported() or world.drain()
    )


def test_objects_of_an_excluded_job_are_only_counted(
    left_alone: Deployment,
) -> None:
    objects = recorded_objects()[:40]
    left_alone.put(objects)
    batch = ringing([object_message(each.key, at=each.appears_at) for each in objects])
    for _ in range(2):
        answer = left_alone.function("evaluate_objects")(batch)
        assert answer.value == NOTHING_FAILED
        assert answer.metrics["NotEvaluated"] == len(objects)
    job = stored(left_alone)
    assert (job.policy.evaluated, job.active) == (False, False)
    assert job.policy.why
    assert job.expires_at is not None
    assert untouched(left_alone)


def test_ended_excluded_job_says_so_and_closes_nothing(
    left_alone: Deployment,
) -> None:
    follow = left_alone.function("job_lifecycle")
    follow(event("training_job_in_progress"))
    registered = stored(left_alone)
    left_alone.set_status("Completed")
    left_alone.function("job_lifecycle")(event("training_job_completed"))
    ended = stored(left_alone)
    assert (ended.status, ended.active, ended.policy) == (JobStatus.COMPLETED, False, registered.policy)
    assert ended.expires_at == registered.expires_at
    last = recorded_objects()[-1]
    end = object_message(
        f"{last.key.partition('/profiler-output/')[0]}/profiler-output/system/training_job_end.ts", at=9e8
    )
    assert left_alone.function("evaluate_objects")(ringing([end])).value == NOTHING_FAILED
    left_alone.reconcile_jobs()
    assert untouched(left_alone)


def test_known_job_is_unchanged_by_a_later_exclusion_switch(
    left_alone: Deployment,
) -> None:
    left_alone.function("job_lifecycle")(event("training_job_in_progress"))
    left_alone.world.put_settings(left_alone.world.settings.default, '{"evaluate": "all"}')
    left_alone.function("job_lifecycle")(event("training_job_in_progress"))
    assert not stored(left_alone).policy.evaluated


def test_brake_on_evaluation_reaches_a_running_job(deployment: Deployment) -> None:
    deployment.create_training_job(tags={"trainguard:evaluation-every-s": "60"})
    objects = recorded_objects()[:40]
    deployment.put(objects)
    batch = ringing([object_message(each.key, at=each.appears_at) for each in objects])
    now = time.time()
    brake = new_brake("b-1", Braked.EVALUATION, by="ada", why="costs", now=now)
    ssm = deployment.clients.ssm
    ssm.put_parameter(Name=BRAKES, Value=written_brakes([brake], now=now), Type="String")
    answer = deployment.function("evaluate_objects")(batch)
    assert (answer.value, answer.metrics["NotEvaluated"]) == (NOTHING_FAILED, len(objects))
    (logged,) = [line for line in deployment.function("scheduler")(event("scheduler")).logged if "b-1" in str(line)]
    assert '"by":"ada"' in str(logged["reason"])
    deployment.reconcile_jobs()
    world = deployment.world
    (row,) = world.rows.of_job(JOB)
    assert row.finding.reason == stored(deployment).braked
    assert row.finding.reason.startswith(f"Not evaluated since {brake.since}, by an operator's brake b-1 of ada")
    assert not world.nodes.of_job(JOB)
    ssm.put_parameter(
        Name=BRAKES,
        Value=written_brakes(released([brake], {"b-1"}, by="ada", now=now), now=now),
        Type="String",
        Overwrite=True,
    )
    deployment.reconcile_jobs()
    assert stored(deployment).braked is None
    later = recorded_objects()[40:60]
    deployment.put(later)
    newest = ringing([object_message(each.key, at=each.appears_at) for each in later])
    assert deployment.function("evaluate_objects")(newest).metrics["ObjectsApplied"] > len(later)


def test_denied_settings_store_returns_the_messages(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment.create_training_job()
    objects = recorded_objects()[:3]
    deployment.put(objects)
    evaluate = deployment.function("evaluate_objects")
    with monkeypatch.context() as denied:
        denied.setattr("moto.ssm.models.SimpleSystemManagerBackend.get_parameter", _denied)
        answer = evaluate(ringing([object_message(each.key, at=each.appears_at) for each in objects]))
    assert [failure["itemIdentifier"] for failure in answer.value["batchItemFailures"]] == ["m0", "m1", "m2"]
    assert answer.metrics["PortFailures"] == 1
    assert deployment.world.jobs.load(JOB) is None
    assert evaluate(ringing([object_message(each.key, at=each.appears_at) for each in objects])).value == NOTHING_FAILED
    assert stored(deployment).policy.evaluated


def _denied(*_: object) -> None:
    raise ValidationException("nobody may read it now")
