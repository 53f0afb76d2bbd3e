"""What rules say for the ranking of findings: counts that add up over nodes, and how sure a rule is of its reason."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import replay, series
from trainguard.records import Status
from trainguard.rules.batch_size import BatchSize, BatchSizeParameters
from trainguard.rules.cpu_bottleneck import CPUBottleneck, CPUBottleneckParameters


def test_given_a_bottlenecked_node_when_judged_then_the_counts_that_pool_are_those_of_its_share() -> None:
    gpu = np.where(np.arange(2_400) % 4 == 0, 90.0, 5.0)
    result = replay(CPUBottleneck(), CPUBottleneckParameters(), series(gpu, cpu=95.0)).results[-1]

    assert result.status is Status.FIRED
    assert result.pooled is not None
    hits, judged = result.pooled
    assert judged == result.data_points
    assert result.measured == pytest.approx(100.0 * hits / judged)


@pytest.mark.parametrize(("memory", "confidence"), [(10.0, 4.0 / 7.0), (56.0, 0.2)])
def test_given_a_node_with_low_gpus_when_judged_then_batch_size_is_as_sure_as_the_nearest_threshold_is_far(
    memory: float, confidence: float
) -> None:
    node = series(np.full(2_400, 30.0), cpu=40.0, gpu_memory=np.full(2_400, memory))
    result = replay(BatchSize(), BatchSizeParameters(), node).results[-1]

    assert result.status is Status.FIRED
    assert result.confidence == pytest.approx(confidence)
