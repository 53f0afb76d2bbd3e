"""MaxInitializationTime: a job that takes too long to reach its first training step.

Source: AWS documentation of MaxInitializationTime. What is lost is the time beyond the threshold.
"""

from typing import Any

from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.max_initialization_time.text import MaxInitializationKind, text
from trainguard.rules.protocol import JobRule, Positive, RuleParameters
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, SYSTEM, UNUSED_NODE, ParameterHelp, RuleSpec

# How much longer an unseen step is waited for.
#
# A file of steps is closed after up to 60 s, and held until a file of the node is 120 s ahead of it, which at one file
# a minute takes up to 180 s; that later file may itself arrive 120 s late.
UNSEEN_STEP_GRACE_S = 360.0

# Samples that are missing for a shorter time are no restart: another instance takes minutes to come up.
RESTART_S = 300.0


class MaxInitializationTimeParameters(RuleParameters, frozen=True, kw_only=True):
    threshold: Positive = 20.0


class Initialization(Details, frozen=True):
    """How long the job took to its first step, or has taken without one."""

    initialization_s: float
    step_seen: bool


class MaxInitializationTime(JobRule[MaxInitializationTimeParameters]):
    spec = RuleSpec(
        name="MaxInitializationTime",
        title="Initialization",
        looks_at="the job",
        fires_when="the first training step begins too late",
        condition="the first training step begins more than {threshold} min after the training start",
        measures=(Measure("time until the first step", "min"),),
        parameters={"threshold": ParameterHelp("minutes", "a first step that begins later fires")},
        managed_parameters=("threshold",),
        inputs=SYSTEM | FRAMEWORK,
        explains=(LOW_GPUS, UNUSED_NODE),
        changes={"": ChangeCode.SHORTEN_START},
        text=text,
        claims=dict.fromkeys(
            (MaxInitializationKind.LATE, MaxInitializationKind.NO_STEP, MaxInitializationKind.UNCERTAIN),
            (Bucket.START_UP,),
        ),
        details=Initialization,
        section="trainguard.rules.max_initialization_time.section:blocks",
    )

    def judge(self, view: JobView, parameters: MaxInitializationTimeParameters) -> RuleResult:
        if not (view.framework_expected or view.framework_seen):
            return RuleResult.of_kind(text, MaxInitializationKind.NO_FRAMEWORK_METRICS)
        if view.started_at is None:
            return RuleResult.of_kind(text, MaxInitializationKind.NO_START)
        if view.first_step_at is None and view.system_through is None:
            return RuleResult.of_kind(text, MaxInitializationKind.NO_DATA)
        if view.first_step_at is None:
            trained_s = max((min(_worked_s(each), _fetched_s(each)) for each in view.nodes.values()), default=0.0)
            if trained_s > UNSEEN_STEP_GRACE_S:
                trained = (Fact(name="time_at_work", value=trained_s, unit="s"),)
                return RuleResult.of_kind(text, MaxInitializationKind.WITHOUT_STEPS, trained)
        started_at = view.started_at
        elapsed_s = (view.system_through or started_at) - started_at
        judged = [_judge_start(start, view, elapsed_s, parameters) for start in _starts(view, started_at)]
        fired, waits = Status.FIRED, Status.WARMING_UP
        return max(judged, key=lambda each: (each.status is fired, each.status is waits, each.measured or 0.0))


def _worked_s(facts: NodeFacts) -> float:
    return 0.0 if facts.system is None else facts.system.kept_total * facts.system.interval_s


def _fetched_s(facts: NodeFacts) -> float:
    """Return for how long a training process of a node has fetched batches from its data loaders, seconds."""
    states = [state for state in facts.collected.values() if isinstance(state, LoaderState)]
    processes = [process for state in states for process in state.processes]
    spans = (each.last_us - each.first_us for each in processes if each.first_us is not None)
    return max(spans, default=0) / 1e6


# When the job, or a restart of it, began; its first step, None as long as none was seen; and whether it is a restart.
Start = tuple[float, float | None, bool]


def _starts(view: JobView, started_at: float) -> list[Start]:
    restarts = [end for begin, end in view.interruptions if end > started_at and end - begin >= RESTART_S]
    first_step_at = view.first_step_at
    before = [at for at in restarts if first_step_at is None or at <= first_step_at]
    starts: list[Start] = [(before[-1] if before else started_at, first_step_at, bool(before))]
    if len(restarts) > len(before):
        steps = [max(start, restarts[-1]) for start, end in view.step_runs if end > restarts[-1]]
        starts.append((restarts[-1], min(steps, default=None), True))
    return starts


def _judge_start(
    start: Start, view: JobView, elapsed_s: float, parameters: MaxInitializationTimeParameters
) -> RuleResult:
    at, step_at, _ = start
    if step_at is None:
        return _judge_absence(start, view, parameters)
    began_at = max(step_at, at)
    after_s = began_at - at
    over_s = after_s - parameters.threshold * 60.0
    late = over_s > 0.0
    lost = over_s / max(elapsed_s, after_s) if late else None
    return RuleResult.of_kind(
        text,
        MaxInitializationKind.LATE if late else MaxInitializationKind.IN_TIME,
        _facts(start, began_at, parameters),
        **_took(after_s, parameters),
        data_points=1,
        affected_share=lost,
        wasted_share=lost,
        onset=at if late else None,
        until=step_at if late else None,
        details=Initialization(after_s, step_seen=True),
    )


def _judge_absence(start: Start, view: JobView, parameters: MaxInitializationTimeParameters) -> RuleResult:
    """Judge a start without a step; GPUs that work may only lack written steps."""
    at = start[0]
    end, grace_s = max(view.system_through or at, at), 0.0 if view.closed else UNSEEN_STEP_GRACE_S
    worked_s = max(map(_worked_s, view.nodes.values()), default=0.0)
    at_work = view.first_step_at is None and worked_s > UNSEEN_STEP_GRACE_S
    waited_s, elapsed_s = end - at, end - (view.started_at or at)
    over_s = waited_s - parameters.threshold * 60.0
    late = over_s > grace_s
    if not late and view.closed and not view.framework_seen:
        return RuleResult.of_kind(text, MaxInitializationKind.ENDED_WITHOUT_METRICS)
    facts = _facts(start, end, parameters)
    if late:
        kind = MaxInitializationKind.UNCERTAIN if at_work else MaxInitializationKind.NO_STEP
    elif view.closed:
        kind = MaxInitializationKind.ENDED_BEFORE
    else:
        kind = MaxInitializationKind.WARMING_UP
        facts = (*facts, Fact(name="grace", value=grace_s, unit="s"))
    if kind is MaxInitializationKind.UNCERTAIN:
        facts = (*facts, Fact(name="time_at_work", value=worked_s, unit="s"))
    lost = over_s / elapsed_s if late else None
    return RuleResult.of_kind(
        text,
        kind,
        facts,
        **_took(waited_s, parameters),
        affected_share=lost,
        wasted_share=None if kind is MaxInitializationKind.UNCERTAIN else lost,
        onset=at if late else None,
        near_threshold=kind.status is Status.WARMING_UP,
        details=Initialization(waited_s, step_seen=False),
    )


def _took(seconds: float, parameters: MaxInitializationTimeParameters) -> dict[str, Any]:
    """Return the numbers of a judgement of a start that took, or has taken, so many seconds."""
    progress = Patience(seen=int(seconds), needed=round(parameters.threshold * 60.0), counts="seconds")
    return {"measured": seconds / 60.0, "threshold": parameters.threshold, "progress": progress}


def _facts(start: Start, end: float, parameters: MaxInitializationTimeParameters) -> tuple[Fact, ...]:
    (at, step_at, is_restart), limit = start, parameters.threshold * 60.0
    name = "time_to_first_step" if step_at is not None else "time_without_step"
    waited = Fact(name=name, value=end - at, unit="s", start=at, end=end, threshold=limit)
    began = Fact(name="restarted_at" if is_restart else "started_at", value=at, unit="time")
    over = Fact(name="time_over", value=max(end - at - limit, 0.0), unit="s")
    return waited, began, over
