"""What all rules promise of their state: it survives storage, and depends on what was seen, not on the order."""

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.node_replay import NodeSeries, node_minutes, series
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.batch_size.rule import BatchSizeParameters
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneckParameters, IOBottleneckParameters
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncreaseParameters
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilizationParameters
from trainguard.rules.protocol import AnySystemRule, RuleParameters
from trainguard.rules.registry import SYSTEM_RULES
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters
from trainguard.rules.step_outlier.rule import StepOutlier

# So short of patience that most examples reach a verdict; the other rules have their defaults.
EAGER: dict[str, RuleParameters] = {
    "LowGPUUtilization": LowGPUUtilizationParameters(window=20, patience=20),
    "BatchSize": BatchSizeParameters(window=20, patience=20),
    "CPUBottleneck": CPUBottleneckParameters(patience_s=200.0),
    "GPUMemoryIncrease": GPUMemoryIncreaseParameters(window=20, patience=0),
    "IOBottleneck": IOBottleneckParameters(patience_s=200.0),
}

phases = st.lists(
    st.tuples(
        st.integers(1, 30), st.sampled_from([0.0, 5.0, 10.0, 40.0, 95.0, np.nan]), st.sampled_from([20.0, 99.0, np.nan])
    ),
    min_size=1,
    max_size=8,
)


def node(first: list[tuple[int, float, float]], second: list[tuple[int, float, float]]) -> NodeSeries:
    """Build a node of two GPUs, the phases' lengths in points of 20 s."""
    columns = [np.repeat([value for _, value, _ in gpu], [count for count, _, _ in gpu]) for gpu in (first, second)]
    length = max(column.size for column in columns)
    gpu = np.full((length, 2), np.nan)
    for index, column in enumerate(columns):
        gpu[: column.size, index] = column
    cpu = np.full(length, 50.0)
    cpu[: columns[0].size] = np.repeat([cpu for _, _, cpu in first], [count for count, _, _ in first])
    return series(gpu, cpu=cpu, io_wait=cpu, interval_s=20.0)


@pytest.mark.parametrize("rule", SYSTEM_RULES, ids=lambda rule: rule.name)
@given(first=phases, second=phases)
def test_storing_the_state_every_minute_changes_nothing(
    rule: AnySystemRule, first: list[tuple[int, float, float]], second: list[tuple[int, float, float]]
) -> None:
    parameters = EAGER.get(rule.name, rule.parameters_type())
    held, stored = rule.state_type(), msgspec.msgpack.encode(rule.state_type())

    for minute in node_minutes(node(first, second), closed=True):
        restored = msgspec.msgpack.decode(stored, type=rule.state_type)
        rule.observe(held, minute, parameters)
        rule.observe(restored, minute, parameters)
        stored = msgspec.msgpack.encode(restored)
        result = rule.judge(held, minute.view, parameters)
        assert stored == msgspec.msgpack.encode(held)
        assert rule.judge(restored, minute.view, parameters) == result
        assert stored == msgspec.msgpack.encode(held), "judging must not change the state"
        assert b"NaN" not in msgspec.json.encode(result.plain_details)


process_steps = st.lists(st.lists(st.integers(1_000, 3_000_000), min_size=1, max_size=60), min_size=1, max_size=8)


@given(
    processes=st.lists(process_steps, min_size=1, max_size=4),
    mode=st.sampled_from(["Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL"]),
    random=st.randoms(use_true_random=False),
)
def test_interleaved_processes_give_the_same_state_bytes(
    processes: list[list[list[int]]], mode: str, random: Random
) -> None:
    rule, parameters = StepOutlier(), StepOutlierParameters()
    queues = [_batches(f"algo-1-{number}", mode, parts) for number, parts in enumerate(processes)]
    in_turn, mixed = rule.state_type(), rule.state_type()

    for batch in (batch for queue in queues for batch in queue):
        rule.observe(in_turn, FrameworkEvents((batch,)), parameters)
    waiting = [list(queue) for queue in queues]
    while any(waiting):
        batch = random.choice([queue for queue in waiting if queue]).pop(0)
        rule.observe(mixed, FrameworkEvents((batch,)), parameters)

    assert msgspec.msgpack.encode(mixed) == msgspec.msgpack.encode(in_turn)
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(mixed), type=rule.state_type)
    views = [
        JobView(0.0, None, None, True, True, False, {"algo-1": NodeFacts("algo-1", collected={rule.name: state})})
        for state in (restored, in_turn)
    ]
    assert rule.judge(views[0], parameters) == rule.judge(views[1], parameters)


def _batches(process: str, mode: str, parts: list[list[int]]) -> list[StepBatch]:
    batches, clock, number = [], 1_700_000_000_000_000, 0
    for part in parts:
        durations = np.array(part * 4, dtype=np.int64)
        starts = clock + np.cumsum(durations) - durations
        clock += int(durations.sum())
        numbers = tuple(str(step) for step in range(number, number + durations.size))
        number += durations.size
        batches.append(StepBatch(process, mode, starts, durations, numbers))
    return batches
