"""For how long the GPUs must have waited before CPUBottleneck says so."""

import pytest

from tests.unit.rules.test_cpu_bottleneck import BUSY, COOL, HOT, judge, node, starved
from trainguard.records import Status
from trainguard.rules.cpu_bottleneck import CPUBottleneckParameters


def test_given_patience_in_seconds_when_judged_then_it_is_converted() -> None:
    result = judge(node((12.0, BUSY, COOL), interval_s=60.0), CPUBottleneckParameters(patience_s=600.0), closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 10 + (Status.OK,) * 2


@pytest.mark.parametrize("compiling", [3.0, 4.9])
def test_given_compilation_on_hot_cores_after_the_first_touch_when_training_goes_well_then_it_stays_silent(
    compiling: float,
) -> None:
    touch = (0.1, 40.0, COOL)

    result = judge(node(touch, (compiling, 0.0, HOT), (30.0, BUSY, COOL), interval_s=0.5))

    assert result.first_fire is None
    assert result.last.status is Status.OK


def test_given_patience_of_a_minute_in_points_when_starved_from_the_start_then_it_fires_after_ten_minutes() -> None:
    result = judge(starved(20.0, 0.8, interval_s=0.5), closed=False)

    assert result.first_fire is not None
    assert 10.0 < result.first_fire <= 11.0
    assert result.results[5].patience is not None
    assert result.results[5].patience.endswith("/1200")


def test_given_a_starved_job_of_five_minutes_when_it_ends_then_it_is_judged_after_all() -> None:
    running = judge(starved(5.0, 0.8, interval_s=0.5), closed=False)
    ended = judge(starved(5.0, 0.8, interval_s=0.5))

    assert running.last.status is Status.WARMING_UP
    assert ended.last.status is Status.FIRED


def test_given_patience_in_seconds_when_it_is_short_then_it_is_meant_so() -> None:
    result = judge(starved(5.0, 0.8, interval_s=0.5), CPUBottleneckParameters(patience_s=60.0), closed=False)

    assert result.first_fire is not None
    assert result.first_fire <= 2.0


@pytest.mark.parametrize("interval_s", [0.1, 0.2, 0.5, 1.0, 5.0, 60.0])
def test_given_any_sampling_when_patience_is_in_seconds_then_it_lasts_as_long(interval_s: float) -> None:
    parameters = CPUBottleneckParameters(patience_s=300.0)

    result = judge(node((8.0, BUSY, COOL), interval_s=interval_s), parameters, closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 5 + (Status.OK,) * 3
