"""What rules say for the ranking of findings: counts that add up over nodes, and how sure a rule is of its reason."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import replay, series
from trainguard.core.records import Status
from trainguard.rules.batch_size.rule import BatchSize, BatchSizeParameters
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, CPUBottleneckParameters


def test_pooled_counts_of_a_node_are_those_of_its_share() -> None:
    gpu = np.where(np.arange(2_400) % 4 == 0, 90.0, 5.0)
    result = replay(CPUBottleneck(), CPUBottleneckParameters(), series(gpu, cpu=95.0)).results[-1]

    assert result.status is Status.FIRED
    assert result.pooled is not None
    hits, judged = result.pooled
    assert judged == result.data_points
    assert result.measured == pytest.approx(100.0 * hits / judged)


@pytest.mark.parametrize(("memory", "confidence"), [(10.0, 4.0 / 7.0), (56.0, 0.2)])
def test_confidence_is_the_distance_to_the_nearest_threshold(memory: float, confidence: float) -> None:
    node = series(np.full(2_400, 30.0), cpu=40.0, gpu_memory=np.full(2_400, memory))
    result = replay(BatchSize(), BatchSizeParameters(), node).results[-1]

    assert result.status is Status.FIRED
    assert result.confidence == pytest.approx(confidence)
