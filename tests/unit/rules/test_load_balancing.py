from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.gpu_loads import (
    DEFAULTS,
    RULE,
    judge,
    node_of,
    spread_over,
    work,
)
from tests.unit.rules.node_replay import NodeSeries, series
from trainguard.records import Status
from trainguard.rules.balance_judging import LoadBalancingParameters
from trainguard.rules.balance_text import LoadBalancingKind
from trainguard.rules.divergence import MAX_DISTANCE


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(node_of(*(work(600, 90.0, seed=seed) for seed in range(8))), id="eight equal GPUs"),
        pytest.param(node_of(np.full(600, 97.0), np.full(600, 99.0)), id="97 % against 99 %"),
        pytest.param(node_of(np.full(600, 99.0), np.full(600, 100.0)), id="99 % against 100 %"),
        pytest.param(node_of(spread_over(40, 90, 0.5), spread_over(40, 90, 0.6)), id="means apart, distance small"),
        pytest.param(node_of(np.tile([90.0, 20.0], 300), np.tile([20.0, 90.0], 300)), id="in turns"),
    ],
)
def test_given_gpus_with_equal_loads_when_replayed_then_it_stays_silent(node: NodeSeries) -> None:
    result = judge(node)

    assert result.first_fire is None
    assert result.last.status is Status.OK
    assert (result.last.advice, result.last.wasted_share) == (None, None)


def test_given_gpus_that_are_the_same_when_judged_then_the_reason_is_not_of_one_with_itself() -> None:
    result = judge(node_of(np.full(500, 90.0), np.full(500, 90.0)))

    assert result.last.kind == LoadBalancingKind.ALIKE
    assert "gpu0 of algo-1 was at 90 % on average, gpu1 at 90 %; the distance" in result.last.reason


def test_given_one_gpu_behind_when_it_fires_then_reason_advice_and_cost_have_its_numbers() -> None:
    result = judge(node_of(np.full(500, 80.0), np.full(500, 80.0), np.full(500, 20.0), np.full(500, 80.0)))

    assert result.last.status is Status.FIRED
    assert result.last.reason == (
        "From 2023-11-14 22:14 to 22:22 UTC, pauses left out, gpu2 of algo-1 was at 20 % on average, gpu0 at 80 %; the "
        "distance of their histograms is 0.83 (threshold 0.5, at most 0.83)."
    )
    assert (result.last.worst, result.last.threshold, result.last.data_points) == ("gpu2", 0.5, 500)
    assert result.last.measured == pytest.approx(MAX_DISTANCE)
    assert result.last.wasted_share == pytest.approx(1.0 - 65.0 / 80.0)
    assert result.last.affected_share == 1.0
    assert (result.last.advice or "").startswith("Split data and model evenly")


def test_given_start_up_and_a_pause_when_it_fires_then_they_are_paid_for_and_not_lost_to_the_imbalance() -> None:
    idle = [0.0] * 100
    busy, low = ([*idle, *[level] * 500, *idle, level] for level in (80.0, 40.0))

    result = judge(node_of(busy, low))

    assert result.last.wasted_share == pytest.approx(0.25 * 501 / 701)


def test_given_a_gpu_that_is_never_used_while_others_work_when_judged_then_it_fires_and_says_so() -> None:
    result = judge(node_of(work(500, 90.0), np.zeros(500)))

    assert result.last.status is Status.FIRED
    assert result.last.worst == "gpu1"
    assert result.last.advice is not None
    assert "Let a process use gpu1 of algo-1, or pay for less" in result.last.advice
    assert result.last.wasted_share == pytest.approx(0.5, abs=1e-9)


def test_given_a_gpu_always_at_100_and_one_at_0_when_judged_then_nothing_is_lost_at_the_edge() -> None:
    result = judge(node_of(np.full(500, 100.0), np.full(500, 0.0)))

    assert result.last.measured == pytest.approx(MAX_DISTANCE)
    assert result.last.plain_details["workloads"]["gpu0"] == [0] * 50 + [500]
    assert result.last.plain_details["means"] == {"gpu0": 100.0, "gpu1": 0.0}


@pytest.mark.parametrize(("gap", "fires"), [(12.0, False), (14.0, False), (15.0, True)])
def test_given_means_about_the_least_gap_when_judged_then_from_15_points_on_it_fires(gap: float, fires: bool) -> None:
    result = judge(node_of(np.full(500, 90.0), np.full(500, 90.0 - gap)))

    assert (result.last.status is Status.FIRED) is fires
    assert ("less than 15 percentage points" in result.last.reason) is not fires


def test_given_a_distance_exactly_on_the_threshold_when_judged_then_it_is_not_above_it() -> None:
    node = node_of(np.full(500, 80.0), spread_over(20.0, 80.0, 0.5, 500))
    distance = judge(node).last.measured
    assert distance is not None

    on = LoadBalancingParameters(threshold=distance)
    below = LoadBalancingParameters(threshold=distance - 1e-9)

    assert judge(node, on).last.status is Status.OK
    assert judge(node, below).last.status is Status.FIRED


def test_given_points_about_500_when_judged_then_a_distance_takes_as_many() -> None:
    result = judge(node_of(np.full(502, 80.0), np.full(502, 64.0)))

    assert result.statuses == (Status.WARMING_UP,) * 8 + (Status.FIRED,)
    assert result.results[3].reason == ("algo-1 has 240 of the 500 points that a comparison takes; about 260 s left.")


@pytest.mark.parametrize(("interval_s", "minutes"), [(0.1, 5), (0.5, 5), (5.0, 10), (60.0, 20), (90.0, 30)])
def test_given_any_sampling_interval_when_a_gpu_is_behind_then_it_is_judged_within_half_an_hour(
    interval_s: float, minutes: float
) -> None:
    points = round((minutes + 5) * 60.0 / interval_s)

    result = judge(node_of(np.full(points, 80.0), np.full(points, 20.0), interval_s=interval_s))

    assert result.first_fire is not None
    assert abs(result.first_fire - minutes) <= 1.5


def test_given_a_longer_patience_when_judged_then_it_is_waited_for() -> None:
    node = node_of(np.full(502, 80.0), np.full(502, 20.0), interval_s=60.0)

    assert judge(node, LoadBalancingParameters(patience=502)).statuses[500:] == (Status.WARMING_UP, Status.FIRED)
    assert judge(node, LoadBalancingParameters(patience_s=501 * 60.0)).statuses[499:501] == (
        Status.WARMING_UP,
        Status.FIRED,
    )


@pytest.mark.parametrize("interval_s", [2.0, 5.0, 60.0])
def test_given_a_gpu_that_idles_four_tenths_of_its_time_when_the_others_work_then_it_fires(interval_s: float) -> None:
    points = round(3_600.0 / interval_s)
    waits = np.arange(points) % 10 < 4

    result = judge(node_of(work(points, 95.0), np.where(waits, 0.0, work(points, 95.0, seed=1)), interval_s=interval_s))

    assert result.last.status is Status.FIRED
    assert result.last.gpus == ("gpu1",)
    assert result.last.measure is not None
    assert result.last.measure.unit == "percentage points"
    assert result.last.measured == pytest.approx(38.0, abs=3.0)


def test_given_one_gpu_that_evaluates_for_twenty_minutes_when_the_others_wait_then_it_is_no_imbalance() -> None:
    alone = np.concatenate([np.full(1_080, 95.0), np.zeros(240), np.full(720, 95.0)])

    assert judge(node_of(np.full(2_040, 95.0), alone, interval_s=5.0)).first_fire is None


def test_given_a_gpu_that_appears_late_when_it_has_too_few_points_then_the_others_are_compared_without_it() -> None:
    late = np.full(900, np.nan)
    late[500:] = 10.0

    result = judge(node_of(work(900, 90.0), work(900, 90.0, seed=1), late))

    assert result.last.status is Status.OK
    assert sorted(result.last.plain_details["means"]) == ["gpu0", "gpu1"]
    assert sum(result.last.plain_details["workloads"]["gpu2"]) == 400


def test_given_one_gpu_when_judged_then_it_does_not_apply_and_says_why() -> None:
    assert judge(node_of(work(20, 90.0))).last.status is Status.NOT_APPLICABLE
    assert judge(node_of(work(20, 90.0))).last.reason == "algo-1 has only one GPU, and so none to compare."
    assert judge(series(np.empty((240, 0)))).last.reason == "algo-1 has no GPU, and so none to compare."


def test_given_no_sample_or_no_activity_when_judged_then_it_says_what_it_waits_for() -> None:
    idle = judge(node_of(np.zeros(30), np.zeros(30)))
    ended = judge(node_of(work(30, 90.0), work(30, 90.0)), closed=True)

    assert (
        RULE.judge(RULE.state_type(), replace(idle.view, watermark_s=None), DEFAULTS).status is Status.WAITING_FOR_DATA
    )
    assert idle.last.reason == "no GPU of algo-1 has been active yet, 29 s after its first sample."
    assert ended.last.reason.endswith("its stream has ended, too early for a verdict.")


def test_given_many_gpus_when_judged_then_only_the_pairs_that_are_apart_and_the_largest_distance_are_shown() -> None:
    equal = judge(node_of(*(work(500, 90.0, seed=seed) for seed in range(4))))
    one_low = judge(node_of(work(500, 90.0), work(500, 20.0), work(500, 90.0, seed=1)))

    assert sum(len(row) for row in equal.last.plain_details["distances"].values()) == 1
    assert {first: set(row) for first, row in one_low.last.plain_details["distances"].items()} == {
        "gpu0": {"gpu1"},
        "gpu1": {"gpu2"},
    }
