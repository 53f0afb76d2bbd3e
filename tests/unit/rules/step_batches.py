"""Steps of training processes for StepOutlier's tests, and what the rule says about them."""

from collections.abc import Iterable, Mapping

import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters
from trainguard.rules.step_outlier.rule import StepOutlier
from trainguard.rules.step_outlier.series import StepSeries, StepsState
from trainguard.state.gpu_time import GpuTime

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
    *streams: Iterable[StepBatch],
    parameters: StepOutlierParameters = DEFAULTS,
    view: FrameworkView = VIEW,
    system: NodeView | None = None,
    use: GpuTime | None = None,
    followed: bool = True,
) -> RuleResult:
    state = folded(*streams, parameters=parameters, followed=followed)
    facts = NodeFacts(
        "algo-1",
        system=system,
        framework=view,
        collected={RULE.name: state},
        use=GpuTime if use is None else lambda: use,
    )
    return RULE.judge(job_of({"algo-1": facts}, closed=view.closed), parameters)


def judged(state: StepsState) -> RuleResult:
    """What the rule says about a state of one node."""
    facts = NodeFacts("algo-1", framework=VIEW, collected={RULE.name: state})
    return RULE.judge(job_of({"algo-1": facts}), DEFAULTS)


def job_of(nodes: Mapping[str, NodeFacts], *, closed: bool = False) -> JobView:
    return JobView(
        started_at=START_US / 1e6,
        system_through=None,
        first_step_at=None,
        framework_expected=True,
        framework_seen=True,
        closed=closed,
        nodes=nodes,
    )


def folded(
    *streams: Iterable[StepBatch], parameters: StepOutlierParameters = DEFAULTS, followed: bool = True
) -> StepsState:
    """What is remembered of steps; ``followed`` says that one more step of each kind has come, so that all count."""
    state = RULE.state_type()
    for stream in streams:
        for batch in stream:
            RULE.observe(state, FrameworkEvents((batch,)), parameters)
    for series in state.series if followed else ():
        if series.newest is not None:
            start = np.array([series.newest.start_us + series.newest.duration_us])
            RULE.observe(state, FrameworkEvents((one_step(series, start),)), parameters)
    return state


def one_step(series: StepSeries, start_us: IntArray) -> StepBatch:
    return StepBatch(series.process, series.mode, start_us, np.array([0]), ("next",))


def steady(count: int, *, seed: int = 11) -> FloatArray:
    return np.random.default_rng(seed).normal(0.4, 0.012, count)


def slow_every(seconds: FloatArray, every: int, factor: float) -> FloatArray:
    slowed = seconds.copy()
    slowed[every - 1 :: every] *= factor
    return slowed
