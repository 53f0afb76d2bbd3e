"""Counts in sentences: none beyond its limit, one point and not 1 points."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import NodeSeries, node_minutes, replay, series
from trainguard.records import Status
from trainguard.rules.batch_size import BatchSize, BatchSizeParameters
from trainguard.rules.bottleneck_state import BottleneckState
from trainguard.rules.cpu_bottleneck import CPUBottleneck, CPUBottleneckParameters
from trainguard.rules.gpu_memory_increase import GPUMemoryIncrease, GPUMemoryIncreaseParameters
from trainguard.rules.low_gpu_utilization import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.protocol import AnySystemRule, RuleParameters
from trainguard.rules.units import counted, show_number, show_percentage_points
from trainguard.telemetry.snapshots import FloatArray


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0 points"), (1, "1 point"), (2, "2 points"), (1_004, "1,004 points")]
)
def test_given_a_number_of_points_when_shown_then_one_is_one_point(amount: int, said: str) -> None:
    assert counted(amount, "point") == said


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "1 percentage point"), (0.96, "1 percentage point"), (1.1, "1.1 percentage points")]
)
def test_given_percentage_points_when_shown_then_one_is_one_point(value: float, said: str) -> None:
    assert show_percentage_points(value) == said


def test_given_a_number_just_below_zero_when_shown_then_it_is_zero() -> None:
    assert (show_number(-0.04), show_number(-0.0), show_number(-0.06)) == ("0", "0", "-0.1")


def _rare() -> FloatArray:
    """Samples for patience, and then at one point in twelve."""
    samples = np.full(600, np.nan)
    samples[:40] = 90.0
    samples[40::12] = 90.0
    return samples


def _taking_turns() -> NodeSeries:
    """Build two GPUs: the first is sampled no more when the second, too short for a verdict, begins."""
    gpu = np.full((400, 2), np.nan)
    gpu[:310, 0] = 90.0
    gpu[310:, 1] = 90.0
    return series(gpu)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    ("rule", "parameters", "node"),
    [
        (LowGPUUtilization(), LowGPUUtilizationParameters(patience=100, window=60), _taking_turns()),
        (BatchSize(), BatchSizeParameters(patience=100), series(np.full(600, 90.0), gpu_memory=_rare())),
        (
            GPUMemoryIncrease(),
            GPUMemoryIncreaseParameters(patience=100, window=60),
            series(np.full(600, 90.0), gpu_memory=_rare()),
        ),
    ],
)
def test_given_more_points_than_patience_but_too_few_samples_when_judged_then_no_count_is_beyond_its_limit(
    rule: AnySystemRule, parameters: RuleParameters, node: NodeSeries, closed: bool
) -> None:
    said = replay(rule, parameters, node, closed=closed).last

    assert said.status is Status.WARMING_UP
    assert said.reason.startswith("too few of the newest points of algo-1 have ")
    reached, needed = map(int, (said.patience or "").split("/"))
    assert reached == needed


@pytest.mark.parametrize(
    ("patience", "said"),
    [(0, "no point that can be judged;"), (1, "0 of the 1 point of patience;"), (2, "0 of the 2 points of patience;")],
)
def test_given_little_patience_when_no_point_was_kept_then_the_reason_is_english(patience: int, said: str) -> None:
    view = next(node_minutes(series(np.full((120, 1), 90.0)), closed=False)).view
    nothing_kept = replace(view, kept_total=0, closed=True)

    judged = CPUBottleneck().judge(BottleneckState(), nothing_kept, CPUBottleneckParameters(patience=patience))

    assert judged.reason == f"algo-1 has {said} its stream has ended, too early for a verdict."


def test_given_a_single_judged_point_when_told_then_it_is_one_point() -> None:
    last = replay(
        CPUBottleneck(), CPUBottleneckParameters(patience=0), series(np.full((1, 1), 90.0), interval_s=60.0)
    ).last

    assert last.reason.startswith("in 0 of 1 point on algo-1 (0 %, ")


@pytest.mark.parametrize(
    ("rule", "parameters", "said"),
    [
        (
            LowGPUUtilization(),
            LowGPUUtilizationParameters(window=20, patience=20),
            ", just now; that counts from 40 points on.",
        ),
        (
            BatchSize(),
            BatchSizeParameters(window=20, patience=20),
            "; this has just begun, and counts from 40 points on.",
        ),
    ],
)
def test_given_a_streak_that_has_just_begun_when_told_then_it_has_not_lasted_for_0_points(
    rule: AnySystemRule, parameters: RuleParameters, said: str
) -> None:
    result = replay(rule, parameters, series(np.full((24, 1), 30.0), interval_s=60.0), closed=False)

    judged = [each for each in result.results if each.status is not Status.WARMING_UP]
    assert said in judged[0].reason
    assert "1 point" in judged[1].reason
