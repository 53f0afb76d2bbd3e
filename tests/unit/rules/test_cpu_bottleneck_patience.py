"""For how long the GPUs must have waited before CPUBottleneck says so."""

import pytest

from tests.unit.rules.test_cpu_bottleneck import BUSY, COOL, HOT, judge, node, starved
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneckParameters


def test_patience_in_seconds_is_converted() -> None:
    result = judge(node((12.0, BUSY, COOL), interval_s=60.0), CPUBottleneckParameters(patience_s=600.0), closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 10 + (Status.OK,) * 2


@pytest.mark.parametrize("compiling", [3.0, 4.9])
def test_compilation_on_hot_cores_before_good_training_is_silent(
    compiling: float,
) -> None:
    touch = (0.1, 40.0, COOL)

    result = judge(node(touch, (compiling, 0.0, HOT), (30.0, BUSY, COOL), interval_s=0.5))

    assert result.first_fire is None
    assert result.last.status is Status.OK


def test_one_minute_of_points_as_patience_fires_after_ten() -> None:
    result = judge(starved(20.0, 0.8, interval_s=0.5), closed=False)

    assert result.first_fire is not None
    assert 10.0 < result.first_fire <= 11.0
    assert result.results[5].patience is not None
    assert result.results[5].patience.endswith("/1200")


def test_starved_five_minute_job_is_judged_at_its_end() -> None:
    running = judge(starved(5.0, 0.8, interval_s=0.5), closed=False)
    ended = judge(starved(5.0, 0.8, interval_s=0.5))

    assert running.last.status is Status.WARMING_UP
    assert ended.last.status is Status.FIRED


def test_short_patience_in_seconds_is_respected() -> None:
    result = judge(starved(5.0, 0.8, interval_s=0.5), CPUBottleneckParameters(patience_s=60.0), closed=False)

    assert result.first_fire is not None
    assert result.first_fire <= 2.0


@pytest.mark.parametrize("interval_s", [0.1, 0.2, 0.5, 1.0, 5.0, 60.0])
def test_patience_in_seconds_lasts_as_long_at_any_sampling(interval_s: float) -> None:
    parameters = CPUBottleneckParameters(patience_s=300.0)

    result = judge(node((8.0, BUSY, COOL), interval_s=interval_s), parameters, closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 5 + (Status.OK,) * 3
