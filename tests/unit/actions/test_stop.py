"""Stopping is opt-in, looks at the job as it is now, and never at an upload."""

from dataclasses import replace
from typing import Any

import pytest

from trainguard.actions.stop import MAX_FIRE_AGE_S, StopDecision, decide_stop
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobStatus

NOW = 1_795_248_000.0
ALLOWED = {"trainguard:stop-on-fire": "allowed"}
RUNNING = TrainingJobDescription(
    job="job",
    arn="arn:aws:sagemaker:eu-west-1:111122223333:training-job/job",
    status=JobStatus.IN_PROGRESS,
    secondary_status="Training",
    instance_type="ml.p5.48xlarge",
    instance_count=2,
    created_at=None,
    started_at=None,
    ended_at=None,
    profiling_interval_ms=500,
    framework_profiling=False,
    tags=ALLOWED,
)


def decide(job: str, description: TrainingJobDescription | None, switch: str, age_s: float = 90.0) -> StopDecision:
    return decide_stop(job, description, switch, fired_at=NOW - age_s, now=NOW)


@pytest.mark.parametrize(("age_s", "stop"), [(MAX_FIRE_AGE_S, True), (MAX_FIRE_AGE_S + 1.0, False)])
def test_given_a_fire_out_of_a_backlog_when_it_is_over_half_an_hour_old_then_it_stops_nothing(
    age_s: float, stop: bool
) -> None:
    decision = decide("job", RUNNING, "enabled", age_s)
    assert decision.stop is stop
    assert stop or "min old" in decision.why


def test_given_an_opted_in_running_job_when_the_switch_is_enabled_then_it_is_stopped() -> None:
    decision = decide("job", RUNNING, "enabled")
    assert (decision.stop, decision.decision) == (True, "stop")


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"trainguard:stop-on-fire": "Allowed"},
        {"trainguard:stop-on-fire": "allowed "},
        {"trainguard:stop-on-fire": "true"},
        {"trainguard:stop-on-fire": ""},
        {"Trainguard:stop-on-fire": "allowed"},
        {"stop-on-fire": "allowed"},
    ],
)
def test_given_any_tag_but_the_very_one_when_decided_then_it_is_refused_and_says_so(tags: Any) -> None:
    decision = decide("job", replace(RUNNING, tags=tags), "enabled")
    assert (decision.stop, decision.decision) == (False, "refused")
    assert "has not opted in" in decision.why


@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.IN_PROGRESS])
def test_given_a_job_that_is_not_in_progress_when_decided_then_it_is_refused(status: Any) -> None:
    decision = decide("job", replace(RUNNING, status=status), "enabled")
    assert not decision.stop
    assert status.value in decision.why


def test_given_a_job_that_uploads_its_model_when_decided_then_it_is_refused() -> None:
    decision = decide("job", replace(RUNNING, secondary_status="Uploading"), "enabled")
    assert not decision.stop
    assert "uploading" in decision.why


def test_given_a_job_that_sagemaker_does_not_know_when_decided_then_it_is_refused() -> None:
    assert not decide("job", None, "enabled").stop


def test_given_a_dry_run_when_decided_then_it_says_what_it_would_have_done() -> None:
    decision = decide("job", RUNNING, "dry-run")
    assert (decision.stop, decision.decision) == (False, "dry-run")
    assert "would have been stopped" in decision.why


@pytest.mark.parametrize("switch", ["disabled", "", "ENABLED", "enabled ", "yes"])
def test_given_any_other_switch_when_decided_then_it_is_refused(switch: Any) -> None:
    decision = decide("job", RUNNING, switch)
    assert (decision.stop, decision.decision) == (False, "refused")
    assert repr(switch) in decision.why
