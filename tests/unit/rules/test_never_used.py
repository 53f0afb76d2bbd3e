"""A node without any active GPU, after its stream has ended: rules without a verdict say why."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import replay, series
from trainguard.core.records import Status
from trainguard.rules.batch_size.rule import BatchSize
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, IOBottleneck
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease
from trainguard.rules.load_balancing.rule import LoadBalancing
from trainguard.rules.protocol import AnySystemRule


@pytest.mark.parametrize("rule", [BatchSize(), CPUBottleneck(), GPUMemoryIncrease(), IOBottleneck(), LoadBalancing()])
def test_ended_never_used_node_is_not_called_too_short(
    rule: AnySystemRule,
) -> None:
    last = replay(rule, rule.parameters_type(), series(np.zeros((3_601, 2)), interval_s=1.0)).last

    assert last.status is Status.WARMING_UP
    assert last.reason == "no GPU of algo-1 was active in the 60 min until its stream ended."
