"""A grace time before a stop: it begins, and at its end everything is looked at again."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.actions.test_stop import JOB, NOW, ROW, RULE, RUNNING, decide
from trainguard.core.job_policy import JobPolicy, StopPolicy
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus, Status
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.request import StopDecision
from trainguard.stack.actions.stop import MAX_FIRE_AGE_S

GRACE = JobPolicy(stops=StopPolicy(grace_s=600.0))


def decide_again(description: TrainingJobDescription | None = RUNNING, **changes: Any) -> StopDecision:
    """Decide at the end of a grace time."""
    given: dict[str, Any] = {
        "row": ROW,
        "policy": GRACE,
        "attempt": "final",
        "age_s": 690.0,
        "switch": "enabled",
    } | changes
    return decide("job", description, **given)


def test_fire_starts_the_grace_time_and_stops_nothing_yet() -> None:
    decision = decide("job", RUNNING, "enabled", policy=GRACE)
    why = "its grace time of 10 min has begun"
    assert decision == StopDecision(False, "grace", why, iso_time(NOW + 600.0), opted_in=True)


@pytest.mark.parametrize("tags", [{}, {"trainguard:stop-on-fire": "no"}])
def test_fire_that_may_not_stop_starts_no_grace_time(tags: Any) -> None:
    assert decide("job", replace(RUNNING, tags=tags), "enabled", policy=GRACE).decision == "refused"


def test_expired_grace_time_stops_if_all_conditions_still_hold() -> None:
    assert decide_again().decision == "stop"
    assert decide_again(age_s=7_200.0).decision == "stop"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"row": None}, "the row of LowGPUUtilization is gone"),
        ({"registered": replace(JOB, episodes={RULE: 3})}, "the finding of LowGPUUtilization is over"),
        ({"registered": None}, "TrainGuard no longer knows job job"),
        (
            {"row": replace(ROW, finding=replace(ROW.finding, reason="all fine."), status=Status.OK)},
            "LowGPUUtilization no longer fires: all fine.",
        ),
        (
            {"row": replace(ROW, fire_id="f2")},
            "LowGPUUtilization has fired again since, and that fire has its own grace time",
        ),
        (
            {"row": replace(ROW, evaluated_through=NOW - MAX_FIRE_AGE_S - 60.0)},
            "LowGPUUtilization was evaluated 31 min ago for the last time, and the job may have recovered since",
        ),
        (
            {"row": replace(ROW, evaluated_through=None)},
            "LowGPUUtilization was never evaluated, and the job may have recovered since",
        ),
        (
            {"age_s": 60.0},
            "LowGPUUtilization was not evaluated since it fired, and the job may have recovered since",
        ),
        (
            {"row": replace(ROW, evaluated_through=NOW + 3_000.0)},
            "LowGPUUtilization was evaluated at a time that is still to come",
        ),
        ({"description": replace(RUNNING, tags={})}, "its owner has not opted in"),
        ({"description": replace(RUNNING, secondary_status="Uploading")}, "job job is uploading its model"),
        ({"description": replace(RUNNING, status=JobStatus.COMPLETED)}, "job job is Completed, not InProgress"),
        ({"description": None}, "SageMaker does not know a training job job"),
        ({"description": replace(RUNNING, created_at=NOW)}, "another job of that name was created"),
        ({"switch": "disabled"}, "the stop switch is 'disabled'"),
        ({"override": "disabled"}, "its override is 'disabled'"),
    ],
)
def test_expired_grace_time_is_refused_if_anything_has_changed(changes: dict[str, Any], why: str) -> None:
    decision = decide_again(**changes)
    assert (decision.stop, decision.decision) == (False, "refused")
    assert decision.why.startswith(why)


def test_expired_grace_time_in_dry_run_says_so() -> None:
    assert decide_again(switch="dry-run").decision == "dry-run"


@pytest.mark.parametrize("stop_at", ["", "soon", "2026-13-01T00:00:00Z"])
def test_a_decision_with_a_time_that_is_none_is_refused(stop_at: str) -> None:
    body = msgspec.json.encode({"decision": "grace", "stopAt": stop_at})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=StopDecision)
    with pytest.raises(ValueError, match=r"isoformat|month"):
        StopDecision(decision="grace", stop_at=stop_at)
