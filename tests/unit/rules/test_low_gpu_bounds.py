"""Signs of work, idle GPUs and low instances on their bounds, minute by minute."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.device_minutes import devices
from tests.unit.rules.node_replay import JOB_START, node_minutes, series
from trainguard.rules.low_gpu_utilization.devices import GpuSigns, HeldMemory, fold_held, sign_of_work
from trainguard.rules.low_gpu_utilization.results import InstanceMinutes, fold_instances
from trainguard.rules.overall_system_usage.rule import UsageState, usage_of
from trainguard.rules.rule_inputs import IdleTime, NodeMinute

VIEW = next(node_minutes(series(np.full((2, 1), 95.0), interval_s=30.0), closed=False)).view


def minute(utilization: Sequence[float], readings: Mapping[str, Mapping[str, float]]) -> NodeMinute:
    """Return a minute of one GPU, and of an instance of another."""
    gpu = np.array(utilization)[:, np.newaxis]
    times = JOB_START + 30.0 * np.arange(len(gpu), dtype=np.float64)
    flags = np.full(len(gpu), True)
    view = replace(VIEW, mig_names=("gpu1.mig0",))
    return NodeMinute(node_snapshots(times, gpu), flags, flags, len(gpu), view, devices=devices(0, readings))


@pytest.mark.parametrize(
    ("signs", "run_mean", "sign"),
    [
        (GpuSigns(activity=5.0, measured=5), 0.0, {"mean_sm_activity": 5.0}),
        (GpuSigns(activity=4.9, measured=5), 0.0, {}),
        (GpuSigns(activity=5.0, measured=4), 0.0, {}),
        (GpuSigns(112.5, 5, at_work=150.0, busy=5), 1.0, {"power": 112.5, "power_at_work": 150.0}),
        (GpuSigns(112.4, 5, at_work=150.0, busy=5), 1.0, {}),
        (GpuSigns(149.0, 5, at_work=149.9, busy=5), 1.0, {}),
        (GpuSigns(112.5, 4, at_work=150.0, busy=5), 1.0, {}),
        (GpuSigns(112.5, 5, at_work=150.0, busy=4), 1.0, {}),
        (GpuSigns(112.5, 5, at_work=150.0, busy=5), 0.9, {}),
    ],
)
def test_idle_gpu_with_five_minutes_of_activity_or_power_works(
    signs: GpuSigns, run_mean: float, sign: Mapping[str, float]
) -> None:
    view = replace(VIEW, idle_time=IdleTime(run_mean=run_mean))
    found = sign_of_work({"gpu0": signs}, view, JOB_START)
    assert {each.name: each.value for each in found} == sign
    assert {each.device for each in found} <= {"gpu0"}
    assert not sign_of_work({"gpu7": signs}, view, JOB_START)


def test_mean_of_idle_minutes_forgets_those_beyond_20() -> None:
    signs = GpuSigns()
    for number in range(30):
        signs.add(100.0 if number < 20 else 200.0, 0.0 if number < 20 else 10.0, active=False)
    expected = 100.0
    for _ in range(10):
        expected += (200.0 - expected) / 20
    assert signs.power == pytest.approx(expected)
    assert (signs.idle, signs.measured) == (20, 20)
    signs.add(300.0, None, active=True)
    assert (signs.power, signs.idle, signs.activity, signs.measured) == (0.0, 0, 0.0, 0)
    assert (signs.at_work, signs.busy) == (300.0, 1)


@pytest.mark.parametrize(
    ("utilization", "idle"),
    [
        ([5.0, 5.0], False),
        ([4.875, 4.875], True),
        ([0.0, 9.875], True),
        ([0.0, 10.0], False),
        ([np.nan, np.nan], False),
    ],
)
def test_gpu_below_10_percent_and_5_on_average_idles(utilization: list[float], idle: bool) -> None:
    held: dict[str, HeldMemory] = {}
    fold_held(held, minute(utilization, {"MemoryUsedBytes": {"gpu0": 4e9}}), 10.0)
    assert held["gpu0"].idle_since == (round(JOB_START) if idle else None)


@pytest.mark.parametrize(
    ("used", "total", "before", "since"),
    [
        (4e9, 40e9, None, 0),
        (3.9e9, 40e9, None, None),
        (2e9, None, None, 0),
        (1.9e9, None, None, None),
        (3.9e9, None, HeldMemory(-60, 9_000, 40_000, -600), None),
        (4e9, None, HeldMemory(-60, 9_000, 40_000, -600), -600),
        (4e9, None, HeldMemory(-180, 9_000, 40_000, -600), -600),
        (4e9, None, HeldMemory(-181, 9_000, 40_000, -600), 0),
    ],
)
def test_memory_of_a_tenth_or_2_gb_is_held_since_the_last_gap(
    used: float, total: float | None, before: HeldMemory | None, since: int | None
) -> None:
    start = round(JOB_START)
    held = {}
    if before is not None:
        held["gpu0"] = HeldMemory(start + before.at, before.used, before.total, start + (before.since or 0))
    sizes = {} if total is None else {"MemoryTotalBytes": {"gpu0": total}}
    fold_held(held, minute([0.0, 0.0], {"MemoryUsedBytes": {"gpu0": used}, **sizes}), 10.0)
    assert held["gpu0"].since == (None if since is None else start + since)


@pytest.mark.parametrize(
    ("activity", "threshold", "low", "lost", "used"),
    [
        (20.0, 20.0, 0, 0.0, True),
        (19.0, 20.0, 1, 1.0 - 19.0 / 80.0, True),
        (1.0, 20.0, 1, 1.0 - 1.0 / 80.0, True),
        (0.5, 20.0, 1, 1.0 - 0.5 / 80.0, False),
        (90.0, 100.0, 1, 0.0, True),
    ],
)
def test_low_instance_lost_what_80_percent_would_have_done(
    activity: float, threshold: float, low: int, lost: float, used: bool
) -> None:
    instances: dict[str, InstanceMinutes] = {}
    shown = minute([95.0], {"SMActivityPercent": {"gpu1.mig0": activity, "gpu1.mig7": 3.0}})
    fold_instances(instances, shown, threshold)
    assert instances.keys() == {"gpu1.mig0"}
    held = instances["gpu1.mig0"]
    assert (held.low, held.used) == (low, used)
    assert held.lost == pytest.approx(lost)


def test_little_traffic_has_quantiles_of_two_decimals() -> None:
    state = UsageState()
    state.traffic.add(np.array([1.0, 7.0, 31.0, 95.0, 96.0, 3_000.0]))
    network = usage_of(state)["Network"]
    shown = [network.max, network.p99, network.p95, network.p50, network.min]
    exact = state.traffic.histogram.quantiles((0.99, 0.95, 0.5))
    assert shown == [round(each, 2) for each in shown]
    assert exact != [round(each, 2) for each in exact]
