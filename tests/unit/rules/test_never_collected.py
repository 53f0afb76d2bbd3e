"""A metric that a profile never has: the rule that needs it says so, and neither OK nor that the job was too short."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.gpu_loads import across, counted, nothing, view_of
from tests.unit.rules.node_replay import NodeSeries, node_minutes, replay, series
from trainguard.core.records import Status
from trainguard.rules.batch_size.rule import BatchSize
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, IOBottleneck
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease
from trainguard.rules.load_balancing.rule import LoadBalancing
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.rule_inputs import IdleTime

BUSY = np.full((2_400, 2), 90.0)
NO_CPU = series(BUSY, cpu=np.nan)
NO_IO_WAIT = series(BUSY, io_wait=np.nan)
NO_MEMORY = series(BUSY, gpu_memory=np.full_like(BUSY, np.nan))
NEVER = [
    pytest.param(CPUBottleneck(), NO_CPU, "CPU utilization", id="cpu-bottleneck"),
    pytest.param(IOBottleneck(), NO_IO_WAIT, "I/O wait", id="io-bottleneck"),
    pytest.param(BatchSize(), NO_CPU, "CPU utilization", id="batch-size-cpu"),
    pytest.param(BatchSize(), NO_MEMORY, "GPU memory activity", id="batch-size-memory"),
    pytest.param(GPUMemoryIncrease(), NO_MEMORY, "GPU memory activity", id="memory"),
]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(("rule", "node", "metric"), NEVER)
def test_never_collected_metric_past_patience_does_not_apply(
    rule: AnySystemRule, node: NodeSeries, metric: str, closed: bool
) -> None:
    last = replay(rule, rule.parameters_type(), node, closed=closed).last

    assert last.status is Status.NOT_APPLICABLE
    assert last.reason == f"no {metric} of algo-1 was collected, which the rule needs."
    assert (last.advice, last.patience) == (None, None)


@pytest.mark.parametrize(("rule", "node", "metric"), NEVER)
def test_uncollected_metric_may_still_come_within_patience(rule: AnySystemRule, node: NodeSeries, metric: str) -> None:
    del metric
    first_minute = next(node_minutes(node, closed=False))
    patient = rule.parameters_type(patience=first_minute.view.kept_total)
    state = rule.state_type()
    rule.observe(state, first_minute, patient)

    assert rule.judge(state, first_minute.view, patient).status is Status.WARMING_UP


@pytest.mark.parametrize(("rule", "node", "metric"), NEVER)
def test_ended_short_job_without_the_metric_has_that_as_reason(
    rule: AnySystemRule, node: NodeSeries, metric: str
) -> None:
    short = NodeSeries(node.gpu[:60], node.cpu_max[:60], node.gpu_memory[:60], node.io_wait_max[:60])

    last = replay(rule, rule.parameters_type(), short).last

    assert last.status is Status.NOT_APPLICABLE
    assert metric in last.reason


def test_metric_that_went_missing_is_not_never_collected() -> None:
    cpu = np.full(2_400, 40.0)
    cpu[1_200:] = np.nan

    for rule in (CPUBottleneck(), BatchSize()):
        last = replay(rule, rule.parameters_type(), series(BUSY, cpu=cpu)).last
        assert last.status is not Status.NOT_APPLICABLE
        assert "was collected" not in last.reason


def test_metric_that_comes_late_is_judged() -> None:
    wait = np.full(9_600, np.nan)
    wait[4_800:] = 1.0

    result = replay(IOBottleneck(), IOBottleneck().parameters_type(), series(np.full((9_600, 1), 90.0), io_wait=wait))

    assert Status.NOT_APPLICABLE in result.statuses
    assert result.last.status is Status.OK


def test_rule_applies_if_one_of_two_gpus_has_memory_samples() -> None:
    memory = np.full_like(BUSY, 40.0)
    memory[:, 1] = np.nan

    last = replay(BatchSize(), BatchSize().parameters_type(), series(BUSY, gpu_memory=memory)).last

    assert last.status is Status.WARMING_UP
    assert last.reason == (
        "too few of the newest points of algo-1 have samples of the CPU and of every used GPU's utilization and memory "
        "activity."
    )


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "rule", [BatchSize(), CPUBottleneck(), GPUMemoryIncrease(), IOBottleneck(), LoadBalancing(), LowGPUUtilization()]
)
def test_gpus_without_utilization_show_no_inactive_time(rule: AnySystemRule, closed: bool) -> None:
    minute = list(node_minutes(series(np.zeros((2_400, 2))), closed=False))[-1]
    without = replace(minute.view, idle_run_s=0.0, idle_time=IdleTime(), closed=closed)

    said = rule.judge(rule.state_type(), without, rule.parameters_type())

    assert said.status is Status.WARMING_UP
    assert said.reason == ("no GPU of algo-1 was seen active, and its newest points have no sample of GPU utilization.")


def test_nodes_without_gpu_utilization_have_that_as_reason() -> None:
    without = replace(view_of("algo-2", nothing()), watermark_s=600.0)

    said = across(view_of("algo-1", counted(90)), without)

    assert said.reason == "no GPU of algo-2 was seen active, and its newest points have no sample of GPU utilization."


def test_first_point_of_a_node_lacks_nothing_yet() -> None:
    view = next(node_minutes(series(np.zeros((1, 2)), interval_s=60.0), closed=False)).view

    said = LowGPUUtilization().judge(LowGPUUtilization().state_type(), view, LowGPUUtilization().parameters_type())

    assert said.reason == "no GPU of algo-1 has been active yet, 0 s after its first sample."
