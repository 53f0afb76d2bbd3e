from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from trainguard.core.records import Status
from trainguard.rules.dataloader.series import LoaderState, LoadingProcess
from trainguard.rules.max_initialization_time.rule import MaxInitializationTime, MaxInitializationTimeParameters
from trainguard.rules.max_initialization_time.text import MaxInitializationKind
from trainguard.rules.rule_inputs import JobView, NodeFacts

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
def test_step_later_than_the_threshold_fires(after_s: float, status: Status) -> None:
    result = RULE.judge(replace(VIEW, first_step_at=START + after_s, system_through=START + 9_000.0), DEFAULTS)

    assert result.status is status
    assert result.measured == pytest.approx(after_s / 60.0)


@pytest.mark.parametrize(
    ("elapsed_s", "status"),
    [
        (THRESHOLD_S - 1.0, Status.WARMING_UP),
        (THRESHOLD_S + 1.0, Status.WARMING_UP),
        (THRESHOLD_S + GRACE_S, Status.WARMING_UP),
        (THRESHOLD_S + GRACE_S + 1.0, Status.FIRED),
    ],
)
def test_missing_step_fires_only_after_the_grace_for_late_files(elapsed_s: float, status: Status) -> None:
    assert RULE.judge(replace(VIEW, system_through=START + elapsed_s), DEFAULTS).status is status


def test_timely_step_that_arrives_late_clears_the_fire() -> None:
    late = replace(VIEW, system_through=START + 1_600.0)

    assert RULE.judge(late, DEFAULTS).status is Status.FIRED
    assert RULE.judge(replace(late, first_step_at=START + 1_100.0), DEFAULTS).status is Status.OK


@pytest.mark.parametrize(
    ("elapsed_s", "status"), [(900.0, Status.OK), (THRESHOLD_S, Status.OK), (THRESHOLD_S + 0.5, Status.FIRED)]
)
def test_ended_job_without_a_step_has_no_grace(elapsed_s: float, status: Status) -> None:
    ended = replace(VIEW, framework_seen=True, system_through=START + elapsed_s, closed=True)

    assert RULE.judge(ended, DEFAULTS).status is status


def test_expected_but_absent_metrics_of_a_long_job_are_a_finding() -> None:
    ended = replace(VIEW, system_through=START + THRESHOLD_S + 60.0, closed=True)

    assert RULE.judge(ended, DEFAULTS).status is Status.FIRED


def test_missing_framework_metrics_make_the_rule_inapplicable() -> None:
    without = replace(VIEW, framework_expected=False, system_through=START + 9_000.0)

    result = RULE.judge(without, DEFAULTS)

    assert result.status is Status.NOT_APPLICABLE
    assert result.kind == MaxInitializationKind.NO_FRAMEWORK_METRICS
    assert RULE.judge(replace(without, framework_seen=True), DEFAULTS).status is Status.FIRED


@pytest.mark.parametrize("missing", ["started_at", "system_through"])
def test_given_no_start_or_no_sample_when_judged_then_it_waits(missing: str) -> None:
    nothing = replace(VIEW, started_at=None) if missing == "started_at" else replace(VIEW, system_through=None)

    assert RULE.judge(nothing, DEFAULTS).status is Status.WAITING_FOR_DATA


def test_threshold_in_minutes_is_used() -> None:
    late = replace(VIEW, first_step_at=START + 400.0)

    assert RULE.judge(late, MaxInitializationTimeParameters(threshold=5.0)).status is Status.FIRED
    assert RULE.judge(late, MaxInitializationTimeParameters(threshold=7.0)).status is Status.OK


def test_step_before_the_known_start_took_no_time() -> None:
    result = RULE.judge(replace(VIEW, first_step_at=START - 3.0), DEFAULTS)

    assert (result.status, result.measured) == (Status.OK, 0.0)


def test_reason_of_a_late_step_has_the_numbers_of_the_job() -> None:
    result = RULE.judge(replace(VIEW, first_step_at=START + 1_878.0), DEFAULTS)

    assert (
        result.reason
        == "The first step began at 2023-11-14 22:44 UTC, 31.3 min after the training start (threshold 20 min)."
    )
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 180.0


def test_warming_up_without_a_step_says_when_it_will_be_judged() -> None:
    assert RULE.judge(replace(VIEW, system_through=START + 720.0), DEFAULTS).reason == (
        "No step was seen in the 12 min since the training start at 2023-11-14 22:13 UTC (threshold 20 min); a step "
        "may still arrive for 6 min after the threshold."
    )


def test_late_step_says_what_it_cost_of_the_time_of_the_job() -> None:
    result = RULE.judge(replace(VIEW, first_step_at=START + 1_800.0, system_through=START + 6_000.0), DEFAULTS)

    assert result.affected_share == pytest.approx(0.1)
    assert result.wasted_share == pytest.approx(0.1)
    assert (result.advice or "").startswith("Shorten what comes before the first step by at least 10 min: stream")


def test_missing_step_lost_all_time_beyond_the_threshold() -> None:
    result = RULE.judge(replace(VIEW, system_through=START + 2_400.0), DEFAULTS)

    assert (result.affected_share, result.wasted_share) == (0.5, 0.5)
    assert "by at least 20 min" in (result.advice or "")


def test_timely_step_has_no_advice() -> None:
    result = RULE.judge(replace(VIEW, first_step_at=START + 60.0), DEFAULTS)

    assert (result.advice, result.affected_share, result.wasted_share) == (None, None, None)


def at_work(*, fetching_s: float | None, working_s: float, first_us: int = 0) -> NodeFacts:
    """Return a node whose GPUs have worked, and whose data loaders have fetched, for so long."""
    (minute,) = node_minutes(series(np.full(10, 90.0)), closed=False)
    system = replace(minute.view, kept_total=round(working_s / 0.5))
    if fetching_s is None:
        return NodeFacts("algo-1", system)
    process = LoadingProcess("algo-1-905", first_us=first_us, last_us=first_us + round(fetching_s * 1e6))
    return NodeFacts("algo-1", system, collected={"Dataloader": LoaderState([process])})


@pytest.mark.parametrize("closed", [False, True])
def test_working_gpus_and_loaders_are_not_initializing(
    closed: bool,
) -> None:
    node = at_work(fetching_s=2_800.0, working_s=2_700.0)
    trains = replace(VIEW, framework_seen=True, system_through=START + 2_880.0, nodes={node.node: node}, closed=closed)

    result = RULE.judge(trains, DEFAULTS)

    assert result.status is Status.NOT_APPLICABLE
    assert result.reason == (
        "The job's framework metrics have no steps: GPUs have worked and data loaders fetched for 45 min without one, "
        "so its first step is unknown."
    )
    assert RULE.judge(replace(trains, first_step_at=START + 1_500.0), DEFAULTS).status is Status.FIRED


@pytest.mark.parametrize(
    ("fetching_s", "working_s", "status"),
    [
        (360.0, 2_000.0, Status.FIRED),
        (2_000.0, 360.0, Status.FIRED),
        (361.0, 361.0, Status.NOT_APPLICABLE),
        (360.0002, 2_000.0, Status.NOT_APPLICABLE),
        (None, 2_000.0, Status.FIRED),
    ],
)
def test_little_work_before_the_first_step_may_be_initializing(
    fetching_s: float | None, working_s: float, status: Status
) -> None:
    node = at_work(fetching_s=fetching_s, working_s=working_s)
    view = replace(VIEW, framework_seen=True, system_through=START + 2_880.0, nodes={node.node: node})

    assert RULE.judge(view, DEFAULTS).status is status


def test_working_gpus_without_any_step_are_a_risk_with_advice() -> None:
    node = at_work(fetching_s=None, working_s=2_700.0)

    result = RULE.judge(replace(VIEW, system_through=START + 2_880.0, nodes={node.node: node}), DEFAULTS)

    assert result.status is Status.FIRED
    assert result.reason == (
        "No step was seen in the 48 min since the training start at 2023-11-14 22:13 UTC (threshold 20 min), but GPUs "
        "have worked for 45 min."
    )
    assert result.advice == (
        "Check that the job writes steps, as it is set to: GPUs that have worked for 45 min without one rather train "
        "than initialize. If they do not train, shorten what they do before the first step."
    )
    assert result.wasted_share is None


@pytest.mark.parametrize(("seen", "status"), [(True, Status.OK), (False, Status.NOT_APPLICABLE)])
def test_first_step_of_a_short_job_without_metrics_is_unknown(seen: bool, status: Status) -> None:
    ended = replace(VIEW, framework_seen=seen, system_through=START + 900.0, closed=True)

    result = RULE.judge(ended, DEFAULTS)

    assert result.status is status
    if not seen:
        assert result.reason == "The job has ended and wrote no framework metrics, so its first step is unknown."


def test_work_before_a_restart_does_not_excuse_its_missing_step() -> None:
    node = at_work(fetching_s=None, working_s=7_200.0)
    restarted = replace(
        VIEW,
        first_step_at=START + 60.0,
        system_through=START + 12_000.0,
        framework_seen=True,
        nodes={node.node: node},
        interruptions=((START + 8_000.0, START + 9_000.0),),
        step_runs=((START + 60.0, START + 8_000.0),),
    )

    result = RULE.judge(restarted, DEFAULTS)

    assert result.status is Status.FIRED
    assert result.reason == (
        "No step was seen in the 50 min since the restart of the job at 2023-11-15 00:43 UTC (threshold 20 min)."
    )
    assert result.wasted_share is not None


@pytest.mark.parametrize("late_s", [48.0, 600.0, 3_600.0])
def test_late_first_step_costs_what_exceeds_the_threshold(
    late_s: float,
) -> None:
    view = replace(VIEW, first_step_at=START + THRESHOLD_S + late_s, system_through=START + 36_000.0)

    result = RULE.judge(view, DEFAULTS)

    assert result.wasted_share == pytest.approx(late_s / 36_000.0)
    assert result.affected_share == result.wasted_share
    assert result.onset == START
