"""StepOutlier against what the GPUs did in those steps, and a last step that never ends."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import node_minutes, series
from tests.unit.rules.step_batches import DEFAULTS, RULE, START_US, VIEW, batches, folded, job_of, judge, slow_every
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.ledger.bucket import Bucket
from trainguard.rules.framework_events import TimeTable
from trainguard.rules.rule_inputs import NodeFacts, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier.series import StepOverlap
from trainguard.rules.step_outlier.text import StepOutlierKind
from trainguard.state.gpu_time import GpuTime

START = START_US / 1e6
SECONDS = slow_every(np.full(3_000, 0.1), 20, 30.0)
LENGTH_S = float(SECONDS.sum())


def system(*levels: float, until_s: float = LENGTH_S) -> tuple[NodeView, GpuTime]:
    """GPUs that are so busy (percent) while the steps go on, up to ``until_s`` after their start."""
    (minute,) = node_minutes(series(np.full((120, len(levels)), levels), interval_s=0.5), closed=False)
    use, times = GpuTime(), START + np.arange(0.0, until_s, 2.0)
    use.add(times, np.full((len(times), len(levels)), levels), interval_s=2.0)
    return replace(minute.view, node="algo-1", watermark_s=float(times[-1])), use.finished(2.0)


def slow_beside(*levels: float) -> RuleResult:
    """What is said about a process whose slow steps take more than half of its time, beside GPUs that are so busy."""
    view, use = system(*levels)
    return judge(batches(SECONDS), system=view, use=use)


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        ((97.0,), StepOutlierKind.GPUS_BUSY),
        ((80.0,), StepOutlierKind.GPUS_BUSY),
        ((55.0,), StepOutlierKind.TOO_SLOW),
        ((40.0,), StepOutlierKind.TOO_SLOW),
        ((100.0, 100.0, 100.0, 30.0), StepOutlierKind.TOO_SLOW),
        ((100.0, 0.0), StepOutlierKind.GPUS_BUSY),
    ],
    ids=["busy", "idle-for-less-than-half", "idle-for-half", "idle", "peers-spin", "a-gpu-never-used"],
)
def test_given_slow_steps_when_gpus_work_on_then_nothing_fires(
    levels: tuple[float, ...], kind: StepOutlierKind
) -> None:
    result = slow_beside(*levels)

    assert result.kind == kind
    assert (result.status is Status.FIRED) == (kind is StepOutlierKind.TOO_SLOW)
    used = [fact for fact in result.facts if fact.name == "mean_utilization"]
    assert [fact.value for fact in used] == [min(level for level in levels if level)]
    assert START + 10.0 <= (used[0].start or 0.0) < (used[0].end or 0.0) <= START + LENGTH_S


def test_busy_gpus_say_why_nothing_fires() -> None:
    assert slow_beside(97.0).reason.endswith(
        " The least busy GPU that algo-1 uses, gpu0, was 97 % busy then: the process handed out work ahead, and "
        "its slow steps hardly kept the GPUs waiting."
    )


def test_few_slow_steps_costing_less_gpu_time_are_ok() -> None:
    seconds = slow_every(np.full(3_000, 0.1), 60, 10.0)
    (busy, use), (idle, less) = system(99.0), system(80.0)

    assert judge(batches(seconds), system=busy, use=use).kind == StepOutlierKind.GPUS_BUSY
    assert judge(batches(seconds), system=idle, use=less).kind == StepOutlierKind.TOO_MANY


def test_steps_ahead_of_the_samples_are_waited_for() -> None:
    view, _ = system(50.0)
    facts = NodeFacts("algo-1", view, framework=VIEW, collected={RULE.name: folded(batches(SECONDS))})

    waits = RULE.judge(job_of({"algo-1": facts}), DEFAULTS)
    ended = RULE.judge(job_of({"algo-1": facts}, closed=True), DEFAULTS)

    assert (waits.status, waits.kind) == (Status.WARMING_UP, StepOutlierKind.WAITS_FOR_SAMPLES)
    assert waits.reason.endswith("The samples of the GPUs do not reach as far as the steps yet.")
    assert (ended.status, ended.kind) == (Status.FIRED, StepOutlierKind.TOO_SLOW)


def test_last_step_that_never_ends_is_no_slow_step() -> None:
    state = folded(batches(np.full(1_000, 0.1)), followed=False)
    begun = np.array([START_US + 100_000_000])
    hung = StepBatch("algo-1-905", "Step:ModeKeys.TRAIN", begun, np.array([900_000_000]), ("1000",))
    RULE.observe(state, FrameworkEvents((hung,)), DEFAULTS)
    facts = NodeFacts("algo-1", framework=VIEW, collected={RULE.name: state})

    hangs = RULE.judge(job_of({"algo-1": facts}), DEFAULTS)
    RULE.observe(
        state, FrameworkEvents((replace(hung, starts_us=begun + 900_000_000, durations_us=np.array([1])),)), DEFAULTS
    )
    goes_on = RULE.judge(job_of({"algo-1": facts}), DEFAULTS)

    assert (hangs.kind, goes_on.kind) == (StepOutlierKind.FINE, StepOutlierKind.TOO_SLOW)
    assert hangs.plain_details["algo-1"]["slow_steps"] == []


@pytest.mark.parametrize(
    ("event", "advice"),
    [
        ("Checkpoint", "Make checkpoints asynchronous, or write them less often: Checkpoint takes 60 %"),
        ("DataLoaderIter", "Give the data loader more workers"),
        ("Evaluation", "Evaluate less often"),
        ("aten::mm", "Look at it: aten::mm takes 60 %"),
        (None, "No recorded event takes a clearly larger share of the slow steps than of the others. Look in the log "),
    ],
)
def test_advice_is_about_the_events_in_slow_steps(event: str | None, advice: str) -> None:
    state = folded(batches(SECONDS))
    if event is not None:
        state.overlap = StepOverlap(1_000, 1_000, TimeTable([event], [600]), TimeTable([event], [10]))
    facts = NodeFacts("algo-1", framework=VIEW, collected={RULE.name: state})

    said = RULE.judge(job_of({"algo-1": facts}), DEFAULTS).advice or ""

    assert said.startswith(advice)
    assert ("checkpoint" in said.lower()) is (event == "Checkpoint")


def test_claims_of_findings_are_of_slow_steps() -> None:
    assert set(RULE.spec.claims) == {StepOutlierKind.TOO_MANY, StepOutlierKind.TOO_SLOW}
    assert RULE.spec.claims[StepOutlierKind.TOO_MANY][0] is Bucket.CHECKPOINT
