from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.node_replay import JOB_START, node_minutes, series
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray, Snapshots
from trainguard.rules.overall_system_usage.rule import (
    OverallSystemUsage,
    UsageState,
)
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.rule_inputs import NodeMinute
from trainguard.rules.rule_result import RuleResult

RULE = OverallSystemUsage()
NONE_OF_ITS_OWN = RuleParameters()
(A_MINUTE,) = node_minutes(series([50.0] * 10), closed=False)


def judge(parts: Sequence[Snapshots]) -> tuple[RuleResult, UsageState]:
    state = RULE.state_type()
    for part in parts:
        RULE.observe(state, minute_of(part), NONE_OF_ITS_OWN)
    return RULE.judge(state, A_MINUTE.view, NONE_OF_ITS_OWN), state


def minute_of(snapshots: Snapshots) -> NodeMinute:
    return replace(A_MINUTE, snapshots=snapshots)


def snapshots(gpu: FloatArray, **columns: Any) -> Snapshots:
    return node_snapshots(JOB_START + 0.5 * np.arange(len(gpu), dtype=np.float64), gpu, **columns)


def of(gpu: float, cpu: float, points: int = 1_000) -> str:
    said, _ = judge([snapshots(np.full((points, 2), gpu), cpu_mean=cpu)])
    return said.reason


def test_six_metrics_have_statistics_in_the_order_of_the_report() -> None:
    rng = np.random.default_rng(7)
    gpu = rng.integers(0, 101, (5_000, 2)).astype(np.float64)
    cpu, wait = rng.uniform(0.0, 100.0, 5_000).round(2), rng.exponential(2.0, 5_000).round(2)
    network = rng.normal(4e8, 3e7, 5_000)

    said, _ = judge([snapshots(gpu, cpu_mean=cpu, io_wait_mean=wait, network=network, host_memory=31.25)])

    assert said.status is Status.OK
    assert list(said.plain_details) == ["Network", "GPU", "CPU", "CPU memory", "GPU memory", "I/O"]
    assert all(list(statistics) == ["max", "p99", "p95", "p50", "min"] for statistics in said.plain_details.values())
    assert said.plain_details["CPU memory"] == dict.fromkeys(("max", "p99", "p95", "p50", "min"), 31.25)
    expected = {"GPU": gpu.mean(axis=1), "CPU": cpu, "GPU memory": gpu.mean(axis=1) / 2.0, "I/O": wait}
    for metric, values in expected.items():
        shown = said.plain_details[metric]
        assert (shown["max"], shown["min"]) == pytest.approx((values.max(), values.min()), abs=0.005)
        for name, quantile in (("p99", 0.99), ("p95", 0.95), ("p50", 0.5)):
            assert shown[name] == pytest.approx(np.quantile(values, quantile), abs=0.5)
    assert said.plain_details["Network"]["p95"] == pytest.approx(np.quantile(network, 0.95), rel=0.01)
    assert said.plain_details["Network"]["max"] == np.rint(network.max())
    assert said.data_points == 5_000


def test_quantiles_of_whole_percents_are_exact() -> None:
    values = np.random.default_rng(8).integers(0, 101, 999).astype(np.float64)

    shown = judge([snapshots(values[:, np.newaxis])])[0].plain_details["GPU"]

    assert [shown[name] for name in ("p99", "p95", "p50")] == np.quantile(values, [0.99, 0.95, 0.5]).round(2).tolist()


def test_given_start_up_and_tail_when_judged_then_they_count() -> None:
    node = series([0.0] * 60 + [95.0] * 30 + [0.0] * 30, interval_s=60.0)
    state = RULE.state_type()
    for minute in node_minutes(node, closed=True):
        RULE.observe(state, minute, NONE_OF_ITS_OWN)

    said = RULE.judge(state, minute.view, NONE_OF_ITS_OWN)

    assert (said.data_points, said.plain_details["GPU"]["p50"]) == (120, 0.0)


def test_snapshot_mean_is_of_the_present_gpus() -> None:
    gpu = np.array([[80.0, np.nan], [np.nan, np.nan], [60.0, 20.0]])

    shown = judge([snapshots(gpu)])[0].plain_details["GPU"]

    assert (shown["max"], shown["min"]) == (80.0, 40.0)


def test_metrics_without_samples_are_absent_and_not_zero() -> None:
    bare = snapshots(np.empty((50, 0)), network=np.nan, host_memory=np.nan)

    said, _ = judge([bare])

    assert list(said.plain_details) == ["CPU", "I/O"]
    assert said.reason == "on algo-1 the medians are 20 % of CPU and 0.5 % of I/O."


@pytest.mark.parametrize(("gpu", "cpu"), [(69.0, 69.0), (69.0, 71.0), (71.0, 20.0)])
def test_usage_is_reported_without_conclusions(gpu: float, cpu: float) -> None:
    assert of(gpu, cpu) == (
        f"on algo-1 the medians are {gpu:g} % of GPU and {cpu:g} % of CPU, and 95 % of the points are at or below "
        f"{gpu:g} % of GPU and {cpu:g} % of CPU."
    )


def test_facts_of_usage_are_its_quantiles() -> None:
    said, _ = judge([snapshots(np.full((1_000, 2), 69.0), cpu_mean=71.0)])
    shown = [(fact.name, fact.series, fact.value) for fact in said.facts]
    assert shown == [
        ("median_utilization", "GPUUtilization", 69.0),
        ("median_utilization", "CPUUtilization", 71.0),
        ("p95_utilization", "GPUUtilization", 69.0),
        ("p95_utilization", "CPUUtilization", 71.0),
    ]


def test_given_nothing_yet_when_judged_then_it_waits_for_data() -> None:
    said, _ = judge([snapshots(np.empty((0, 1)))])

    assert said.status is Status.WAITING_FOR_DATA
    assert said.plain_details == {}


@given(
    values=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60), cut=st.integers(0, 60), traffic=st.floats(0, 1e13)
)
def test_state_is_byte_identical_wherever_the_job_is_cut(values: list[float], cut: int, traffic: float) -> None:
    gpu = np.array(values)[:, np.newaxis]
    network = traffic * np.arange(len(values)) / len(values)

    def state_of(edges: list[int]) -> bytes:
        parts = [
            snapshots(gpu[start:end], network=network[start:end])
            for start, end in zip(edges, [*edges[1:], len(values)], strict=True)
        ]
        return msgspec.msgpack.encode(judge(parts)[1])

    assert state_of([0]) == state_of([0, min(cut, len(values))])


def test_state_of_a_long_job_with_every_value_is_bounded() -> None:
    rng = np.random.default_rng(9)
    columns = ("cpu_mean", "io_wait_mean", "host_memory")
    parts = [
        snapshots(
            rng.uniform(0.0, 100.0, (600, 8)).round(2),
            network=10.0 ** rng.uniform(0.0, 12.0, 600),
            **{name: rng.uniform(0.0, 100.0, 600) for name in columns},
        )
        for _ in range(100)
    ]

    said, state = judge(parts)

    assert len(msgspec.msgpack.encode(state)) < 3_000
    assert len(state.traffic.histogram.bins) <= 64
    assert said.plain_details["Network"]["p50"] == pytest.approx(1e6, rel=0.35)


@pytest.mark.parametrize(("network", "said"), [(1e6, "its network alone"), (np.nan, "no metric that is summed up")])
def test_snapshots_without_percentages_say_what_there_is(network: float, said: str) -> None:
    nothing = dict.fromkeys(("cpu_mean", "cpu_max", "io_wait_mean", "io_wait_max", "host_memory"), np.nan)

    result, _ = judge([snapshots(np.empty((100, 0)), network=network, **nothing)])

    assert result.reason == f"algo-1 has samples of {said}."


def test_less_than_500_s_has_only_medians() -> None:
    assert of(69.0, 71.0, 999) == "on algo-1 the medians are 69 % of GPU and 71 % of CPU."
    assert "95 %" in of(69.0, 71.0, 1_000)


def test_less_than_500_s_proposes_no_smaller_instance() -> None:
    assert not judge([snapshots(np.full((999, 2), 20.0), cpu_mean=10.0)])[0].oversized
    assert judge([snapshots(np.full((1_000, 2), 20.0), cpu_mean=10.0)])[0].oversized
