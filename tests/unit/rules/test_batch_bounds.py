"""BatchSize on its bounds: streaks, shares, onsets and sentences."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, node_minutes, replay, series
from tests.unit.rules.test_batch_size import A_POINT_A_MINUTE, LARGE, RULE, SMALL, minutely
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.batch_size.rule import BatchSizeParameters, BatchSizeState
from trainguard.rules.batch_size.text import BatchKind, text
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet


def view_of(values: list[float], *, closed: bool = False) -> NodeView:
    return list(node_minutes(minutely(values), closed=closed))[-1].view


@pytest.mark.parametrize(
    ("points", "needed", "said"),
    [
        (0, 40, "; this has just begun, and counts from 40 points on"),
        (1, 1, "; this has lasted for 1 point, and counts from 1 point on"),
        (2, None, "; this has lasted for 2 points (120 s)"),
        (1_200, 2_000, "; this has lasted for 1,200 points, and counts from 2,000 points on"),
    ],
)
def test_streak_says_how_long_it_lasted_and_when_it_counts(points: int, needed: int | None, said: str) -> None:
    levels = RULE.judge(BatchSizeState(), view_of([SMALL] * 30), A_POINT_A_MINUTE).facts
    threshold = None if needed is None else float(needed)
    lasting = (
        Fact(name="points_low", value=points, threshold=threshold),
        Fact(name="low_time", value=60.0 * points, unit="s"),
    )
    words = text(FactSheet(Status.OK, BatchKind.NOT_LONG_YET, (*levels, *lasting)))
    assert words.reason.endswith(f"{said}.")


def test_streak_begins_with_the_work_of_an_entirely_low_node() -> None:
    state = replay(RULE, A_POINT_A_MINUTE, minutely([SMALL] * 30), closed=False).state
    assert state == BatchSizeState(since=21, judged=10, low=10, begun=0, onset=JOB_START)
    later = replay(RULE, A_POINT_A_MINUTE, minutely([LARGE] * 40 + [SMALL] * 25), closed=False).state
    assert (later.since, later.begun, later.judged, later.low) == (59, 39, 45, 7)
    assert later.onset == JOB_START + 39 * 60.0


def test_ended_streak_loses_its_start_and_keeps_its_points() -> None:
    state = replay(RULE, A_POINT_A_MINUTE, minutely([SMALL] * 30 + [LARGE] * 3), closed=False).state
    assert state == BatchSizeState(since=None, judged=13, low=11, begun=None, onset=None)


def test_stored_streak_of_an_earlier_version_gets_a_start() -> None:
    minute = list(node_minutes(minutely([SMALL] * 30), closed=False))[-1]
    state = BatchSizeState(since=4, judged=20, low=20)
    RULE.observe(state, minute, A_POINT_A_MINUTE)
    assert (state.since, state.begun, state.low) == (4, 0, 21)


@pytest.mark.parametrize(("closed", "status"), [(False, Status.OK), (True, Status.FIRED)])
def test_streak_of_an_ended_job_counts_from_its_start_in_data(closed: bool, status: Status) -> None:
    result = replay(RULE, A_POINT_A_MINUTE, minutely([SMALL] * 45), closed=closed).last
    assert result.status is status
    assert f"this has lasted for {45 if closed else 24} points" in result.reason


def test_streak_without_a_start_counts_from_where_it_was_seen() -> None:
    view = view_of([SMALL] * 45, closed=True)
    result = RULE.judge(BatchSizeState(since=21, judged=25, low=25), view, A_POINT_A_MINUTE)
    assert "this has lasted for 24 points" in result.reason
    unseen = RULE.judge(BatchSizeState(), view, A_POINT_A_MINUTE)
    assert (unseen.status, unseen.affected_share) == (Status.OK, None)
    assert "this has" not in unseen.reason
    short = RULE.judge(BatchSizeState(), view, BatchSizeParameters(window_s=1.0, patience=20))
    assert "it is a part of the job" not in short.reason
    assert unseen.plain_details["last_timestamp"] == round((JOB_START + 44 * 60.0) * 1e6)


@pytest.mark.parametrize(("thresholds", "room"), [((80.0, 50.0, 40.0), 0.2), ((25.0, 80.0, 40.0), 0.2)])
def test_confidence_is_that_of_the_fullest_of_three_measures(
    thresholds: tuple[float, float, float], room: float
) -> None:
    cpu, gpu, memory = thresholds
    parameters = BatchSizeParameters(
        window=20, patience=20, cpu_threshold_p95=cpu, gpu_threshold_p95=gpu, gpu_memory_threshold_p95=memory
    )
    result = replay(RULE, parameters, minutely([SMALL] * 70), closed=False).last
    assert result.status is Status.FIRED
    assert result.confidence == pytest.approx(room)


@pytest.mark.parametrize(("low", "status"), [(16, Status.FIRED), (15, Status.FIRED), (14, Status.OK)])
def test_partly_small_batch_fires_from_15_percent_of_the_time_on(low: int, status: Status) -> None:
    view = view_of([SMALL] * 100)
    result = RULE.judge(BatchSizeState(since=21, judged=100, low=low, begun=0), view, A_POINT_A_MINUTE)
    assert (result.status, result.affected_share) == (status, low / 100)
    assert result.wasted_share == (low / 100 if status is Status.FIRED else None)
    said = "a part of the job that leaves 14 % of its time unused, and counts from 15 % on"
    assert (said in result.reason) is (status is Status.OK)
    assert result.kind == (BatchKind.TOO_SMALL if status is Status.FIRED else BatchKind.SMALL_PART)


@pytest.mark.parametrize(("closed", "status"), [(True, Status.NOT_APPLICABLE), (False, Status.WARMING_UP)])
def test_single_point_without_cpu_of_an_ended_job_does_not_apply(closed: bool, status: Status) -> None:
    view = replace(view_of([SMALL] * 30), kept_total=1, closed=closed, kept_cpu_mean=np.full(30, np.nan))
    assert RULE.judge(BatchSizeState(), view, A_POINT_A_MINUTE).status is status
    assert RULE.judge(BatchSizeState(judged=1), view, A_POINT_A_MINUTE).status is Status.WARMING_UP
    assert RULE.judge(BatchSizeState(), replace(view, kept_total=0), A_POINT_A_MINUTE).status is Status.WARMING_UP


@pytest.mark.parametrize(("points", "said"), [(20, "algo-1 has 20 of the 20 points"), (21, "too few of the newest")])
def test_points_without_samples_past_patience_change_the_reason(points: int, said: str) -> None:
    view = replace(view_of([SMALL] * 30), kept_total=points, kept_gpu_memory=np.full((30, 1), np.nan))
    assert said in RULE.judge(BatchSizeState(judged=1), view, A_POINT_A_MINUTE).reason


@pytest.mark.parametrize(("level", "begun"), [(69.0, 0), (70.0, 39)])
def test_overall_percentile_on_the_threshold_makes_window_onset(level: float, begun: int) -> None:
    values = [level] * 40 + [SMALL] * 25
    state = replay(RULE, A_POINT_A_MINUTE, series(values, gpu_memory=[20.0] * 65, interval_s=60.0), closed=False).state
    assert state.since is not None
    assert state.begun == (0 if level < 70.0 else begun)
