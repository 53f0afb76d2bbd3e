"""How long a GPU must be low, and what that must have cost: on the bounds."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, node_minutes, replay, series
from trainguard.records import Status
from trainguard.rules.low_gpu_state import LowGPUUtilizationState
from trainguard.rules.low_gpu_usage import Streak
from trainguard.rules.low_gpu_utilization import LowGPUUtilization, LowGPUUtilizationParameters

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


@pytest.mark.parametrize(("since", "lasted"), [(300, "just now"), (299, "for 1 point"), (280, "for 20 points")])
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


def test_given_a_streak_that_an_earlier_version_stored_when_it_goes_on_then_it_has_lasted_since_it_began_there() -> (
    None
):
    newest = list(node_minutes(NODE, closed=False))[-1]
    for earlier, since in ((Streak("under", 7), 7), (Streak("fluctuating", 7), POINTS)):
        state = LowGPUUtilizationState({"gpu0": earlier})
        RULE.observe(state, newest, DEFAULTS)
        assert (state.streaks["gpu0"].kind, state.streaks["gpu0"].since) == ("under", since)
        assert state.streaks["gpu0"].begun is not None


def test_given_several_low_gpus_when_they_fire_then_the_worst_is_told_and_how_many_there_are() -> None:
    node = series(np.column_stack([[60.0] * POINTS, [50.0] * POINTS]), interval_s=10.0)
    view = list(node_minutes(node, closed=False))[-1].view
    streaks = {gpu: Streak("under", 0, 0, JOB_START) for gpu in view.gpu_names}
    said = RULE.judge(LowGPUUtilizationState(streaks, judged=POINTS, low=POINTS), view, DEFAULTS)
    assert (said.status, said.worst, said.gpus) == (Status.FIRED, "gpu1", ("gpu0", "gpu1"))
    assert said.reason.endswith("; 2 GPUs of algo-1 are low.")
    alone = LowGPUUtilizationState({"gpu0": streaks["gpu0"]}, judged=POINTS, low=POINTS)
    assert "GPUs of algo-1 are low" not in RULE.judge(alone, view, DEFAULTS).reason


def test_given_dips_in_the_newest_window_when_they_are_seen_then_they_began_with_the_first_of_them() -> None:
    level = np.full(POINTS, 95.0)
    level[[280, 281, 290, 291]] = 0.0
    state = LowGPUUtilizationState()
    RULE.observe(state, list(node_minutes(series(level, interval_s=10.0), closed=False))[-1], DEFAULTS)
    streak = state.streaks["gpu0"]
    assert (streak.kind, streak.begun, streak.onset) == ("fluctuating", 280, JOB_START + 2_800.0)


@pytest.mark.parametrize(("later", "fires"), [(74.0, True), (76.0, False)])
def test_a_low_gpu_is_found_until_it_is_five_points_above(later: float, fires: bool) -> None:
    levels = [95.0] * 30 + [60.0] * 150 + [later] * 90

    result = replay(RULE, DEFAULTS, series(levels, interval_s=10.0), closed=False)

    assert result.statuses[29] is Status.FIRED
    assert (result.last.status is Status.FIRED) is fires


def test_a_gpu_that_was_never_low_has_no_margin() -> None:
    levels = [95.0] * 30 + [74.0] * 240

    result = replay(RULE, DEFAULTS, series(levels, interval_s=10.0), closed=False)

    assert result.first_fire is None


@pytest.mark.parametrize(("low", "fires"), [(14.0, True), (16.0, False)])
def test_a_gpu_that_fluctuates_is_found_until_its_dips_are_shallow(low: float, fires: bool) -> None:
    levels = [95.0] * 12 + [95.0, 95.0, 0.0] * 60 + [95.0, 95.0, low] * 40

    result = replay(RULE, DEFAULTS, series(levels, interval_s=10.0), closed=False)

    assert Status.FIRED in result.statuses[:32]
    assert (result.last.status is Status.FIRED) is fires
