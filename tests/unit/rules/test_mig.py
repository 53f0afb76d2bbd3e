"""Nodes whose GPUs are partitioned (MIG): no utilization, and for each instance its memory and its SM activity."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.device_minutes import DevicesAt, Rows, devices
from tests.unit.rules.node_replay import NodeSeries, node_minutes
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import NO_DEVICES, device_order, instances_of
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.low_gpu_utilization.usage import ENGINE_P95, SM_P95, Kind
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.rule_result import RuleResult

MIG = ("gpu0.mig0", "gpu0.mig1")


def judge(rule: AnySystemRule, readings: DevicesAt, minutes: int = 40) -> list[RuleResult]:
    """Show a rule a node without utilization of a GPU, whose devices have readings."""
    calm, no_gpu = np.full(12 * minutes, 20.0), np.empty((12 * minutes, 0))
    node = NodeSeries(no_gpu, calm, no_gpu, calm, 5.0)
    state, results = rule.state_type(), []
    for number, minute in enumerate(node_minutes(node, closed=False)):
        found = devices(number, readings(number)) if len(minute.snapshots) else NO_DEVICES
        shown = replace(minute, devices=found, view=replace(minute.view, mig_names=MIG))
        rule.observe(state, shown, rule.parameters_type())
        results.append(rule.judge(state, shown.view, rule.parameters_type()))
    return results


def beside_a_gpu(gpu: float, instance: float) -> RuleResult:
    """Judge a node of a whole GPU at a utilization, and of a partitioned one whose instance has an SM activity."""
    rule, node = LowGPUUtilization(), Rows([[gpu]] * 40).series()
    state, said = rule.state_type(), None
    for number, minute in enumerate(node_minutes(node, closed=False)):
        found = devices(number, {"SMActivityPercent": {"gpu1.mig0": instance}})
        shown = replace(minute, devices=found, view=replace(minute.view, mig_names=("gpu1.mig0",)))
        rule.observe(state, shown, rule.parameters_type())
        said = rule.judge(state, shown.view, rule.parameters_type())
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("gpu", "instance", "status", "worst"),
    [
        (95.0, 60.0, Status.OK, "gpu0"),
        (95.0, 5.0, Status.FIRED, "gpu1.mig0"),
        (30.0, 60.0, Status.FIRED, "gpu0"),
        (30.0, 5.0, Status.FIRED, "gpu0"),
    ],
)
def test_low_instance_beside_a_whole_gpu_fires_else_the_gpu_does(
    gpu: float, instance: float, status: Status, worst: str
) -> None:
    said = beside_a_gpu(gpu, instance)
    assert (said.status, said.worst) == (status, worst)


def active(first: float, second: float = 60.0) -> DevicesAt:
    return lambda _: {"SMActivityPercent": {"gpu0.mig0": [first] * 6, "gpu0.mig1": [second] * 6}}


def test_partitioned_gpus_lack_the_required_utilization() -> None:
    said = judge(CPUBottleneck(), active(60.0))[-1]
    assert said.status is Status.NOT_APPLICABLE
    assert said.reason == "the GPUs of algo-1 are partitioned (MIG), so utilization is not measured."


@pytest.mark.parametrize(("activity", "status"), [(19.9, Status.FIRED), (20.0, Status.OK)])
def test_instance_with_low_sm_activity_fires(activity: float, status: Status) -> None:
    results = judge(LowGPUUtilization(), active(activity))
    said = results[-1]
    assert (said.status, said.measure, said.worst) == (status, SM_P95, "gpu0.mig0")
    assert results[10].status is Status.WARMING_UP
    assert "utilization is not measured" in said.reason
    if status is Status.FIRED:
        assert said.gpus == ("gpu0.mig0",)
        assert said.wasted_share == pytest.approx(0.5 * (1.0 - 19.9 / 80.0), abs=0.02)


def test_unused_instance_is_left_out_unless_all_are_unused() -> None:
    assert judge(LowGPUUtilization(), active(0.0, 60.0))[-1].status is Status.OK
    unused = judge(LowGPUUtilization(), active(0.0, 0.5))
    assert [result.status for result in unused[:19]] == [Status.WARMING_UP] * 19
    assert unused[19].reason.startswith("no instance (MIG) of algo-1 was used: for 20 min ")
    assert unused[19].gpus == MIG
    assert unused[19].advice == (
        "Check whether the job hangs on algo-1 or computes on the CPU, and stop it if it does."
    )


def test_missing_sm_activity_is_named() -> None:
    said = judge(LowGPUUtilization(), lambda _: {})[-1]
    assert said.status is Status.NOT_APPLICABLE
    assert "SM and engine activity of the instances, which stand in for it, were not collected." in said.reason


@pytest.mark.parametrize(
    ("activity", "status", "kind"),
    [(0.5, Status.FIRED, Kind.INSTANCES_UNUSED), (12.0, Status.FIRED, Kind.INSTANCES_LOW), (90.0, Status.OK, None)],
)
def test_instance_without_sm_activity_is_judged_by_its_engine(
    activity: float, status: Status, kind: Kind | None
) -> None:
    said = judge(LowGPUUtilization(), lambda _: {"EngineActivityPercent": dict.fromkeys(MIG, activity)})[-1]
    assert (said.status, said.measure, said.kind) == (status, ENGINE_P95, kind or Kind.INSTANCES_FINE)
    assert "engine activity" in said.reason
    assert "SM activity" not in said.reason
    assert "multiprocessors" not in (said.advice or "")


def test_instance_with_both_activities_is_judged_by_its_sms() -> None:
    both = {"SMActivityPercent": dict.fromkeys(MIG, 5.0), "EngineActivityPercent": dict.fromkeys(MIG, 99.0)}
    assert judge(LowGPUUtilization(), lambda _: both)[-1].status is Status.FIRED


def test_leaking_instance_fires_and_a_steady_one_does_not() -> None:
    def used(rate: float) -> DevicesAt:
        return lambda minute: {
            "MemoryUsedBytes": {"gpu0.mig1": [5e9 + rate * minute]},
            "MemoryTotalBytes": {"gpu0.mig1": [40e9]},
        }

    leaking = judge(GPUMemoryIncrease(), used(1e8), minutes=90)[-1]
    assert (leaking.status, leaking.gpus) == (Status.FIRED, ("gpu0.mig1",))
    assert judge(GPUMemoryIncrease(), used(0.0), minutes=90)[-1].status is Status.OK
    assert judge(GPUMemoryIncrease(), lambda _: {})[-1].status is Status.NOT_APPLICABLE


def test_instances_are_ordered_by_their_numbers() -> None:
    found = devices(0, {"MemoryUsedBytes": dict.fromkeys(("gpu1.mig0", "gpu0.mig10", "gpu0", "gpu0.mig2"), 1.0)})
    assert instances_of(["gpu0.mig1"], found) == ["gpu0.mig1", "gpu0.mig2", "gpu0.mig10", "gpu1.mig0"]
    assert sorted(("gpu0.mig0", "gpu0", "gpu1"), key=device_order) == ["gpu0", "gpu0.mig0", "gpu1"]
