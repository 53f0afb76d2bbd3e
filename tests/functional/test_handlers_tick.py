"""tick as it is deployed, beside the evaluator whose states it sums up."""

from dataclasses import replace
from typing import Any

import pytest
from moto.stepfunctions.exceptions import ValidationException
from moto.stepfunctions.models import StepFunctionBackend

from tests.functional.deployment import JOB, Deployment, doorbell, event, recorded_objects, ringing
from tests.functional.tables import RULE_STATE
from trainguard.records import JobRecord, NodeRecord, OutboxEntry, Status, StreamKey
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

EVERY_RULE = {*RULE_NAMES, PROFILER_REPORT}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def training(deployment: Deployment) -> Deployment:
    """Return a deployment that has evaluated the recorded job's first five minutes."""
    deployment.create_training_job()
    started = recorded_objects()[0].appears_at
    seen = [each for each in recorded_objects() if each.appears_at < started + 300]
    deployment.put(seen)
    deployment.function("evaluate_objects")(ringing([doorbell(each.key, at=each.appears_at) for each in seen]))
    return deployment


def rows_of_the_job(deployment: Deployment) -> dict[str, Status]:
    return {row.rule: row.status for row in deployment.world.rows.of_job(JOB) if row.node is None}


def test_given_an_evaluated_job_when_the_tick_comes_then_every_rule_has_a_row_of_the_whole_job(
    training: Deployment,
) -> None:
    assert rows_of_the_job(training) == {}
    answer = training.function("tick")(event("tick"))
    assert answer.value == {"jobs": 1, "failed": {}, "tasks": 0}
    assert set(rows_of_the_job(training)) == EVERY_RULE
    (own,) = (item for item in training.world.nodes.of_job(JOB) if item.key.stream == "job")
    assert own.version == 1


def test_given_an_evaluated_job_when_the_tick_comes_then_its_item_says_how_far_its_profile_goes(
    training: Deployment,
) -> None:
    training.function("tick")(event("tick"))
    furthest = max(item.watermark_s or 0.0 for item in training.world.nodes.of_job(JOB) if item.key.stream == "system")
    job = training.world.jobs.load(JOB)
    assert job is not None
    assert job.last_object_at == pytest.approx(furthest, abs=0.001)


def test_given_what_the_fire_path_wrote_when_the_tick_comes_then_it_stays(training: Deployment) -> None:
    training.world.update_row(JOB, "LowGPUUtilization", {"Action": {"S": "Training job stopped."}})
    training.function("tick")(event("tick"))
    row = training.world.row(JOB, "LowGPUUtilization")
    assert row["Action"] == {"S": "Training job stopped."}
    assert "EvaluatedThrough" in row


def test_given_a_tick_that_comes_twice_when_nothing_changed_then_the_second_writes_no_row(
    training: Deployment,
) -> None:
    tick = training.function("tick")
    tick(event("tick"))
    keys = [{"TrainingJobName": {"S": JOB}, "RuleTarget": {"S": rule}} for rule in EVERY_RULE]
    for key in keys:
        training.clients.dynamodb.delete_item(TableName=RULE_STATE, Key=key)
    tick(event("tick"))
    assert rows_of_the_job(training) == {}


def test_given_a_report_that_could_not_be_started_at_the_end_when_the_tick_comes_then_it_is(
    training: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_execution(*given: object, **named: object) -> Any:
        raise ValidationException("state machine is being deleted")

    training.set_status("Completed")
    evaluate = training.function("evaluate_objects")
    evaluate(event("sqs_training_job_end"))
    tasks = training.tasks()
    with monkeypatch.context() as step_functions:
        step_functions.setattr(StepFunctionBackend, "start_execution", start_execution)
        answer = evaluate(tasks)
    assert len(answer.value["batchItemFailures"]) == len(tasks["Records"])
    assert training.world.reported() == {}

    answer = training.function("tick")(event("tick"))
    assert answer.value == {"jobs": 1, "failed": {}, "tasks": 0}
    assert list(training.world.reported().values()) == [{"kind": "end", "job": JOB}]
    assert training.world.jobs.active() == []
    assert training.function("tick")(event("tick")).value["jobs"] == 0


def test_given_a_job_that_fails_when_the_tick_comes_then_it_is_named_and_the_others_are_looked_after(
    training: Deployment,
) -> None:
    training.world.jobs.register(JobRecord("broken", "arn:broken", "profiles", ""))
    training.world.nodes.save(NodeRecord(StreamKey("broken", "algo-1", "system"), state=b"?", codec=99))
    answer = training.function("tick")(event("tick"))
    assert (answer.value["jobs"], set(answer.value["failed"])) == (2, {"broken"})
    assert "Codec 99" in answer.value["failed"]["broken"]
    assert answer.metrics == {"TickFailures": 1, "ActiveJobs": 2}
    assert answer.dimensions == {("service",)}
    assert set(rows_of_the_job(training)) == EVERY_RULE


def test_given_an_unsent_fire_that_nobody_rings_for_when_the_tick_comes_then_it_starts(training: Deployment) -> None:
    evaluated = training.world.nodes.load(StreamKey(JOB, "algo-1", "system"))
    assert evaluated is not None
    entry = OutboxEntry("f1", "LowGPUUtilization", 0, "algo-1", 1_784_021_300.0, "p95 is 23 %.", 23.0, 70.0)
    training.world.nodes.save(replace(evaluated, outbox={"f1": entry}))
    answer = training.function("tick")(event("tick"))
    assert answer.metrics == {"FiresStarted": 1, "FiresOfRule": 1, "ActiveJobs": 1}
    assert answer.dimensions == {("service",), ("service", "RuleName")}
    assert [given["fireId"] for given in training.world.started().values()] == ["f1"]


def test_given_no_job_when_the_tick_comes_then_there_is_nothing_to_do(deployment: Deployment) -> None:
    assert deployment.function("tick")(event("tick")).value == {"jobs": 0, "failed": {}, "tasks": 0}
