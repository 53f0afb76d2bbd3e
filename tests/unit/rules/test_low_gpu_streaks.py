"""How long a GPU must be low, and what that must have cost: on the bounds."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, node_minutes, replay, series
from trainguard.core.records import Status
from trainguard.rules.low_gpu_utilization.results import LowGPUUtilizationState
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.low_gpu_utilization.usage import Streak

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
def test_ended_job_counts_a_low_gpu_that_lasted_or_cost_enough(
    since: int, wasted: float, closed: bool, status: Status
) -> None:
    streak = Streak("under", since, 225, JOB_START + 2_250.0)
    state = LowGPUUtilizationState({"gpu0": streak}, judged=POINTS, low=75, wasted={"gpu0": wasted})
    assert RULE.judge(state, replace(VIEW, closed=closed), DEFAULTS).status is status


@pytest.mark.parametrize(("since", "counts"), [(250, True), (251, False)])
def test_waste_of_a_low_gpu_counts_after_two_windows(since: int, counts: bool) -> None:
    state = LowGPUUtilizationState({"gpu0": Streak("under", since, 225, JOB_START + 2_250.0)}, wasted={"gpu0": 28.0})
    newest = list(node_minutes(NODE, closed=False))[-1]
    RULE.observe(state, newest, DEFAULTS)
    assert state.found == pytest.approx(28.0 + 6 * 0.4 if counts else 0.0)


@pytest.mark.parametrize(("since", "lasted"), [(300, "just now"), (299, "for 1 point"), (280, "for 20 points")])
def test_short_low_streak_says_how_long_and_when_it_counts(since: int, lasted: str) -> None:
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
def test_dips_are_costly_from_15_percent_and_beyond_chance(
    lost: float, points: int, begun: int | None, costly: bool
) -> None:
    assert Streak("fluctuating", 9, begun, None, lost, points).is_costly is costly
    assert Streak("under", 9, begun, None, 0.0, points).is_costly
    assert Streak("fluctuating", 9, 5).cost == 0.0


def test_stored_streak_of_an_earlier_version_keeps_its_start() -> None:
    newest = list(node_minutes(NODE, closed=False))[-1]
    for earlier, since in ((Streak("under", 7), 7), (Streak("fluctuating", 7), POINTS)):
        state = LowGPUUtilizationState({"gpu0": earlier})
        RULE.observe(state, newest, DEFAULTS)
        assert (state.streaks["gpu0"].kind, state.streaks["gpu0"].since) == ("under", since)
        assert state.streaks["gpu0"].begun is not None


def test_worst_of_several_low_gpus_is_named_with_their_number() -> None:
    node = series(np.column_stack([[60.0] * POINTS, [50.0] * POINTS]), interval_s=10.0)
    view = list(node_minutes(node, closed=False))[-1].view
    streaks = {gpu: Streak("under", 0, 0, JOB_START) for gpu in view.gpu_names}
    said = RULE.judge(LowGPUUtilizationState(streaks, judged=POINTS, low=POINTS), view, DEFAULTS)
    assert (said.status, said.worst, said.gpus) == (Status.FIRED, "gpu1", ("gpu0", "gpu1"))
    assert said.reason.endswith("; 2 GPUs of algo-1 are low.")
    alone = LowGPUUtilizationState({"gpu0": streaks["gpu0"]}, judged=POINTS, low=POINTS)
    assert "GPUs of algo-1 are low" not in RULE.judge(alone, view, DEFAULTS).reason


def test_dips_in_the_newest_window_began_with_the_first_one() -> None:
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
def test_fluctuating_gpu_is_found_until_its_dips_are_shallow(low: float, fires: bool) -> None:
    levels = [95.0] * 12 + [95.0, 95.0, 0.0] * 60 + [95.0, 95.0, low] * 40

    result = replay(RULE, DEFAULTS, series(levels, interval_s=10.0), closed=False)

    assert Status.FIRED in result.statuses[:32]
    assert (result.last.status is Status.FIRED) is fires
