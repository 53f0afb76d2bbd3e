"""LowGPUUtilization at any sampling interval, and late in long jobs."""

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, series
from tests.unit.rules.test_low_gpu_utilization import judge, training
from trainguard.core.records import Status
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilizationParameters


@pytest.mark.parametrize("interval_s", [0.1, 0.2, 0.5, 1.0, 5.0, 60.0])
def test_window_and_patience_in_seconds_hold_for_any_sampling(interval_s: float) -> None:
    span_s = max(120.0, 20.0 * interval_s)
    parameters = LowGPUUtilizationParameters(window_s=span_s, patience_s=span_s)
    points = round(4.5 * span_s / interval_s)

    result = judge(series(np.full(points, 30.0), interval_s=interval_s), parameters, closed=False)

    spans_seen = [minute * 60.0 / span_s for minute in result.minutes]
    for at, status in zip(spans_seen, result.statuses, strict=True):
        if at < 1.0 - interval_s / span_s:
            assert status is Status.WARMING_UP
        elif at < 2.9:
            assert status is not Status.FIRED
    assert result.first_fire is not None
    assert result.first_fire * 60.0 <= 3.0 * span_s + 60.0 + interval_s


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 5.0, 10.0, 30.0, 60.0])
def test_gpu_low_from_the_start_is_named_within_half_an_hour(
    interval_s: float,
) -> None:
    result = judge(series(np.full(round(30 * 60.0 / interval_s), 30.0), interval_s=interval_s), closed=False)

    assert result.first_fire is not None
    assert (result.last.onset, result.last.gpus) == (JOB_START, ("gpu0",))


def test_low_gpu_of_a_job_ended_early_counts_from_its_onset() -> None:
    running = judge(series(training(12.0, level=30.0)), closed=False)
    ended = judge(series(training(12.0, level=30.0)))
    late = judge(series(np.concatenate([training(200.0), training(10.0, level=30.0)])))

    assert (running.last.status, ended.last.status) == (Status.OK, Status.FIRED)
    assert late.first_fire is None
