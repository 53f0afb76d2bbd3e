"""scheduler and reconcile_job as they are deployed, beside the evaluator whose states the look sums up."""

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from moto.stepfunctions.exceptions import ValidationException
from moto.stepfunctions.models import StepFunctionBackend

from tests.functional.deployment import JOB, Deployment, event, recorded_objects
from tests.functional.recorded_items import evaluated_once
from tests.functional.tables import RULE_STATE
from trainguard.aws.lambda_invocations import payload_of
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, OutboxEntry, Status, StreamKey, StreamRecord
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

EVERY_RULE = {*RULE_NAMES, PROFILER_REPORT}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def training(deployment: Deployment) -> Deployment:
    """Return a deployment that has evaluated the recorded job's first five minutes."""
    started = recorded_objects()[0].appears_at
    evaluated_once(deployment, [each for each in recorded_objects() if each.appears_at < started + 300])
    return deployment


def rows_of_the_job(deployment: Deployment) -> dict[str, Status]:
    return {row.rule: row.status for row in deployment.world.rows.of_job(JOB) if row.node is None}


def test_scheduler_writes_a_job_row_for_every_rule(
    training: Deployment,
) -> None:
    assert rows_of_the_job(training) == {}
    assert training.function("scheduler")(event("scheduler")).value == {"jobs": 1, "failed": {}}
    (look,) = training.world.asked()
    answer = training.function("reconcile_job")(json.loads(payload_of(look)))
    assert answer.value == {"job": JOB, "tasks": 0, "failed": None}
    assert set(rows_of_the_job(training)) == EVERY_RULE
    (own,) = (item for item in training.world.nodes.of_job(JOB) if item.key.stream == "job")
    assert own.version == 1


def test_scheduler_notes_how_far_the_profile_goes(
    training: Deployment,
) -> None:
    training.reconcile_jobs()
    furthest = max(item.watermark_s or 0.0 for item in training.world.nodes.of_job(JOB) if item.key.stream == "system")
    job = training.world.jobs.load(JOB)
    assert job is not None
    assert job.last_object_at == pytest.approx(furthest, abs=0.001)


def test_scheduler_keeps_what_the_fire_path_wrote(training: Deployment) -> None:
    training.world.update_row(JOB, "LowGPUUtilization", {"Action": {"S": "Training job stopped."}})
    training.reconcile_jobs()
    row = training.world.row(JOB, "LowGPUUtilization")
    assert row["Action"] == {"S": "Training job stopped."}
    assert "EvaluatedThrough" in row


def test_repeated_run_without_changes_writes_no_row(
    training: Deployment,
) -> None:
    training.reconcile_jobs()
    keys = [{"TrainingJobName": {"S": JOB}, "RuleTarget": {"S": rule}} for rule in EVERY_RULE]
    for key in keys:
        training.clients.dynamodb.delete_item(TableName=RULE_STATE, Key=key)
    training.reconcile_jobs()
    assert rows_of_the_job(training) == {}


def test_scheduler_starts_a_final_report_that_could_not_start(
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

    assert training.reconcile_jobs()[JOB].value == {"job": JOB, "tasks": 0, "failed": None}
    assert list(training.world.reported().values()) == [{"kind": "end", "job": JOB}]
    assert training.world.jobs.active() == []
    assert training.function("scheduler")(event("scheduler")).value["jobs"] == 0


def test_failing_job_is_named_and_others_are_reconciled(
    training: Deployment,
) -> None:
    training.world.jobs.register(JobRecord("broken", "arn:broken", "profiles", ""))
    training.world.nodes.save(StreamRecord(StreamKey("broken", "algo-1", "system"), state=b"?", codec=99))
    answers = training.reconcile_jobs()
    assert set(answers) == {"broken", JOB}
    broken = answers["broken"]
    assert "Codec 99" in broken.value["failed"]
    assert broken.metrics == {"ReconcileFailures": 1}
    assert broken.dimensions == {("service",)}
    (line,) = (each for each in broken.logged if each["message"] == "reconcile_failures")
    assert (line["job"], line["reason"]) == ("broken", broken.value["failed"])
    assert set(rows_of_the_job(training)) == EVERY_RULE


def test_unaccepted_request_is_named_and_others_are_reconciled(
    training: Deployment,
) -> None:
    training.world.jobs.register(JobRecord("unlucky", "arn:unlucky", "profiles", ""))
    training.world.refuse_look("unlucky")
    answer = training.function("scheduler")(event("scheduler"))
    assert (answer.value["jobs"], set(answer.value["failed"])) == (2, {"unlucky"})
    assert "TooManyRequestsException" in answer.value["failed"]["unlucky"]
    assert answer.metrics == {"ReconcileFailures": 1, "ActiveJobs": 2}
    assert answer.dimensions == {("service",)}
    assert [look.job for look in training.world.asked()] == [JOB]


def test_scheduler_starts_an_unsent_fire_without_messages(training: Deployment) -> None:
    evaluated = training.world.nodes.load(StreamKey(JOB, "algo-1", "system"))
    assert evaluated is not None
    entry = OutboxEntry("f1", 0, 1_784_021_300.0, Finding("LowGPUUtilization", "algo-1", "p95 is 23 %.", 23.0, 70.0))
    training.world.nodes.save(replace(evaluated, outbox={"f1": entry}))
    answer = training.reconcile_jobs()[JOB]
    assert answer.metrics == {"FiresStarted": 1, "FiresOfRule": 1, "FiresOfSeverity": 1}
    assert answer.dimensions == {("service",), ("service", "RuleName"), ("service", "Severity")}
    assert [given["fireId"] for given in training.world.started().values()] == ["f1"]


def test_scheduler_without_jobs_does_nothing(deployment: Deployment) -> None:
    assert deployment.function("scheduler")(event("scheduler")).value == {"jobs": 0, "failed": {}}
    assert deployment.world.asked() == []


def test_recorded_request_reconciles_the_job(training: Deployment) -> None:
    answer = training.function("reconcile_job")(event("reconcile_job"))
    assert answer.value == {"job": JOB, "tasks": 0, "failed": None}


def test_manual_request_uses_the_present_time(training: Deployment) -> None:
    assert training.function("reconcile_job")({"job": JOB}).value == {"job": JOB, "tasks": 0, "failed": None}
    assert set(rows_of_the_job(training)) == EVERY_RULE


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "missing required field `job`"),
        ({"job": ""}, "length >= 1"),
        ({"job": "a", "at": "now"}, "Expected `float`, got `str`"),
        ({"job": "a", "stale_every": 0}, "`int` >= 1"),
    ],
)
def test_event_without_a_request_names_the_field(training: Deployment, given: object, fault: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(fault)):
        training.function("reconcile_job")(given)
