"""A node without any active GPU, after its stream has ended: rules without a verdict say why."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import replay, series
from trainguard.records import Status
from trainguard.rules.batch_size import BatchSize
from trainguard.rules.cpu_bottleneck import CPUBottleneck
from trainguard.rules.gpu_memory_increase import GPUMemoryIncrease
from trainguard.rules.io_bottleneck import IOBottleneck
from trainguard.rules.load_balancing import LoadBalancing
from trainguard.rules.protocol import AnySystemRule


@pytest.mark.parametrize("rule", [BatchSize(), CPUBottleneck(), GPUMemoryIncrease(), IOBottleneck(), LoadBalancing()])
def test_given_a_node_never_used_when_its_stream_has_ended_then_the_reason_is_not_that_it_was_too_short(
    rule: AnySystemRule,
) -> None:
    last = replay(rule, rule.parameters_type(), series(np.zeros((3_601, 2)), interval_s=1.0)).last

    assert last.status is Status.WARMING_UP
    assert last.reason == "no GPU of algo-1 was active in the 60 min until its stream ended."
