from dataclasses import replace

import pytest

from trainguard.records import Status
from trainguard.rules.max_initialization_time import MaxInitializationTime, MaxInitializationTimeParameters
from trainguard.rules.views import JobView

RULE = MaxInitializationTime()
DEFAULTS = MaxInitializationTimeParameters()
START = 1_700_000_000.0
THRESHOLD_S = 1_200.0
GRACE_S = 360.0
VIEW = JobView(
    started_at=START,
    system_through=START + 60.0,
    first_step_at=None,
    framework_expected=True,
    framework_seen=False,
    closed=False,
)


@pytest.mark.parametrize(
    ("after_s", "status"),
    [(300.0, Status.OK), (THRESHOLD_S, Status.OK), (THRESHOLD_S + 1.0, Status.FIRED)],
)
def test_given_a_step_when_it_began_later_than_the_threshold_then_it_fires(after_s: float, status: Status) -> None:
    judgement = RULE.judge(replace(VIEW, first_step_at=START + after_s, system_through=START + 9_000.0), DEFAULTS)

    assert judgement.status is status
    assert judgement.measured == pytest.approx(after_s / 60.0)


@pytest.mark.parametrize(
    ("elapsed_s", "status"),
    [
        (THRESHOLD_S - 1.0, Status.WARMING_UP),
        (THRESHOLD_S + 1.0, Status.WARMING_UP),
        (THRESHOLD_S + GRACE_S, Status.WARMING_UP),
        (THRESHOLD_S + GRACE_S + 1.0, Status.FIRED),
    ],
)
def test_given_no_step_when_time_passes_then_it_fires_only_after_the_grace_for_late_files(
    elapsed_s: float, status: Status
) -> None:
    assert RULE.judge(replace(VIEW, system_through=START + elapsed_s), DEFAULTS).status is status


def test_given_a_fire_without_a_step_when_a_step_arrives_that_began_in_time_then_it_is_cleared() -> None:
    late = replace(VIEW, system_through=START + 1_600.0)

    assert RULE.judge(late, DEFAULTS).status is Status.FIRED
    assert RULE.judge(replace(late, first_step_at=START + 1_100.0), DEFAULTS).status is Status.OK


@pytest.mark.parametrize(("elapsed_s", "status"), [(900.0, Status.OK), (THRESHOLD_S + 60.0, Status.FIRED)])
def test_given_a_job_that_has_ended_without_a_step_when_judged_then_no_grace_is_due(
    elapsed_s: float, status: Status
) -> None:
    assert RULE.judge(replace(VIEW, system_through=START + elapsed_s, closed=True), DEFAULTS).status is status


def test_given_no_framework_metrics_when_judged_then_the_rule_does_not_apply_and_says_why() -> None:
    without = replace(VIEW, framework_expected=False, system_through=START + 9_000.0)

    judgement = RULE.judge(without, DEFAULTS)

    assert judgement.status is Status.NOT_APPLICABLE
    assert "none are configured and none were seen" in judgement.reason
    assert RULE.judge(replace(without, framework_seen=True), DEFAULTS).status is Status.FIRED


@pytest.mark.parametrize("missing", ["started_at", "system_through"])
def test_given_no_start_or_no_sample_when_judged_then_it_waits(missing: str) -> None:
    nothing = replace(VIEW, started_at=None) if missing == "started_at" else replace(VIEW, system_through=None)

    assert RULE.judge(nothing, DEFAULTS).status is Status.WAITING_FOR_DATA


def test_given_a_threshold_in_minutes_when_judged_then_it_is_used() -> None:
    late = replace(VIEW, first_step_at=START + 400.0)

    assert RULE.judge(late, MaxInitializationTimeParameters(threshold=5.0)).status is Status.FIRED
    assert RULE.judge(late, MaxInitializationTimeParameters(threshold=7.0)).status is Status.OK


def test_given_a_step_before_the_known_start_when_judged_then_it_took_no_time() -> None:
    judgement = RULE.judge(replace(VIEW, first_step_at=START - 3.0), DEFAULTS)

    assert (judgement.status, judgement.measured) == (Status.OK, 0.0)


def test_given_a_late_step_when_it_fires_then_the_reason_has_the_jobs_own_numbers() -> None:
    judgement = RULE.judge(replace(VIEW, first_step_at=START + 1_878.0), DEFAULTS)

    assert judgement.reason == "the first step began 31.3 min after the training start (threshold 20 min)."
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 180.0


def test_given_no_step_yet_when_warming_up_then_the_reason_tells_when_it_will_be_judged() -> None:
    assert RULE.judge(replace(VIEW, system_through=START + 720.0), DEFAULTS).reason == (
        "no step was seen in the 12 min since the training start; judged after 26 min, which is the threshold 20 min "
        "and 6 min in which a step may still arrive."
    )


def test_given_a_late_step_when_it_fires_then_it_says_what_that_cost_of_the_jobs_time() -> None:
    judgement = RULE.judge(replace(VIEW, first_step_at=START + 1_800.0, system_through=START + 6_000.0), DEFAULTS)

    assert judgement.affected_share == pytest.approx(0.3)
    assert judgement.wasted_share == pytest.approx(0.1)
    assert (judgement.advice or "").startswith("Shorten what comes before the first step by at least 10 min: stream")


def test_given_no_step_when_it_fires_then_all_of_the_time_was_initialization() -> None:
    judgement = RULE.judge(replace(VIEW, system_through=START + 2_400.0), DEFAULTS)

    assert (judgement.affected_share, judgement.wasted_share) == (1.0, 0.5)
    assert "by at least 20 min" in (judgement.advice or "")


def test_given_a_step_in_time_when_judged_then_there_is_no_advice() -> None:
    judgement = RULE.judge(replace(VIEW, first_step_at=START + 60.0), DEFAULTS)

    assert (judgement.advice, judgement.affected_share, judgement.wasted_share) == (None, None, None)
