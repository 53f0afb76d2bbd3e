import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from tests.unit.rules.node_replay import NodeSeries, Replay, node_minutes, replay, series
from trainguard.records import Status
from trainguard.rules.divergence import MAX_DISTANCE, compare_pairs, compare_with_rest, jensen_shannon, two_point_bins
from trainguard.rules.judgement import Judgement
from trainguard.rules.load_balancing import LoadBalancing, LoadBalancingAcrossNodes, LoadBalancingParameters
from trainguard.rules.views import JobView, NodeFacts, NodeView
from trainguard.telemetry.keys import hour_folder
from trainguard.telemetry.snapshots import FloatArray, IntArray

RULE = LoadBalancing()
JOB_RULE = LoadBalancingAcrossNodes()
DEFAULTS = LoadBalancingParameters()


def judge(node: NodeSeries, parameters: LoadBalancingParameters = DEFAULTS, *, closed: bool = False) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def node_of(*gpus: FloatArray | list[float], interval_s: float = 1.0) -> NodeSeries:
    """Build a node's series, a column a GPU."""
    return series(np.column_stack(gpus), interval_s=interval_s)


def work(points: int, level: float, *, seed: int = 0) -> FloatArray:
    return np.clip(np.rint(np.random.default_rng(seed).normal(level, 4.0, points)), 0.0, 100.0)


def spread_over(low: float, high: float, share: float, points: int = 600) -> FloatArray:
    """``share`` of the points at ``high``, the others at ``low``, evenly mixed."""
    return np.where(np.arange(points) * share % 1.0 + share >= 1.0, high, low)


def counted(*values: float, points: int = 1_000) -> IntArray:
    """Counts of one GPU whose points are spread evenly over some values."""
    counts = np.zeros(101, dtype=np.int64)
    for value in values:
        counts[int(value)] += points // len(values)
    return counts


def view_of(name: str, *gpus: IntArray, idle_run_s: float = 0.0, interval_s: float = 0.5) -> NodeView:
    """Build a node's view from its GPUs' counts; without a count it was never active."""
    ended = next(iter(node_minutes(node_of(*[[90.0]] * max(len(gpus), 1)), closed=False))).view
    histogram = np.array(gpus, dtype=np.int64).reshape(len(gpus), 101)
    points = int(histogram.sum(axis=1).max()) if gpus else 0
    return replace(
        ended,
        node=name,
        gpu_names=tuple(f"gpu{index}" for index in range(len(gpus))),
        gpu_histogram=histogram,
        kept_total=points,
        interval_s=interval_s,
        idle_run_s=idle_run_s,
        first_sample_at=0.0,
        first_active_at=0.0 if points else None,
        through=max(points * interval_s, idle_run_s) - interval_s,
    )


def across(*views: NodeView, parameters: LoadBalancingParameters = DEFAULTS) -> Judgement:
    nodes = {view.node: NodeFacts(view.node, view) for view in views}
    job = JobView(0.0, 0.0, None, False, False, False, nodes)
    return JOB_RULE.judge(job, parameters)


def nothing() -> IntArray:
    return np.zeros(101, dtype=np.int64)


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

    assert result.last.reason.startswith("gpu0 of algo-1 is at 90 % on average, gpu1 at 90 %; the distance")


def test_given_one_gpu_behind_when_it_fires_then_reason_advice_and_cost_have_its_numbers() -> None:
    result = judge(node_of(np.full(500, 80.0), np.full(500, 80.0), np.full(500, 20.0), np.full(500, 80.0)))

    assert result.last.status is Status.FIRED
    assert result.last.reason == (
        "gpu2 of algo-1 is at 20 % on average, gpu0 at 80 %; the distance of their histograms is 0.83 (threshold 0.5, "
        "at most 0.83)."
    )
    assert (result.last.worst, result.last.threshold, result.last.data_points) == ("gpu2", 0.5, 500)
    assert result.last.measured == pytest.approx(MAX_DISTANCE)
    assert result.last.wasted_share == pytest.approx(1.0 - 65.0 / 80.0)
    assert result.last.affected_share == 1.0
    assert result.last.advice is not None
    assert result.last.advice.startswith(
        "Together they do 18.8 % less than at the pace of the busiest, which cost 18.8 %"
    )
    assert "let a process use" not in result.last.advice


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
    assert "let a process use gpu1 of algo-1, or pay for less" in result.last.advice
    assert result.last.wasted_share == pytest.approx(0.5, abs=1e-9)


def test_given_a_gpu_always_at_100_and_one_at_0_when_judged_then_nothing_is_lost_at_the_edge() -> None:
    result = judge(node_of(np.full(500, 100.0), np.full(500, 0.0)))

    assert result.last.measured == pytest.approx(MAX_DISTANCE)
    assert result.last.details["workloads"]["gpu0"] == [0] * 50 + [500]
    assert result.last.details["means"] == {"gpu0": 100.0, "gpu1": 0.0}


@pytest.mark.parametrize(("gap", "fires"), [(9.0, False), (10.0, True)])
def test_given_means_about_the_least_gap_when_judged_then_from_10_points_on_it_fires(gap: float, fires: bool) -> None:
    result = judge(node_of(np.full(500, 90.0), np.full(500, 90.0 - gap)))

    assert (result.last.status is Status.FIRED) is fires
    assert ("less than 10 percentage points" in result.last.reason) is not fires


def test_given_a_distance_exactly_on_the_threshold_when_judged_then_it_is_not_above_it() -> None:
    node = node_of(np.full(500, 80.0), spread_over(20.0, 80.0, 0.5, 500))
    distance = judge(node).last.measured
    assert distance is not None

    on = LoadBalancingParameters(threshold=distance)
    below = LoadBalancingParameters(threshold=distance - 1e-9)

    assert judge(node, on).last.status is Status.OK
    assert judge(node, below).last.status is Status.FIRED


def test_given_points_about_500_when_judged_then_it_warms_up_until_they_are_there() -> None:
    result = judge(node_of(np.full(502, 80.0), np.full(502, 20.0), interval_s=60.0))

    assert result.statuses == (Status.WARMING_UP,) * 499 + (Status.FIRED,) * 3
    assert result.judgements[498].patience == "499/500"
    assert result.judgements[199].reason == (
        "algo-1 has 200 of the 500 points that a comparison takes; about 5 h left at a sampling interval of 60 s."
    )


def test_given_a_longer_patience_when_judged_then_it_is_waited_for() -> None:
    node = node_of(np.full(502, 80.0), np.full(502, 20.0), interval_s=60.0)

    assert judge(node, LoadBalancingParameters(patience=502)).statuses[500:] == (Status.WARMING_UP, Status.FIRED)
    assert judge(node, LoadBalancingParameters(patience_s=501 * 60.0)).statuses[499:501] == (
        Status.WARMING_UP,
        Status.FIRED,
    )


def test_given_a_gpu_that_appears_late_when_it_has_too_few_points_then_the_others_are_compared_without_it() -> None:
    late = np.full(900, np.nan)
    late[500:] = 10.0

    result = judge(node_of(work(900, 90.0), work(900, 90.0, seed=1), late))

    assert result.last.status is Status.OK
    assert sorted(result.last.details["means"]) == ["gpu0", "gpu1"]
    assert sum(result.last.details["workloads"]["gpu2"]) == 400


def test_given_one_gpu_when_judged_then_it_does_not_apply_and_says_why() -> None:
    assert judge(node_of(work(20, 90.0))).last.status is Status.NOT_APPLICABLE
    assert judge(node_of(work(20, 90.0))).last.reason == "algo-1 has only one GPU, and so none to compare."
    assert judge(series(np.empty((240, 0)))).last.reason == "algo-1 has no GPU, and so none to compare."


def test_given_no_sample_or_no_activity_when_judged_then_it_says_what_it_waits_for() -> None:
    idle = judge(node_of(np.zeros(30), np.zeros(30)))
    ended = judge(node_of(work(30, 90.0), work(30, 90.0)), closed=True)

    assert RULE.judge(RULE.state_type(), replace(idle.view, through=None), DEFAULTS).status is Status.WAITING_FOR_DATA
    assert idle.last.reason == "no GPU of algo-1 has been active yet, 29 s after its first sample."
    assert ended.last.reason.endswith("its stream has ended, too early for a verdict.")


def test_given_many_gpus_when_judged_then_only_the_pairs_that_are_apart_and_the_largest_distance_are_shown() -> None:
    equal = judge(node_of(*(work(500, 90.0, seed=seed) for seed in range(4))))
    one_low = judge(node_of(work(500, 90.0), work(500, 20.0), work(500, 90.0, seed=1)))

    assert sum(len(row) for row in equal.last.details["distances"].values()) == 1
    assert {first: set(row) for first, row in one_low.last.details["distances"].items()} == {
        "gpu0": {"gpu1"},
        "gpu1": {"gpu2"},
    }


def test_given_equal_nodes_when_compared_then_it_stays_silent() -> None:
    views = [view_of(f"algo-{node}", counted(88, 90, 92), counted(88, 90, 94)) for node in range(1, 5)]

    said = across(*views)

    assert said.status is Status.OK
    assert (said.data_points, said.measured) == (4 * 999, 0.0)


def test_given_one_slow_node_of_three_when_compared_then_only_it_fires_and_is_named() -> None:
    said = across(
        view_of("algo-1", counted(90), counted(90)),
        view_of("algo-2", counted(30)),
        view_of("algo-3", *[counted(90)] * 8),
    )

    assert said.status is Status.FIRED
    assert said.reason == (
        "algo-2 is at 30 % on average, the other 2 nodes together at 90 %; the distance of their histograms is 0.83 "
        "(threshold 0.5, at most 0.83)."
    )
    assert said.worst == "algo-2"
    assert said.advice is not None
    assert "look at what is different on algo-2: its share of the data, its network" in said.advice
    assert said.details["distances"]["algo-2"] == pytest.approx(MAX_DISTANCE)
    assert said.details["distances"]["algo-3"] < 0.5
    assert said.details["means"] == {"algo-1": 90.0, "algo-2": 30.0, "algo-3": 90.0}
    assert said.wasted_share == pytest.approx((1.0 - 30.0 / 90.0) / 3.0)


def test_given_nodes_whose_gpus_differ_alike_when_compared_then_the_nodes_are_equal() -> None:
    uneven = (counted(100), counted(0))

    assert across(view_of("algo-1", *uneven), view_of("algo-2", *uneven)).status is Status.OK


def test_given_a_node_that_was_never_used_when_it_has_idled_for_over_20_minutes_then_it_fires() -> None:
    working = view_of("algo-1", counted(90, points=4_000))

    short = across(working, view_of("algo-2", nothing(), idle_run_s=1_200.0))
    long = across(working, view_of("algo-2", nothing(), idle_run_s=1_260.0))

    assert short.status is Status.WARMING_UP
    assert long.status is Status.FIRED
    assert (long.worst, long.details["means"]["algo-2"]) == ("algo-2", 0.0)
    assert long.wasted_share == pytest.approx(0.5)


def test_given_nodes_without_gpus_or_points_when_compared_then_they_are_left_out() -> None:
    slow, fast = view_of("algo-1", counted(30)), view_of("algo-2", counted(90))

    alone = across(slow, view_of("algo-3"))
    few = across(slow, view_of("algo-2", counted(90, points=200)))
    three = across(slow, fast, view_of("algo-3"), view_of("algo-4", counted(10, points=200)))

    assert alone.status is Status.NOT_APPLICABLE
    assert alone.reason == "the job has only one node with GPUs, and so none to compare."
    assert few.reason == "algo-2 has 200 of the 500 points that a comparison takes; about 150 s left."
    assert across(view_of("algo-3")).reason == "the job has no node with GPUs, and so none to compare."
    assert three.status is Status.FIRED
    assert set(three.details["means"]) == {"algo-1", "algo-2"}
    assert JOB_RULE.judge(JobView(0.0, None, None, True, True, False, {}), DEFAULTS).status is Status.NOT_APPLICABLE


def test_given_both_rules_when_an_episode_is_kept_then_it_ends_after_the_same_time() -> None:
    assert RULE.clear_after_s(DEFAULTS, 0.5) == JOB_RULE.clear_after_s(DEFAULTS, 0.5) == 5_400.0
    assert RULE.window_points(DEFAULTS, 0.5) == 0


def minute_of_gpus(node: int, index: int, *levels: float) -> Upload:
    """Return the object of one minute at 1 s of a node whose GPUs stand at ``levels``."""
    minute = START + 60 * index
    lines = [
        {"Type": "gpu", "Name": f"gpu{gpu}", "Dimension": "GPUUtilization", "Value": level, "NodeId": f"algo-{node}"}
        | {"Timestamp": minute + second + 0.01}
        for second in range(60)
        for gpu, level in enumerate(levels)
    ]
    key = f"{JOB}/profiler-output/system/incremental/{hour_folder(minute)}/{minute}.algo-{node}.json"
    return Upload(minute + 60.5, key, "".join(json.dumps(line) + "\n" for line in lines).encode())


def deliver(*levels: tuple[float, ...]) -> Network:
    """Deliver ten minutes of nodes with these GPUs, with a tick after each."""
    network = Network()
    network.world.training_jobs.set(replace(describe({}), profiling_interval_ms=1_000, framework_profiling=False))
    for index in range(10):
        for node, gpus in enumerate(levels, start=1):
            upload = minute_of_gpus(node, index, *gpus)
            network.put(upload)
            network.ring(upload, upload.at)
        network.run_until(START + 60.0 * index + 90.0, batch_s=0.0)
        network.tick()
    return network


def test_given_two_nodes_of_one_gpu_when_one_is_slow_then_the_job_fires_once_and_its_nodes_do_not_apply() -> None:
    network = deliver((90.0,), (30.0,))

    shown = {row.node: row for row in network.world.rows.of_job(JOB) if row.rule == "LoadBalancing"}
    started = [each for each in network.world.executions.started.values() if each["rule"] == "LoadBalancing"]

    assert shown[None].status is Status.FIRED
    assert (shown[None].worst, shown[None].times_fired) == ("algo-2", 1)
    assert shown[None].reason.startswith("algo-2 is at 30 % on average, algo-1 at 90 %")
    assert {shown["algo-1"].status, shown["algo-2"].status} == {Status.NOT_APPLICABLE}
    assert len(started) == 1


def test_given_two_nodes_with_the_same_imbalance_when_delivered_then_a_node_speaks_for_the_job() -> None:
    network = deliver((90.0, 30.0), (90.0, 30.0))

    shown = {row.node: row for row in network.world.rows.of_job(JOB) if row.rule == "LoadBalancing"}

    assert shown[None].status is Status.FIRED
    assert shown[None].worst == "algo-1/gpu1"
    assert shown[None].reason.startswith("2 of 2 nodes fire; worst algo-1: gpu1 of algo-1 is at 30 % on average")
    assert len([each for each in network.world.executions.started.values() if each["rule"] == "LoadBalancing"]) == 1


histograms = st.lists(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=6), min_size=2, max_size=6
)


def table(rows: list[list[tuple[int, int]]]) -> IntArray:
    counts = np.zeros((len(rows), 101), dtype=np.int64)
    for index, row in enumerate(rows):
        for value, count in row:
            counts[index, value] += count
    return counts


@given(histograms)
def test_given_any_histograms_when_compared_then_the_distance_is_that_of_its_definition_and_a_metric(
    rows: list[list[tuple[int, int]]],
) -> None:
    counts = table(rows)
    bins = two_point_bins(counts)
    compared = compare_pairs(counts)

    shares = bins / bins.sum(axis=1, keepdims=True)
    for first in range(len(rows)):
        for second in range(len(rows)):
            middle = (shares[first] + shares[second]) / 2.0
            with np.errstate(divide="ignore", invalid="ignore"):
                parts = [np.nansum(share * np.log(share / middle)) for share in (shares[first], shares[second])]
            expected = np.sqrt(max(sum(parts) / 2.0, 0.0))
            assert compared.distances[first, second] == pytest.approx(expected, abs=1e-7)
    d = compared.distances
    assert np.allclose(d, d.T)
    assert np.all(np.diag(d) == 0.0)
    assert d.max() <= MAX_DISTANCE + 1e-12
    assert np.all(d[:, :, np.newaxis] <= d[:, np.newaxis, :] + d[np.newaxis].swapaxes(1, 2) + 1e-6)
    assert bins.sum() == counts.sum()
    assert np.all((compared.unlike >= 0.0) & (compared.unlike <= 1.0))


def test_given_loads_without_a_common_value_when_compared_then_the_unlike_share_is_no_more_than_all() -> None:
    for seed in range(50):
        counts = np.random.default_rng(seed).integers(1, 1_000, (2, 101))
        counts[0, 50:] = counts[1, :50] = 0
        assert compare_pairs(counts).unlike.max() <= 1.0


@given(histograms)
def test_given_any_nodes_when_one_is_left_out_then_it_is_compared_with_the_sum_of_the_others(
    rows: list[list[tuple[int, int]]],
) -> None:
    counts = table(rows)
    compared = compare_with_rest(counts)

    for index in range(len(rows)):
        others = np.delete(counts, index, axis=0).sum(axis=0)
        pair = compare_pairs(np.stack([counts[index], others]))
        assert compared.distances[index, 0] == pytest.approx(pair.distances[0, 1], abs=1e-12)
        assert compared.others[index, 0] == pytest.approx(pair.means[1])
        assert compared.means[index] == pytest.approx(pair.means[0])


def test_given_counts_of_any_size_when_multiplied_then_the_distance_stays() -> None:
    counts = np.stack([counted(10, 30, 50), counted(30, 90)])

    assert compare_pairs(counts).distances == pytest.approx(compare_pairs(counts * np.array([[1], [977]])).distances)
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(np.sqrt(np.log(2.0)))
