"""What a fire does to a training job, and whom it notifies; the original's rules act by a prefix of names."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from infra.constructs.fire_machine import definition
from tests.infra.states_language import Ending, Execution
from tests.support.memory import MemoryWorld
from tests.support.small_job import describe
from trainguard.core.finding import Finding
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, OutboxEntry, RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput, StopCase, StopDecision, StopResult
from trainguard.stack.actions.stop import StopPreconditions, decide_stop
from trainguard.stack.actions.stop_switch import StopSwitches

NOW = 1_795_248_000.0
ENABLED = StopSwitches("enabled")


def running(job: str) -> TrainingJobDescription:
    """Return a job that may be stopped."""
    arn = f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{job}"
    return replace(describe({STOP_TAG: STOP_ALLOWED}), job=job, arn=arn)


def stopped(fired: str, *known: TrainingJobDescription) -> list[str]:
    """Let a rule fire on a job, and return the names of the jobs that the fire path stops."""
    jobs = MemoryWorld().training_jobs
    for description in known:
        jobs.set(description)

    def decide(arguments: Any) -> Any:
        case = StopCase.read(arguments["Payload"])
        known = StopPreconditions(job=registered(case.job), row=marked(case))
        return {
            "Payload": msgspec.to_builtins(decide_stop(case, jobs.describe(case.job), ENABLED, known=known, now=NOW))
        }

    answers: dict[str, Any] = {
        "MarkFired": {},
        "RecordAlert": {},
        "StartReport": {},
        "SendAlert": {"waitUntil": None, "unsent": [], "faults": [], "outcome": {"action": "", "alertId": None}},
    }
    tasks: dict[str, Any] = {name: partial(_answered, answer) for name, answer in answers.items()}
    execution = Execution(definition(), {**tasks, "DecideStop": decide, "StopJob": _made})
    assert execution.run(fire(fired)) == Ending("SUCCEEDED")
    carried_out = [arguments["Payload"] for arguments in execution.arguments_of("StopJob")]
    return [each["fire"]["job"] for each in carried_out if each["decision"]["stop"]]


def _answered(answer: Any, arguments: Any) -> Any:
    del arguments
    return {"Payload": answer}


def _made(arguments: Any) -> Any:
    decision = arguments["Payload"]["decision"]
    return {"Payload": {"decision": decision, "stop": {"made": decision["stop"], "error": None}, "faults": []}}


def registered(job: str) -> JobRecord:
    """Return the job's item."""
    return JobRecord(job, running(job).arn, "profiles", "")


def marked(case: StopCase) -> RuleRow:
    """Return the rule's row as the state machine has marked it."""
    return RuleRow(case.job, Finding(case.rule, None, "gpu1 is low."), Status.FIRED, fire_id=case.fire_id)


def fire(job: str) -> dict[str, Any]:
    """Return the execution's input."""
    return {
        "kind": "fire",
        "job": job,
        "jobArn": running(job).arn,
        "jobCreatedAt": iso_time(running(job).created_at or 0.0),
        "bucket": "profiles",
        "prefix": "",
        "rule": "LowGPUUtilization",
        "fireId": "f" * 20,
        "episode": 0,
        "node": "algo-1",
        "reason": "gpu1 is low.",
        "measured": 34.0,
        "threshold": 70.0,
        "firedAt": iso_time(NOW - 60.0),
        "reportUri": "s3://profiles/report.json",
    }


@pytest.mark.defect("capitals in a name")
def test_rule_with_capitals_in_a_job_name_stops_that_job_only() -> None:
    assert stopped("BERT-Large-2026", running("BERT-Large-2026"), running("bert-large-2026")) == ["BERT-Large-2026"]


@pytest.mark.defect("a prefix of another name")
def test_rule_of_a_name_prefix_stops_that_job_only() -> None:
    assert stopped("job-1", running("job-1"), running("job-10"), running("job-100")) == ["job-1"]


@pytest.mark.defect("a list of jobs that is old")
def test_old_job_list_is_refreshed_after_a_start_or_end() -> None:
    assert stopped("job-1", running("job-1")) == ["job-1"]
    assert stopped("job-1", replace(running("job-1"), status=JobStatus.COMPLETED)) == []
    assert stopped("job-1") == []


@pytest.mark.defect("a message without numbers")
@pytest.mark.parametrize("made", [True, False])
def test_message_without_numbers_never_contains_none(made: bool) -> None:
    finding = Finding(rule="LowGPUUtilization", node="algo-1", reason="gpu1 is low.")
    bare = FireInput(
        job="job-1",
        job_arn=running("job-1").arn,
        entry=OutboxEntry("f" * 20, 0, 1_795_249_200.0, finding),
        report_uri="s3://profiles/report.json",
    )
    for error in (None, "AccessDenied"):
        decision = StopDecision(stop=True, decision="stop", why="the tag allows it")
        alert = compose_alert(AlertRequest(bare, decision, StopResult(made, error)), now=NOW)
        for text in (alert.subject, alert.text, alert.action, *alert.attributes.values()):
            assert "None" not in text
            assert text
