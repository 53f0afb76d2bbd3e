"""Counts in sentences: none beyond its limit, one point and not 1 points."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import NodeSeries, node_minutes, replay, series
from trainguard.core.records import Status
from trainguard.core.units import counted, show_number, show_percentage_points
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.batch_size.rule import BatchSize, BatchSizeParameters
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, CPUBottleneckParameters
from trainguard.rules.bottlenecks.state import BottleneckState
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease, GPUMemoryIncreaseParameters
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.protocol import AnySystemRule, RuleParameters


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0 points"), (1, "1 point"), (2, "2 points"), (1_004, "1,004 points")]
)
def test_one_point_is_shown_in_the_singular(amount: int, said: str) -> None:
    assert counted(amount, "point") == said


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "1 percentage point"), (0.96, "1 percentage point"), (1.1, "1.1 percentage points")]
)
def test_one_percentage_point_is_shown_in_the_singular(value: float, said: str) -> None:
    assert show_percentage_points(value) == said


def test_number_just_below_zero_is_shown_as_zero() -> None:
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
def test_shown_count_never_exceeds_its_limit_with_few_samples(
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
def test_reason_without_kept_points_is_grammatical(patience: int, said: str) -> None:
    view = next(node_minutes(series(np.full((120, 1), 90.0)), closed=False)).view
    nothing_kept = replace(view, kept_total=0, closed=True)

    judged = CPUBottleneck().judge(BottleneckState(), nothing_kept, CPUBottleneckParameters(patience=patience))

    assert judged.reason == f"algo-1 has {said} its stream has ended, too early for a verdict."


def test_single_judged_point_is_shown_in_the_singular() -> None:
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
def test_new_streak_is_not_shown_as_lasting_0_points(
    rule: AnySystemRule, parameters: RuleParameters, said: str
) -> None:
    result = replay(rule, parameters, series(np.full((24, 1), 30.0), interval_s=60.0), closed=False)

    judged = [each for each in result.results if each.status is not Status.WARMING_UP]
    assert said in judged[0].reason
    assert "1 point" in judged[1].reason
