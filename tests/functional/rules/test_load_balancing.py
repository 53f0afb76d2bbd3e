"""An imbalance that begins after most of a day."""

import numpy as np
import pytest

from tests.unit.rules.gpu_loads import (
    judge,
    node_of,
    work,
)
from tests.unit.rules.node_replay import JOB_START


@pytest.mark.parametrize("interval_s", [30.0, 60.0])
def test_imbalance_from_hour_20_fires_after_an_hour_with_onset(
    interval_s: float,
) -> None:
    before, after = round(2.0 * 3_600.0 / interval_s), round(3_600.0 / interval_s)
    low = np.concatenate([work(10 * before, 95.0), work(after, 40.0)])

    result = judge(node_of(work(10 * before + after, 95.0, seed=1), low, interval_s=interval_s))

    assert result.first_fire is not None
    assert 20.0 * 60.0 < result.first_fire <= 20.0 * 60.0 + 50.0
    assert result.last.onset is not None
    assert abs(result.last.onset - JOB_START - 20.0 * 3_600.0) <= 600.0
    assert " gpu1 of algo-1 was at " in result.last.reason
