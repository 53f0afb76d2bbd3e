"""Executions, training jobs and the task queue."""

from typing import TYPE_CHECKING, cast

import pytest

from tests.functional.worlds import World
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ExecutionRecord, ReconcileRequest, StreamTask

if TYPE_CHECKING:
    from collections.abc import MutableMapping

PAYLOAD = {"kind": "fire", "reason": "Die GPU «schläft»", "measured": 0.1 + 0.2, "threshold": None, "episode": 0}


def test_started_name_gets_its_payload_unchanged(world: World) -> None:
    assert world.executions.start("Rule-f1-job", PAYLOAD) is True
    assert world.started() == {"Rule-f1-job": PAYLOAD}


def test_started_name_with_another_payload_keeps_the_first(world: World) -> None:
    world.executions.start("Rule-f1-job", PAYLOAD)
    assert world.executions.start("Rule-f1-job", {"kind": "report"}) is False
    assert world.started() == {"Rule-f1-job": PAYLOAD}


def test_started_name_with_the_same_payload_is_one_execution(world: World) -> None:
    world.executions.start("Rule-f1-job", PAYLOAD)
    world.executions.start("Rule-f1-job", PAYLOAD)
    assert world.started() == {"Rule-f1-job": PAYLOAD}


def test_started_report_is_no_fire_execution(world: World) -> None:
    assert world.reports.start("report-1", {"job": "job"}) is True
    assert (world.started(), world.reported()) == ({}, {"report-1": {"job": "job"}})


def test_found_execution_is_running_with_its_input(world: World) -> None:
    world.executions.start("Rule-f1-job", PAYLOAD)
    assert world.records.find("Rule-f1-job") == ExecutionRecord("Rule-f1-job", "RUNNING", PAYLOAD)
    assert world.records.find("Rule-f2-job") is None
    assert list(world.records.unsuccessful(0.0)) == []


@pytest.mark.parametrize("status", ["FAILED", "ABORTED"])  # moto gives no other one an end time
def test_failed_execution_has_its_time_and_cause(world: World, status: str) -> None:
    world.executions.start("Rule-f1-job", PAYLOAD)
    world.end("Rule-f1-job", status, at=1_000.0, error="SNS.NotFoundException", cause="no topic")
    found = ExecutionRecord("Rule-f1-job", status, PAYLOAD, 1_000.0, "SNS.NotFoundException", "no topic")
    assert world.records.find("Rule-f1-job") == found
    assert list(world.records.unsuccessful(1_000.0)) == [found]
    assert list(world.records.unsuccessful(1_000.5)) == []


def test_failed_executions_are_listed(world: World) -> None:
    for number, status in enumerate(("SUCCEEDED", "FAILED", "ABORTED", "FAILED", "ABORTED")):
        world.executions.start(f"Rule-f{number}-job", PAYLOAD)
        world.end(f"Rule-f{number}-job", status, at=float(number))
    assert {each.name for each in world.records.unsuccessful(2.0)} == {"Rule-f2-job", "Rule-f3-job", "Rule-f4-job"}


@pytest.mark.parametrize("name", ["a" * 81, "a b", "a#b", "a/b"])
def test_name_refused_by_step_functions_is_an_error(world: World, name: str) -> None:
    with pytest.raises(PortUnavailableError, match=r"StepFunctions\.StartExecution"):
        world.executions.start(name, PAYLOAD)
    assert world.started() == {}


def test_number_unknown_to_json_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        world.executions.start("name", {"measured": float("nan")})
    assert world.started() == {}


@pytest.mark.parametrize("job", ["unknown", "a" * 64, "no/name", "", "-a", "a-", "é", "a\n"])
def test_job_unknown_to_sagemaker_is_none(world: World, job: str) -> None:
    assert world.training_jobs.describe(job) is None


def test_known_job_is_described_with_its_tags(world: World) -> None:
    tags = {f"trainguard:tag-{number}": str(number) for number in range(45)}
    world.create_training_job("resnet-50", tags)
    described = world.training_jobs.describe("resnet-50")
    assert described is not None
    assert (described.job, described.instance_type, described.instance_count) == ("resnet-50", "ml.p4d.24xlarge", 2)
    assert described.arn.endswith(":training-job/resnet-50")
    assert described.tags == tags
    with pytest.raises(TypeError):
        cast("MutableMapping[str, str]", described.tags)["more"] = ""


@pytest.mark.parametrize("count", [0, 1, 10, 23])
def test_given_any_number_of_tasks_when_sent_then_each_arrives(world: World, count: int) -> None:
    tasks = [StreamTask("job", f"algo-{number}", "system", "flush", 60.5) for number in range(count)]
    world.tasks.send(tasks)
    assert sorted(world.drain(), key=tasks.index) == tasks
    assert world.drain() == []


def test_task_without_time_and_with_a_hostile_name_is_unchanged(world: World) -> None:
    task = StreamTask('j"ob\\', "algo-1 é \u2028", "framework", "close")
    world.tasks.send([task])
    assert world.drain() == [task]


@pytest.mark.parametrize("count", [0, 1, 45])
def test_requests_arrive_unchanged(world: World, count: int) -> None:
    requests = [ReconcileRequest(f"job-{number}", 1_784_021_300.25 + number, 5 + number) for number in range(count)]
    assert world.reconcile_requests.send(requests) == {}
    assert sorted(world.asked(), key=requests.index) == requests
    assert world.asked() == []


def test_refused_requests_are_named_and_others_arrive(
    world: World,
) -> None:
    requests = [ReconcileRequest(f"job-{number}", 60.0, 5) for number in range(30)]
    for job in ("job-3", "job-29"):
        world.refuse_look(job)
    reasons = world.reconcile_requests.send(requests)
    assert set(reasons) == {"job-3", "job-29"}
    assert all(reason.startswith("Lambda.Invoke failed: TooManyRequestsException") for reason in reasons.values())
    assert {request.job for request in world.asked()} == {request.job for request in requests} - {"job-3", "job-29"}
