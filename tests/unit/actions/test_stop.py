"""Stopping is opt-in, looks at the job as it is now, and never at an upload."""

from dataclasses import replace
from typing import Any

import pytest

from trainguard.actions.stop import decide_stop
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobStatus

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


def test_given_an_opted_in_running_job_when_the_switch_is_enabled_then_it_is_stopped() -> None:
    decision = decide_stop("job", RUNNING, "enabled")
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
    decision = decide_stop("job", replace(RUNNING, tags=tags), "enabled")
    assert (decision.stop, decision.decision) == (False, "refused")
    assert "has not opted in" in decision.why


@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.IN_PROGRESS])
def test_given_a_job_that_is_not_in_progress_when_decided_then_it_is_refused(status: Any) -> None:
    decision = decide_stop("job", replace(RUNNING, status=status), "enabled")
    assert not decision.stop
    assert status.value in decision.why


def test_given_a_job_that_uploads_its_model_when_decided_then_it_is_refused() -> None:
    decision = decide_stop("job", replace(RUNNING, secondary_status="Uploading"), "enabled")
    assert not decision.stop
    assert "uploading" in decision.why


def test_given_a_job_that_sagemaker_does_not_know_when_decided_then_it_is_refused() -> None:
    assert not decide_stop("job", None, "enabled").stop


def test_given_a_dry_run_when_decided_then_it_says_what_it_would_have_done() -> None:
    decision = decide_stop("job", RUNNING, "dry-run")
    assert (decision.stop, decision.decision) == (False, "dry-run")
    assert "would have been stopped" in decision.why


@pytest.mark.parametrize("switch", ["disabled", "", "ENABLED", "enabled ", "yes"])
def test_given_any_other_switch_when_decided_then_it_is_refused(switch: Any) -> None:
    decision = decide_stop("job", RUNNING, switch)
    assert (decision.stop, decision.decision) == (False, "refused")
    assert repr(switch) in decision.why
