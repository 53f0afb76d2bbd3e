"""MaxInitializationTime: a job that takes too long to reach its first training step.

Source: AWS documentation of MaxInitializationTime (the rule waits for the first step and fires when initialization
takes longer than threshold minutes). The grace for a step that may still arrive is added here. What is lost is the time
beyond the threshold: a first step that is a little late costs a little.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from trainguard.records import Status
from trainguard.rules.details import Details
from trainguard.rules.loader_series import LoaderState
from trainguard.rules.parameter_help import ParameterHelp
from trainguard.rules.protocol import JobRule, Positive, RuleParameters
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, SYSTEM, Loss, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS, UNUSED_NODE
from trainguard.rules.units import show_duration, show_number

UNSEEN_STEP_GRACE_S = 360.0
"""How much longer an unseen step is waited for.

A file of steps is closed after up to 60 s, and held until a file of the node is 120 s ahead of it, which at one file a
minute takes up to 180 s; that later file may itself arrive 120 s late.
"""

RESTART_S = 300.0
"""Samples that are missing for a shorter time are no restart: another instance takes minutes to come up."""

CLEAR_AFTER_S = 180.0
START, RESTART = "training start", "restart of the job"


class MaxInitializationTimeParameters(RuleParameters, frozen=True, kw_only=True):
    """``threshold`` is in minutes."""

    threshold: Positive = 20.0


class Initialization(Details, frozen=True):
    """How long the job took to its first step, or has taken without one."""

    initialization_s: float
    step_seen: bool


def _loss_from_now(result: RuleResult) -> Loss | None:
    """Return that no node does anything until the first step; nothing once it was seen."""
    seen = isinstance(result.details, Initialization) and result.details.step_seen
    return None if seen else Loss(1.0, "until the first step")


SPEC = RuleSpec(
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
    clause="the first training step came too late",
    loss_from_now=_loss_from_now,
    details=Initialization,
    section="trainguard.report.html.sections.max_initialization_time:blocks",
)


class MaxInitializationTime(JobRule[MaxInitializationTimeParameters]):
    """Fires when the first step began too late, or has not been seen for so long that it must begin too late."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = MaxInitializationTimeParameters

    def clear_after_s(self, parameters: MaxInitializationTimeParameters, interval_s: float) -> float:
        """Three evaluations: the condition comes back only when the job is interrupted and starts again."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def judge(self, view: JobView, parameters: MaxInitializationTimeParameters) -> RuleResult:
        """Compare each start's first step, or the watermark while no step was seen, with that start."""
        if not (view.framework_expected or view.framework_seen):
            return RuleResult(
                Status.NOT_APPLICABLE,
                "the job writes no framework metrics: none are configured and none were seen, so its first step is "
                "unknown.",
            )
        if view.started_at is None:
            return RuleResult(Status.WAITING_FOR_DATA, "neither the training start nor a first sample is known yet.")
        if view.first_step_at is None and view.system_through is None:
            return RuleResult(Status.WAITING_FOR_DATA, "neither a sample nor a step was seen yet.")
        if view.first_step_at is None:
            trained_s = max((min(_worked_s(each), _fetched_s(each)) for each in view.nodes.values()), default=0.0)
            if trained_s > UNSEEN_STEP_GRACE_S:
                return _without_steps(trained_s)
        started_at = view.started_at
        elapsed_s = (view.system_through or started_at) - started_at
        starts = _starts(view, started_at)
        judged = (_since(_judge_start(start, view, elapsed_s, parameters), start) for start in starts)
        return max(judged, key=_gravity)


def _without_steps(trained_s: float) -> RuleResult:
    """Say that a job that trains cannot be judged by steps that it does not write."""
    return RuleResult(
        Status.NOT_APPLICABLE,
        "the job's framework metrics have no steps: GPUs have worked and data loaders fetched for "
        f"{show_duration(trained_s)} without one, so its first step is unknown.",
    )


def _worked_s(facts: NodeFacts) -> float:
    """Return for how long a node's GPUs have worked, seconds, short waits included."""
    return 0.0 if facts.system is None else facts.system.kept_total * facts.system.interval_s


def _fetched_s(facts: NodeFacts) -> float:
    """Return for how long a training process of a node has fetched batches from its data loaders, seconds."""
    states = [state for state in facts.collected.values() if isinstance(state, LoaderState)]
    processes = [process for state in states for process in state.processes]
    spans = (each.last_us - each.first_us for each in processes if each.first_us is not None)
    return max(spans, default=0) / 1e6


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the job, called ``name`` in a sentence, and its first step, None as long as none was seen."""

    at: float
    name: str
    step_at: float | None


def _starts(view: JobView, started_at: float) -> list[_Start]:
    """Return the start that led to the first step, and the newest start if that is a later one.

    A job that was interrupted before its first step begins anew.
    """
    restarts = [end for begin, end in view.interruptions if end > started_at and end - begin >= RESTART_S]
    first_step_at = view.first_step_at
    before = [at for at in restarts if first_step_at is None or at <= first_step_at]
    starts = [_Start(before[-1], RESTART, first_step_at) if before else _Start(started_at, START, first_step_at)]
    if len(restarts) > len(before):
        steps = [max(start, restarts[-1]) for start, end in view.step_runs if end > restarts[-1]]
        starts.append(_Start(restarts[-1], RESTART, min(steps, default=None)))
    return starts


def _judge_start(
    start: _Start, view: JobView, elapsed_s: float, parameters: MaxInitializationTimeParameters
) -> RuleResult:
    """Judge one start; ``elapsed_s`` is the time since the training start, of which a part may be lost."""
    if start.step_at is not None:
        return _judge_first_step(start.step_at - start.at, elapsed_s, parameters, start.name)
    waited_s = (view.system_through or start.at) - start.at
    absence = _judge_absence(waited_s, elapsed_s, view.closed, parameters, start.name)
    if absence.status is Status.OK and not view.framework_seen:
        reason = "the job has ended and wrote no framework metrics, so its first step is unknown."
        return RuleResult(Status.NOT_APPLICABLE, reason)
    worked_s = max(map(_worked_s, view.nodes.values()), default=0.0)
    if absence.status is Status.FIRED and view.first_step_at is None and worked_s > UNSEEN_STEP_GRACE_S:
        return _doubted(absence, worked_s)
    return absence


def _since(result: RuleResult, start: _Start) -> RuleResult:
    """Say that the job has initialized since its start."""
    if result.status is not Status.FIRED:
        return result
    return replace(result, onset=start.at, until=start.step_at)


def _gravity(result: RuleResult) -> tuple[bool, bool, float]:
    """Order judgements of starts: one that fires before one that is still open, and then by time."""
    return result.status is Status.FIRED, result.status is Status.WARMING_UP, result.measured or 0.0


def _judge_first_step(
    after_s: float, elapsed_s: float, parameters: MaxInitializationTimeParameters, start: str
) -> RuleResult:
    after_s = max(after_s, 0.0)
    over_s = after_s - parameters.threshold * 60.0
    late = over_s > 0.0
    lost = over_s / max(elapsed_s, after_s) if late else None
    allowed = f"threshold {show_number(parameters.threshold)} min"
    return RuleResult(
        Status.FIRED if late else Status.OK,
        f"the first step began {show_duration(after_s)} after the {start} ({allowed}).",
        measured=after_s / 60.0,
        threshold=parameters.threshold,
        data_points=1,
        advice=_advice(over_s) if late else None,
        affected_share=lost,
        wasted_share=lost,
        details=Initialization(after_s, step_seen=True),
    )


def _judge_absence(
    waited_s: float, elapsed_s: float, closed: bool, parameters: MaxInitializationTimeParameters, start: str
) -> RuleResult:
    """Judge a start without a step; once every stream has ended nothing can arrive late and no grace is due."""
    grace_s = 0.0 if closed else UNSEEN_STEP_GRACE_S
    threshold_s = parameters.threshold * 60.0
    over_s = waited_s - threshold_s
    late = over_s > grace_s
    lost = over_s / elapsed_s if late else None
    allowed = f"threshold {show_number(parameters.threshold)} min"
    if late:
        status = Status.FIRED
        reason = f"no step was seen in the {show_duration(waited_s)} since the {start} ({allowed})."
    elif closed:
        status = Status.OK
        reason = f"the job ended {show_duration(waited_s)} after the {start} without a step ({allowed})."
    else:
        status = Status.WARMING_UP
        reason = (
            f"no step was seen in the {show_duration(waited_s)} since the {start}; judged after "
            f"{show_duration(threshold_s + grace_s)}, which is the {allowed} and {show_number(grace_s / 60.0)} min "
            "in which a step may still arrive."
        )
    return RuleResult(
        status,
        reason,
        measured=waited_s / 60.0,
        threshold=parameters.threshold,
        advice=_advice(over_s) if late else None,
        affected_share=lost,
        wasted_share=lost,
        near=status is Status.WARMING_UP,
        details=Initialization(waited_s, step_seen=False),
    )


def _doubted(absence: RuleResult, worked_s: float) -> RuleResult:
    """Tell a step that was never seen from one that never was: while GPUs work, no time may be lost at all."""
    worked = show_duration(worked_s)
    return replace(
        absence,
        reason=f"{absence.reason.removesuffix('.')}, but GPUs have worked for {worked}.",
        advice=f"Check that the job writes steps, as it is set to: GPUs that have worked for {worked} without one "
        "rather train than initialize. If they do not train, shorten what they do before the first step.",
        wasted_share=None,
    )


def _advice(over_s: float) -> str:
    return (
        f"Shorten what comes before the first step by at least {show_duration(over_s)}: stream the data set (FastFile "
        "or Pipe mode) instead of copying it, build dependencies into the image, compile or cache models ahead."
    )
