import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from tests.unit.rules.gpu_loads import (
    DEFAULTS,
    JOB_RULE,
    RULE,
    across,
    counted,
    nothing,
    view_of,
)
from trainguard.core.layout import hour_folder
from trainguard.core.records import Status
from trainguard.rules.load_balancing.times import FINE_S, MAX_DISTANCE
from trainguard.rules.load_balancing.window import BLOCK_S, BalanceWindow, Block, gaps_across
from trainguard.rules.rule_inputs import JobView, NodeFacts


def test_given_equal_nodes_when_compared_then_it_stays_silent() -> None:
    views = [view_of(f"algo-{node}", counted(88, 90, 92), counted(88, 90, 94)) for node in range(1, 5)]

    said = across(*views)

    assert said.status is Status.OK
    assert (said.data_points, said.measured) == (4 * 999, 0.0)


def test_one_slow_node_of_three_fires_alone_and_is_named() -> None:
    said = across(
        view_of("algo-1", counted(90), counted(90)),
        view_of("algo-2", counted(30)),
        view_of("algo-3", *[counted(90)] * 8),
    )

    assert said.status is Status.FIRED
    assert said.reason == (
        "From 1970-01-01 00:00 to 00:08 UTC, pauses left out, algo-2 was at 30 % on average, the other 2 nodes "
        "together at 90 %; the distance of their histograms is 0.83 (threshold 0.5, at most 0.83)."
    )
    assert said.worst == "algo-2"
    assert said.advice is not None
    assert "Look at what is different on algo-2: its share of the data, its network" in said.advice
    assert said.plain_details["distances"]["algo-2"] == pytest.approx(MAX_DISTANCE)
    assert said.plain_details["distances"]["algo-3"] < 0.5
    assert said.plain_details["means"] == {"algo-1": 90.0, "algo-2": 30.0, "algo-3": 90.0}
    assert said.wasted_share == pytest.approx((1.0 - 30.0 / 90.0) / 3.0)


def test_node_that_cannot_be_compared_was_paid_for_too() -> None:
    slow, fast, without = view_of("algo-1", counted(30)), view_of("algo-2", counted(90)), view_of("algo-3")

    said = across(slow, fast, without)

    assert said.wasted_share == pytest.approx((1.0 - 30.0 / 90.0) / 3.0)


def test_nodes_whose_gpus_differ_alike_are_equal() -> None:
    uneven = (counted(100), counted(0))

    assert across(view_of("algo-1", *uneven), view_of("algo-2", *uneven)).status is Status.OK


def test_never_used_node_fires_after_20_idle_minutes() -> None:
    working = view_of("algo-1", counted(90, points=4_000))

    short = across(working, view_of("algo-2", nothing(), idle_run_s=1_200.0))
    long = across(working, view_of("algo-2", nothing(), idle_run_s=1_260.0))

    assert short.status is Status.WARMING_UP
    assert long.status is Status.FIRED
    assert (long.worst, long.plain_details["means"]["algo-2"]) == ("algo-2", 0.0)
    assert long.wasted_share == pytest.approx(0.5)


def test_nodes_without_gpus_or_points_are_left_out() -> None:
    slow, fast = view_of("algo-1", counted(30)), view_of("algo-2", counted(90))

    alone = across(slow, view_of("algo-3"))
    few = across(slow, view_of("algo-2", counted(90, points=200)))
    three = across(slow, fast, view_of("algo-3"), view_of("algo-4", counted(10, points=200)))

    assert alone.status is Status.NOT_APPLICABLE
    assert alone.reason == "the job has only one node with GPUs, and so none to compare."
    assert few.reason == "algo-2 has 200 of the 500 points that a comparison takes; about 150 s left."
    assert across(view_of("algo-3")).reason == "the job has no node with GPUs, and so none to compare."
    assert three.status is Status.FIRED
    assert set(three.plain_details["means"]) == {"algo-1", "algo-2"}
    assert JOB_RULE.judge(JobView(0.0, None, None, True, True, False, {}), DEFAULTS).status is Status.NOT_APPLICABLE


def test_episodes_of_both_rules_end_after_the_same_time() -> None:
    assert RULE.clear_after_s(DEFAULTS, 0.5) == JOB_RULE.clear_after_s(DEFAULTS, 0.5) == 5_400.0
    assert RULE.window_points(DEFAULTS, 0.5) == 0


def test_node_falling_behind_late_fires_and_says_since_when() -> None:
    healthy = counted(90, points=144_000)
    nodes = {}
    for name, level in (("algo-1", 90.0), ("algo-2", 50.0)):
        window = BalanceWindow()
        times = BLOCK_S * 2_900_000 + np.arange(0.0, 3_600.0, 10.0)
        window.add(times, np.where(times[:, None] < times[0] + 1_200.0, 90.0, np.full((1, 2), level)))
        nodes[name] = NodeFacts(name, view_of(name, healthy, interval_s=10.0), collected={"LoadBalancing": window})

    said = JOB_RULE.judge(JobView(0.0, 0.0, None, False, False, False, nodes), DEFAULTS)

    assert said.status is Status.FIRED
    assert said.worst == "algo-2"
    assert said.onset == pytest.approx(BLOCK_S * 2_900_000 + 1_200.0, abs=FINE_S / 2.0)
    assert said.reason == (
        "From 2025-02-19 21:20 to 22:19 UTC algo-2 was at 63.3 % on average, algo-1 at 90 %, 26.7 percentage points "
        "behind the busiest (threshold 20)."
    )


def test_state_without_a_window_begins_with_an_empty_one() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([]), type=RULE.state_type) == BalanceWindow()


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
            network.announce(upload, upload.at)
        network.run_until(START + 60.0 * index + 90.0, batch_s=0.0)
        network.run_scheduler()
    return network


def test_slow_single_gpu_node_fires_once_for_the_job() -> None:
    network = deliver((90.0,), (30.0,))

    shown = {row.node: row for row in network.world.rows.of_job(JOB) if row.rule == "LoadBalancing"}
    started = [each for each in network.world.executions.started.values() if each["rule"] == "LoadBalancing"]

    assert shown[None].status is Status.FIRED
    assert (shown[None].worst, shown[None].times_fired) == ("algo-2", 1)
    assert shown[None].finding.reason.startswith(
        "From 2026-11-21 08:00 to 08:08 UTC, pauses left out, algo-2 was at 30 % on average, algo-1 at 90 %"
    )
    assert {shown["algo-1"].status, shown["algo-2"].status} == {Status.NOT_APPLICABLE}
    assert len(started) == 1


def test_node_speaks_for_the_job_at_equal_imbalance_on_both() -> None:
    network = deliver((90.0, 30.0), (90.0, 30.0))

    shown = {row.node: row for row in network.world.rows.of_job(JOB) if row.rule == "LoadBalancing"}

    assert shown[None].status is Status.FIRED
    assert shown[None].worst == "algo-1/gpu1"
    assert shown[None].finding.reason.startswith("2 of 2 nodes fire; worst algo-1: From 2026-11-21 08:00 to ")
    assert len([each for each in network.world.executions.started.values() if each["rule"] == "LoadBalancing"]) == 1


def test_gpus_of_the_one_slow_node_are_named() -> None:
    said = across(view_of("algo-1", counted(90)), view_of("algo-2", counted(30), counted(30)))

    assert said.gpus == ("algo-2/gpu0", "algo-2/gpu1")


def ten_minutes(number: int, mean: float) -> Block:
    return Block(number, [600], [round(6_000 * mean)])


def test_ceased_gap_in_the_window_says_since_when() -> None:
    slow = BalanceWindow([ten_minutes(number, 30.0 if number < 103 else 90.0) for number in range(100, 106)])
    fast = BalanceWindow([ten_minutes(number, 90.0) for number in range(100, 106)])
    gaps = gaps_across([slow, fast], 1.0)

    assert gaps.over_since(0) == 103 * BLOCK_S
    assert gaps.over_since(0, 1) == 103 * BLOCK_S


def test_ongoing_gap_or_one_missing_block_is_not_over() -> None:
    means = [30.0, 30.0, 30.0, 30.0, 30.0, 90.0]
    slow = BalanceWindow([ten_minutes(100 + place, mean) for place, mean in enumerate(means)])
    fast = BalanceWindow([ten_minutes(number, 90.0) for number in range(100, 106)])

    assert gaps_across([slow, fast], 1.0).over_since(0) is None
