"""Steps of training processes for StepOutlier's tests, and what the rule says of them."""

from collections.abc import Iterable

import numpy as np

from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier import StepOutlier, StepOutlierParameters
from trainguard.rules.step_series import StepsState
from trainguard.telemetry.framework import FrameworkEvents
from trainguard.telemetry.snapshots import FloatArray
from trainguard.telemetry.steps import StepBatch

RULE = StepOutlier()
DEFAULTS = StepOutlierParameters()
TRAIN = "Step:ModeKeys.TRAIN"
EVAL = "Step:ModeKeys.EVAL"
VIEW = FrameworkView(node="algo-1", watermark_s=1_700_000_000.0, closed=False)
START_US = 1_700_000_000_000_000


def batches(
    seconds: FloatArray, *, process: str = "algo-1-905", mode: str = TRAIN, size: int = 600
) -> Iterable[StepBatch]:
    """Cut the steps of one process into objects."""
    durations = np.rint(seconds * 1e6).astype(np.int64)
    starts = START_US + np.cumsum(durations) - durations
    for begin in range(0, len(durations), size):
        part = slice(begin, begin + size)
        numbers = tuple(str(number) for number in range(begin, min(begin + size, len(durations))))
        yield StepBatch(process, mode, starts[part], durations[part], numbers)


def judge(
    *streams: Iterable[StepBatch], parameters: StepOutlierParameters = DEFAULTS, view: FrameworkView = VIEW
) -> RuleResult:
    return RULE.judge(folded(*streams, parameters=parameters), view, parameters)


def folded(*streams: Iterable[StepBatch], parameters: StepOutlierParameters = DEFAULTS) -> StepsState:
    state = RULE.state_type()
    for stream in streams:
        for batch in stream:
            RULE.observe(state, FrameworkEvents((batch,)), parameters)
    return state


def steady(count: int, *, seed: int = 11) -> FloatArray:
    return np.random.default_rng(seed).normal(0.4, 0.012, count)


def slow_every(seconds: FloatArray, every: int, factor: float) -> FloatArray:
    slowed = seconds.copy()
    slowed[every - 1 :: every] *= factor
    return slowed
