"""Digests to what a report shows: rounding, gaps, the part of the axis, what is thinned and what is said about it."""

import pytest

from tests.unit.timeline.samples import EVAL, START, Row, axis, digest, samples, steps
from trainguard.core.errors import TimelinePartError
from trainguard.report.timeline.build import GPUS_WITH_BANDS, build_timelines
from trainguard.report.timeline.digest import KEPT_SLOWEST, NodeDigest
from trainguard.report.timeline.series import Timelines
from trainguard.report.timeline.shown import FEWEST_SLOWEST, MAX_PROCESSES, SLOWEST_OF_ALL


def build(*digests: NodeDigest, started_at: float | None = None, ended_at: float | None = None) -> Timelines:
    return build_timelines(digests, episodes=[], started_at=started_at, ended_at=ended_at)


def test_every_series_of_a_node_has_none_where_not_collected() -> None:
    rows: list[Row] = []
    for at, value in ((1.0, 10.0), (2.0, 20.24), (25.0, 60.0)):
        rows += [(at, kind, "gpu0", value) for kind in ("gpu", "gpu_memory", "host_memory")]
        rows += [(at, "cpu", "cpu0", value), (at, "cpu", "cpu1", 3 * value / 2), (at, "io_wait", "cpu0", value)]
    shown = build(digest(samples(rows)))
    (node,) = shown.nodes
    (gpu,) = node.gpus
    assert shown.axis.buckets == 3
    assert gpu.utilization.mean == [15.1, None, 60.0]
    assert (gpu.utilization.low, gpu.utilization.high) == ([10.0, None, 60.0], [20.2, None, 60.0])
    assert gpu.memory == gpu.utilization == node.host_memory
    assert node.cpu is not None
    assert node.io_wait is not None
    assert (node.cpu.mean, node.cpu.low, node.cpu.high) == ([18.9, None, 75.0], None, [30.4, None, 90.0])
    assert node.io_wait.mean == gpu.utilization.mean


def test_metric_that_was_not_collected_is_none() -> None:
    (node,) = build(digest(samples([(1.0, "gpu", "gpu0", 5.0)]))).nodes
    assert (node.cpu, node.io_wait, node.host_memory, node.network, node.gpus[0].memory) == (None,) * 5


def test_means_of_two_network_devices_are_added() -> None:
    rows: list[Row] = [(1.0, "network", "in", 1e9), (2.0, "network", "in", 3e9), (2.0, "network", "out", 500.0)]
    (node,) = build(digest(samples([*rows, (15.0, "network", "out", 7.0), (35.0, "network", "in", 0.0)]))).nodes
    assert node.network is not None
    assert node.network.mean == [2_000_000_500, 7, None, 0]


def test_axis_is_cut_by_empty_buckets_at_both_ends() -> None:
    shown = build(digest(samples([(31.0, "gpu", "gpu0", 5.0), (52.0, "gpu", "gpu0", 5.0)])))
    assert (shown.axis.start, shown.axis.bucket_s, shown.axis.buckets) == (START + 30.0, 10.0, 3)


def test_axis_reaches_from_job_start_to_job_end() -> None:
    node = digest(samples([(31.0, "gpu", "gpu0", 5.0)]))
    shown = build(node, started_at=START + 12.0, ended_at=START + 79.0)
    assert (shown.axis.start, shown.axis.buckets) == (START + 10.0, 7)
    assert shown.nodes[0].gpus[0].utilization.mean == [None, None, 5.0, None, None, None, None]
    beyond = build(node, started_at=START - 1e6, ended_at=START + 1e6)
    assert (beyond.axis.start, beyond.axis.buckets) == (START, 10)


def test_empty_node_keeps_the_axis() -> None:
    shown = build(digest())
    assert shown.axis == axis()
    assert (shown.nodes[0].gpus, shown.steps, shown.phases, shown.left_out) == ([], [], [], [])


def test_node_parts_are_joined_with_algo_2_before_algo_10() -> None:
    parts = [
        digest(samples([(second, "gpu", "gpu0", 10.0 + second)]), node=node)
        for second in (3.0, 1.0)
        for node in ("algo-10", "algo-2")
    ]
    before = [part.encode() for part in parts]
    shown = build(*parts)
    assert [node.node for node in shown.nodes] == ["algo-2", "algo-10"]
    assert [node.gpus[0].utilization.mean for node in shown.nodes] == [[12.0], [12.0]]
    assert [part.encode() for part in parts] == before


def test_step_durations_are_seconds_and_slowest_in_time_order() -> None:
    job = digest(steps([1.0, 2.0, 15.0], [0.5, 0.25, 2.0]), steps([3.0], [1.0], mode=EVAL))
    (evaluation, train) = build(job).steps
    assert (train.node, train.process, train.steps) == ("algo-1", "algo-1-100", 3)
    assert (train.mean_s, train.low_s, train.high_s) == ([0.375, 2.0], [0.25, 2.0], [0.5, 2.0])
    assert [(step.at - START, step.step, step.duration_s) for step in train.slowest] == [
        (1.0, "0", 0.5),
        (2.0, "1", 0.25),
        (15.0, "2", 2.0),
    ]
    assert (evaluation.mode, evaluation.mean_s) == (EVAL, [1.0, None])


@pytest.mark.parametrize("gpus", [GPUS_WITH_BANDS, GPUS_WITH_BANDS + 1])
def test_least_busy_gpus_keep_their_band_and_all_their_mean(gpus: int) -> None:
    rows = [(1.0, "gpu", f"gpu{number}", 99.0 - number) for number in range(gpus)]
    shown = build(digest(samples(rows[:20])), digest(samples(rows[20:]), node="algo-2"))
    listed = [gpu for node in shown.nodes for gpu in node.gpus]
    without = [gpu.gpu for gpu in listed if gpu.utilization.low is None or gpu.utilization.high is None]
    assert len(listed) == gpus
    assert all(gpu.utilization.mean != [None] for gpu in listed)
    assert without == ([] if gpus == GPUS_WITH_BANDS else ["gpu0"])
    assert bool(shown.left_out) is (gpus > GPUS_WITH_BANDS)


def test_processes_that_lost_most_are_shown_and_others_named() -> None:
    even = [digest(steps([1.0, 2.0], [0.5, 0.5], process=f"p{rank:02}"), node=f"algo-{rank}") for rank in range(40)]
    spike = digest(steps([1.0, 12.0], [0.5, 0.9], process="spike"), node="spike")
    slow = digest(steps([1.0, 2.0], [0.6, 0.6], process="slow"), node="slow")
    busy = digest(steps([index / 10 for index in range(50)], [0.49] * 50, process="busy"), node="busy")
    shown = build(*even, spike, slow, busy)
    processes = [each.process for each in shown.steps]
    assert len(processes) == MAX_PROCESSES
    assert {"spike", "slow"} <= set(processes)
    assert "busy" not in processes
    (sentence,) = shown.left_out
    assert sentence.endswith("left out: busy, p30, p31, p32, p33, p34, p35, p36, p37, p38, p39.")


def test_fewer_slow_steps_per_series_are_shown_of_many() -> None:
    starts, durations = [index / 10 for index in range(300)], [1.0 + index for index in range(300)]
    alone = build(digest(steps(starts, durations))).steps
    crowd = build(digest(*(steps(starts, durations, process=f"p{rank}") for rank in range(25)))).steps
    assert len(alone[0].slowest) == KEPT_SLOWEST
    assert {len(each.slowest) for each in crowd} == {SLOWEST_OF_ALL // 25}
    assert crowd[0].slowest[0].duration_s == 300 - SLOWEST_OF_ALL // 25 + 1
    assert SLOWEST_OF_ALL // 25 > FEWEST_SLOWEST


def test_omitted_data_is_stated_with_amount_and_nodes() -> None:
    crowded = digest(samples((1.0, "gpu", f"gpu{number}", 5.0) for number in range(66)))
    early = [digest(samples([(-5.0, "gpu", "gpu0", 5.0)]), node=f"algo-{number}") for number in range(2, 9)]
    shown = build(crowded, *early)
    assert "7 samples or steps on algo-2, algo-3, algo-4, algo-5, algo-6 and 2 more lie outside" in shown.left_out[1]
    assert "2 samples or steps on algo-1 are of more devices" in shown.left_out[2]


def test_phases_beyond_the_limit_are_noted() -> None:
    long = axis(1_000, 1)
    training = steps(list(range(0, 1_000, 2)), [0.5] * 500)
    shown = build(digest(training, steps(list(range(1, 1_000, 2)), [0.4] * 500, mode=EVAL), on=long))
    assert shown.left_out == ["Phases are shown in steps of 2 s: there are more than can be shown."]


def test_no_digest_or_two_axes_are_refused() -> None:
    with pytest.raises(TimelinePartError, match="at least one"):
        build()
    with pytest.raises(TimelinePartError, match=r"algo-2.*buckets=11"):
        build(digest(), digest(node="algo-2", on=axis(11)))
