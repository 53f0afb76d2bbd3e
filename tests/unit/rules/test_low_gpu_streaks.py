"""How long a GPU must be low, and what that must have cost: on the bounds."""

from dataclasses import replace

import pytest

from tests.unit.rules.node_replay import JOB_START, node_minutes, series
from trainguard.records import Status
from trainguard.rules.low_gpu_utilization import (
    LowGPUUtilization,
    LowGPUUtilizationParameters,
    LowGPUUtilizationState,
    Streak,
)

RULE = LowGPUUtilization()
DEFAULTS = LowGPUUtilizationParameters()
POINTS = 300
NODE = series([95.0] * 225 + [60.0] * 75, interval_s=10.0)
VIEW = list(node_minutes(NODE, closed=True))[-1].view


@pytest.mark.parametrize(
    ("since", "wasted", "closed", "status"),
    [
        (250, 30.0, True, Status.FIRED),
        (251, 30.0, True, Status.OK),
        (251, 45.0, True, Status.FIRED),
        (251, 44.5, True, Status.OK),
        (250, 30.0, False, Status.FIRED),
        (251, 45.0, False, Status.OK),
    ],
)
def test_given_a_job_that_ends_when_a_gpu_was_low_then_that_counts_where_it_has_lasted_or_cost_enough(
    since: int, wasted: float, closed: bool, status: Status
) -> None:
    streak = Streak("under", since, 225, JOB_START + 2_250.0)
    state = LowGPUUtilizationState({"gpu0": streak}, judged=POINTS, low=75, wasted={"gpu0": wasted})
    assert RULE.judge(state, replace(VIEW, closed=closed), DEFAULTS).status is status


@pytest.mark.parametrize(("since", "counts"), [(250, True), (251, False)])
def test_given_a_low_gpu_when_it_has_lasted_for_two_windows_then_what_it_wasted_counts_as_found(
    since: int, counts: bool
) -> None:
    state = LowGPUUtilizationState({"gpu0": Streak("under", since, 225, JOB_START + 2_250.0)}, wasted={"gpu0": 28.0})
    newest = list(node_minutes(NODE, closed=False))[-1]
    RULE.observe(state, newest, DEFAULTS)
    assert state.found == pytest.approx(28.0 + 6 * 0.4 if counts else 0.0)


@pytest.mark.parametrize(
    ("since", "lasted"), [(300, "just now"), (299, "for 1 point (10 s)"), (280, "for 20 points (200 s)")]
)
def test_given_a_low_gpu_when_it_has_not_lasted_then_it_is_said_for_how_long_and_from_when_on_it_counts(
    since: int, lasted: str
) -> None:
    state = LowGPUUtilizationState({"gpu0": Streak("under", since, 225, JOB_START + 2_250.0)}, judged=POINTS)
    said = RULE.judge(state, replace(VIEW, closed=False), DEFAULTS)
    assert f", {lasted}; that counts from 50 points on." in said.reason


@pytest.mark.parametrize(
    ("lost", "points", "begun", "costly"),
    [
        (150.0, 1_000, 5, True),
        (149.875, 1_000, 5, False),
        (17.0, 100, 5, False),
        (17.125, 100, 5, True),
        (6.0, 20, 5, False),
        (6.125, 20, 5, True),
        (0.0, 20, None, True),
    ],
)
def test_given_dips_when_they_cost_15_percent_and_more_than_chance_makes_then_they_are_worth_an_alert(
    lost: float, points: int, begun: int | None, costly: bool
) -> None:
    assert Streak("fluctuating", 9, begun, None, lost, points).is_costly is costly
    assert Streak("under", 9, begun, None, 0.0, points).is_costly
    assert Streak("fluctuating", 9, 5).cost == 0.0
