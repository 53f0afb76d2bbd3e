"""Windows, patience and what must last, in points: on their bounds."""

from typing import Any

import numpy as np
import pytest

from trainguard.core.errors import RuleConfigError
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, CPUBottleneckParameters, IOBottleneck
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.rules.hung_job.rule import HungJob, HungJobOverNodes
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.overall_system_usage.rule import OverallSystemUsage
from trainguard.rules.windows import sampled_enough

RULE = LowGPUUtilization()


@pytest.mark.parametrize(
    ("given", "interval_s", "window", "lasting", "clear_s"),
    [
        ({}, 1.0, 250, 500, 750.0),
        ({}, 0.1, 2_500, 5_000, 750.0),
        ({}, 0.05, 2_500, 10_000, 375.0),
        ({}, 12.5, 20, 40, 750.0),
        ({}, 60.0, 20, 8, 3_600.0),
        ({"window_s": 19.0}, 1.0, 20, 38, 60.0),
        ({"window_s": 21.0}, 1.0, 21, 42, 63.0),
        ({"window_s": 2_500.0}, 1.0, 2_500, 5_000, 7_500.0),
        ({"window": 5}, 1.0, 20, 40, 60.0),
        ({"window": 21}, 1.0, 21, 42, 63.0),
        ({"window": 21, "window_s": 30.0}, 1.0, 30, 60, 90.0),
    ],
)
def test_window_has_20_to_2500_points_and_lasts_twice_as_long(
    given: dict[str, Any], interval_s: float, window: int, lasting: int, clear_s: float
) -> None:
    parameters = LowGPUUtilizationParameters(**given)
    assert RULE.window_points(parameters, interval_s) == window
    assert RULE.lasting_points(parameters, interval_s) == lasting
    assert RULE.clear_after_s(parameters, interval_s) == pytest.approx(clear_s)


@pytest.mark.parametrize("interval_s", [0.5, 1.0])
def test_window_of_more_points_than_are_held_is_refused(interval_s: float) -> None:
    parameters = LowGPUUtilizationParameters(window_s=2_501.0 * interval_s)
    with pytest.raises(RuleConfigError, match=r"at most .* which are 2,500 points"):
        RULE.window_points(parameters, interval_s)


@pytest.mark.parametrize(
    ("given", "interval_s", "points"),
    [
        ({}, 1.0, 50),
        ({}, 2.5, 20),
        ({}, 10.0, 20),
        ({"patience": 3}, 1.0, 3),
        ({"patience": 0}, 1.0, 0),
        ({"patience_s": 3.0}, 1.0, 3),
        ({"patience": 7, "patience_s": 3.0}, 1.0, 3),
    ],
)
def test_patience_in_seconds_wins_and_default_is_at_least_20(
    given: dict[str, Any], interval_s: float, points: int
) -> None:
    assert CPUBottleneckParameters(**given).patience_points(interval_s) == points


@pytest.mark.parametrize(
    ("sampled", "length", "least", "enough"),
    [(19, 40, 20, False), (20, 40, 20, True), (20, 80, 20, True), (20, 84, 20, False), (21, 84, 20, True)],
)
def test_window_with_gaps_needs_20_samples_and_a_quarter(sampled: int, length: int, least: int, enough: bool) -> None:
    window = np.full((length, 2), np.nan)
    window[:sampled, 0] = 0.0
    assert sampled_enough(window, least).tolist() == [enough, False]


@pytest.mark.parametrize(
    ("rule", "clear_s"),
    [
        (CPUBottleneck(), 5_400.0),
        (IOBottleneck(), 5_400.0),
        (GPUHealth(), 1_800.0),
        (HungJob(), 180.0),
        (HungJobOverNodes(), 180.0),
        (OverallSystemUsage(), 0.0),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("interval_s", [0.5, 60.0])
def test_self_counting_rule_needs_no_points_and_clears_itself(rule: Any, clear_s: float, interval_s: float) -> None:
    parameters = rule.parameters_type()
    assert rule.clear_after_s(parameters, interval_s) == clear_s
    assert isinstance(rule, HungJobOverNodes) or rule.window_points(parameters, interval_s) == 0
