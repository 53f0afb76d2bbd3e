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
from trainguard.core.records import Status
from trainguard.rules.load_balancing.judging import LoadBalancingParameters
from trainguard.rules.load_balancing.text import LoadBalancingKind
from trainguard.rules.load_balancing.times import MAX_DISTANCE


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
def test_gpus_with_equal_loads_are_silent(node: NodeSeries) -> None:
    result = judge(node)

    assert result.first_fire is None
    assert result.last.status is Status.OK
    assert (result.last.advice, result.last.wasted_share) == (None, None)


def test_identical_gpus_are_not_compared_with_themselves() -> None:
    result = judge(node_of(np.full(500, 90.0), np.full(500, 90.0)))

    assert result.last.kind == LoadBalancingKind.ALIKE
    assert "gpu0 of algo-1 was at 90 % on average, gpu1 at 90 %; the distance" in result.last.reason


def test_one_gpu_behind_has_its_numbers_in_all_sentences() -> None:
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


def test_start_up_and_pause_are_paid_but_not_lost_to_imbalance() -> None:
    idle = [0.0] * 100
    busy, low = ([*idle, *[level] * 500, *idle, level] for level in (80.0, 40.0))

    result = judge(node_of(busy, low))

    assert result.last.wasted_share == pytest.approx(0.25 * 501 / 701)


def test_never_used_gpu_beside_working_ones_fires_by_name() -> None:
    result = judge(node_of(work(500, 90.0), np.zeros(500)))

    assert result.last.status is Status.FIRED
    assert result.last.worst == "gpu1"
    assert result.last.advice is not None
    assert "Let a process use gpu1 of algo-1, or pay for less" in result.last.advice
    assert result.last.wasted_share == pytest.approx(0.5, abs=1e-9)


def test_gpu_at_100_and_one_at_0_lose_nothing_at_the_edge() -> None:
    result = judge(node_of(np.full(500, 100.0), np.full(500, 0.0)))

    assert result.last.measured == pytest.approx(MAX_DISTANCE)
    assert result.last.plain_details["workloads"]["gpu0"] == [0] * 50 + [500]
    assert result.last.plain_details["means"] == {"gpu0": 100.0, "gpu1": 0.0}


@pytest.mark.parametrize(("gap", "fires"), [(12.0, False), (14.0, False), (15.0, True)])
def test_means_fire_from_a_gap_of_15_points_on(gap: float, fires: bool) -> None:
    result = judge(node_of(np.full(500, 90.0), np.full(500, 90.0 - gap)))

    assert (result.last.status is Status.FIRED) is fires
    assert ("less than 15 percentage points" in result.last.reason) is not fires


def test_distance_on_the_threshold_is_not_above_it() -> None:
    node = node_of(np.full(500, 80.0), spread_over(20.0, 80.0, 0.5, 500))
    distance = judge(node).last.measured
    assert distance is not None

    on = LoadBalancingParameters(threshold=distance)
    below = LoadBalancingParameters(threshold=distance - 1e-9)

    assert judge(node, on).last.status is Status.OK
    assert judge(node, below).last.status is Status.FIRED


def test_distance_needs_500_points() -> None:
    result = judge(node_of(np.full(502, 80.0), np.full(502, 64.0)))

    assert result.statuses == (Status.WARMING_UP,) * 8 + (Status.FIRED,)
    assert result.results[3].reason == ("algo-1 has 240 of the 500 points that a comparison takes; about 260 s left.")


@pytest.mark.parametrize(("interval_s", "minutes"), [(0.1, 5), (0.5, 5), (5.0, 10), (60.0, 20), (90.0, 30)])
def test_gpu_behind_is_judged_in_half_an_hour_at_any_sampling(interval_s: float, minutes: float) -> None:
    points = round((minutes + 5) * 60.0 / interval_s)

    result = judge(node_of(np.full(points, 80.0), np.full(points, 20.0), interval_s=interval_s))

    assert result.first_fire is not None
    assert abs(result.first_fire - minutes) <= 1.5


def test_longer_patience_is_waited_for() -> None:
    node = node_of(np.full(102, 80.0), np.full(102, 20.0), interval_s=60.0)

    assert judge(node, LoadBalancingParameters(patience=102)).statuses[100:] == (Status.WARMING_UP, Status.FIRED)
    assert judge(node, LoadBalancingParameters(patience_s=101 * 60.0)).statuses[99:101] == (
        Status.WARMING_UP,
        Status.FIRED,
    )


@pytest.mark.parametrize("interval_s", [2.0, 5.0, 60.0])
def test_gpu_idle_for_four_tenths_of_its_time_fires(interval_s: float) -> None:
    points = round(3_600.0 / interval_s)
    waits = np.arange(points) % 10 < 4

    result = judge(node_of(work(points, 95.0), np.where(waits, 0.0, work(points, 95.0, seed=1)), interval_s=interval_s))

    assert result.last.status is Status.FIRED
    assert result.last.gpus == ("gpu1",)
    assert result.last.measure is not None
    assert result.last.measure.unit == "percentage points"
    assert result.last.measured == pytest.approx(38.0, abs=3.0)


def test_twenty_minute_evaluation_on_one_gpu_is_no_imbalance() -> None:
    alone = np.concatenate([np.full(1_080, 95.0), np.zeros(240), np.full(720, 95.0)])

    assert judge(node_of(np.full(2_040, 95.0), alone, interval_s=5.0)).first_fire is None


def test_late_gpu_with_few_points_is_left_out_of_the_comparison() -> None:
    late = np.full(900, np.nan)
    late[500:] = 10.0

    result = judge(node_of(work(900, 90.0), work(900, 90.0, seed=1), late))

    assert result.last.status is Status.OK
    assert sorted(result.last.plain_details["means"]) == ["gpu0", "gpu1"]
    assert sum(result.last.plain_details["workloads"]["gpu2"]) == 400


@pytest.mark.parametrize(("points", "interval_s", "kind"), [(1_200, 1.0, "alike"), (360, 10.0, "even")])
def test_mean_of_a_lost_gpu_is_up_to_its_last_sample(points: int, interval_s: float, kind: str) -> None:
    lost = np.full(points, 90.0)
    lost[2 * points // 3 :] = np.nan
    node = node_of(np.full(points, 90.0), lost, interval_s=interval_s)

    facts = {fact.device: fact for fact in judge(node).last.facts if fact.unit == "%" and fact.name.endswith("at_work")}

    assert judge(node).last.kind == kind
    assert facts["gpu1"].end == pytest.approx(node.times[2 * points // 3 - 1])
    assert facts["gpu0"].end == pytest.approx(node.times[-1])
    assert {fact.start for fact in facts.values()} == {facts["gpu0"].start}
    assert judge(node).last.reason.count(" UTC") == len(facts)


def test_single_gpu_makes_the_rule_inapplicable_with_reason() -> None:
    assert judge(node_of(work(20, 90.0))).last.status is Status.NOT_APPLICABLE
    assert judge(node_of(work(20, 90.0))).last.reason == "algo-1 has only one GPU, and so none to compare."
    assert judge(series(np.empty((240, 0)))).last.reason == "algo-1 has no GPU, and so none to compare."


def test_missing_samples_or_activity_are_named_while_waiting() -> None:
    idle = judge(node_of(np.zeros(30), np.zeros(30)))
    ended = judge(node_of(work(30, 90.0), work(30, 90.0)), closed=True)

    assert (
        RULE.judge(RULE.state_type(), replace(idle.view, watermark_s=None), DEFAULTS).status is Status.WAITING_FOR_DATA
    )
    assert idle.last.reason == "no GPU of algo-1 has been active yet, 29 s after its first sample."
    assert ended.last.reason.endswith("its stream has ended, too early for a verdict.")


def test_only_distant_pairs_of_many_gpus_are_shown() -> None:
    equal = judge(node_of(*(work(500, 90.0, seed=seed) for seed in range(4))))
    one_low = judge(node_of(work(500, 90.0), work(500, 20.0), work(500, 90.0, seed=1)))

    assert sum(len(row) for row in equal.last.plain_details["distances"].values()) == 1
    assert {first: set(row) for first, row in one_low.last.plain_details["distances"].items()} == {
        "gpu0": {"gpu1"},
        "gpu1": {"gpu2"},
    }
