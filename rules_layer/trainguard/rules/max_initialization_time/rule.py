"""MaxInitializationTime: a job that takes too long to reach its first training step.

Source: AWS documentation of MaxInitializationTime. What is lost is the time beyond the threshold.
"""

from dataclasses import dataclass
from typing import Any

from trainguard.core.finding import Fact, Progress, clock
from trainguard.core.records import Status
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.dataloader.series import LoaderState
from trainguard.rules.protocol import JobRule, Positive, RuleParameters
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import FactSheet, JudgedKind, Measure, RuleResult, Words
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, SYSTEM, UNUSED_NODE, ParameterHelp, RuleSpec


class MaxInitializationKind(JudgedKind):
    LATE = "late_first_step", Status.FIRED
    # No step was seen for so long that the first one must begin too late.
    NO_STEP = "no_step", Status.FIRED

    # No step was seen, and GPUs work: the steps may not be written.
    UNCERTAIN = "no_step_while_gpus_work", Status.FIRED

    IN_TIME = "in_time"
    WARMING_UP = "warming_up", Status.WARMING_UP
    ENDED_BEFORE = "ended_before"
    ENDED_WITHOUT_METRICS = "ended_without_metrics", Status.NOT_APPLICABLE
    WITHOUT_STEPS = "trains_without_steps", Status.NOT_APPLICABLE
    NO_START = "no_start", Status.WAITING_FOR_DATA
    NO_DATA = "no_data", Status.WAITING_FOR_DATA
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


_LATE = "The first step began at {at}, {time_to_first_step} after the {start} (threshold {time_to_first_step.limit})."
_UNSEEN = "No step was seen in the {time_without_step} since the {start} at {at} (threshold {time_without_step.limit})"
_NO_STEP = "no training step was seen in the {time_without_step} since the {start}"
_SHORTEN = (
    "Shorten what comes before the first step by at least {time_over}: stream the data set (FastFile or Pipe mode) "
    "instead of copying it, build dependencies into the image, compile or cache models ahead."
)
_WORDS = {
    MaxInitializationKind.LATE: Words(
        _LATE, _SHORTEN, "the first training step came {time_to_first_step} after the {start}"
    ),
    MaxInitializationKind.NO_STEP: Words(f"{_UNSEEN}.", _SHORTEN, _NO_STEP),
    MaxInitializationKind.UNCERTAIN: Words(
        f"{_UNSEEN}, but GPUs {{worked/have worked}} for {{time_at_work}}.",
        "Check that the job writes steps, as it is set to: GPUs that have worked for {time_at_work} without one rather "
        "train than initialize. If they do not train, shorten what they do before the first step.",
        _NO_STEP,
    ),
    MaxInitializationKind.IN_TIME: Words(_LATE),
    MaxInitializationKind.WARMING_UP: Words(f"{_UNSEEN}; a step may still arrive for {{grace}} after the threshold."),
    MaxInitializationKind.ENDED_BEFORE: Words(
        "The job ended {time_without_step} after the {start} without a step (threshold {time_without_step.limit})."
    ),
    MaxInitializationKind.ENDED_WITHOUT_METRICS: Words(
        "The job has ended and wrote no framework metrics, so its first step is unknown."
    ),
    MaxInitializationKind.WITHOUT_STEPS: Words(
        "The job's framework metrics have no steps: GPUs have worked and data loaders fetched for {time_at_work} "
        "without one, so its first step is unknown."
    ),
    MaxInitializationKind.NO_START: Words("Neither the training start nor a first sample is known."),
    MaxInitializationKind.NO_DATA: Words("Neither a sample nor a step was seen."),
    MaxInitializationKind.NO_FRAMEWORK_METRICS: Words(
        "The job writes no framework metrics, so its first step is unknown."
    ),
}


def text(sheet: FactSheet) -> Words:
    return sheet.fill(_WORDS[MaxInitializationKind(sheet.kind)], start=_start, at=_at)


def _start(sheet: FactSheet) -> str:
    return "training start" if sheet.get("restarted_at") is None else "restart of the job"


def _at(sheet: FactSheet) -> str:
    took = sheet.get("time_to_first_step")
    return clock(sheet["time_without_step"].start if took is None else took.end)


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
            return RuleResult.told(text, MaxInitializationKind.NO_FRAMEWORK_METRICS)
        if view.started_at is None:
            return RuleResult.told(text, MaxInitializationKind.NO_START)
        if view.first_step_at is None and view.system_through is None:
            return RuleResult.told(text, MaxInitializationKind.NO_DATA)
        if view.first_step_at is None:
            trained_s = max((min(_worked_s(each), _fetched_s(each)) for each in view.nodes.values()), default=0.0)
            if trained_s > UNSEEN_STEP_GRACE_S:
                trained = (Fact(name="time_at_work", value=trained_s, unit="s"),)
                return RuleResult.told(text, MaxInitializationKind.WITHOUT_STEPS, trained)
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


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the job, or a restart of it, and its first step, None as long as none was seen."""

    at: float
    step_at: float | None
    is_restart: bool = False


def _starts(view: JobView, started_at: float) -> list[_Start]:
    restarts = [end for begin, end in view.interruptions if end > started_at and end - begin >= RESTART_S]
    first_step_at = view.first_step_at
    before = [at for at in restarts if first_step_at is None or at <= first_step_at]
    starts = [_Start(before[-1], first_step_at, is_restart=True) if before else _Start(started_at, first_step_at)]
    if len(restarts) > len(before):
        steps = [max(start, restarts[-1]) for start, end in view.step_runs if end > restarts[-1]]
        starts.append(_Start(restarts[-1], min(steps, default=None), is_restart=True))
    return starts


def _judge_start(
    start: _Start, view: JobView, elapsed_s: float, parameters: MaxInitializationTimeParameters
) -> RuleResult:
    if start.step_at is not None:
        return _judge_first_step(start, start.step_at, elapsed_s, parameters)
    end = max(view.system_through or start.at, start.at)
    worked_s = max(map(_worked_s, view.nodes.values()), default=0.0)
    at_work = view.first_step_at is None and worked_s > UNSEEN_STEP_GRACE_S
    return _judge_absence(start, end, view, parameters, worked_s if at_work else 0.0)


def _judge_first_step(
    start: _Start, step_at: float, elapsed_s: float, parameters: MaxInitializationTimeParameters
) -> RuleResult:
    step_at = max(step_at, start.at)
    after_s = step_at - start.at
    over_s = after_s - parameters.threshold * 60.0
    late = over_s > 0.0
    lost = over_s / max(elapsed_s, after_s) if late else None
    return RuleResult.told(
        text,
        MaxInitializationKind.LATE if late else MaxInitializationKind.IN_TIME,
        _facts(start, step_at, parameters),
        **_took(after_s, parameters),
        data_points=1,
        affected_share=lost,
        wasted_share=lost,
        onset=start.at if late else None,
        until=start.step_at if late else None,
        details=Initialization(after_s, step_seen=True),
    )


def _judge_absence(
    start: _Start, end: float, view: JobView, parameters: MaxInitializationTimeParameters, worked_s: float
) -> RuleResult:
    """Judge a start without a step by ``end``, epoch seconds; GPUs that work may only lack written steps."""
    grace_s = 0.0 if view.closed else UNSEEN_STEP_GRACE_S
    waited_s, threshold_s = end - start.at, parameters.threshold * 60.0
    over_s, elapsed_s = waited_s - threshold_s, end - (view.started_at or start.at)
    late = over_s > grace_s
    if not late and view.closed and not view.framework_seen:
        return RuleResult.told(text, MaxInitializationKind.ENDED_WITHOUT_METRICS)
    facts = _facts(start, end, parameters)
    if late:
        kind = MaxInitializationKind.UNCERTAIN if worked_s else MaxInitializationKind.NO_STEP
    elif view.closed:
        kind = MaxInitializationKind.ENDED_BEFORE
    else:
        kind = MaxInitializationKind.WARMING_UP
        facts = (*facts, Fact(name="grace", value=grace_s, unit="s"))
    if kind is MaxInitializationKind.UNCERTAIN:
        facts = (*facts, Fact(name="time_at_work", value=worked_s, unit="s"))
    lost = over_s / elapsed_s if late else None
    return RuleResult.told(
        text,
        kind,
        facts,
        **_took(waited_s, parameters),
        affected_share=lost,
        wasted_share=None if kind is MaxInitializationKind.UNCERTAIN else lost,
        onset=start.at if late else None,
        near_threshold=kind.status is Status.WARMING_UP,
        details=Initialization(waited_s, step_seen=False),
    )


def _took(seconds: float, parameters: MaxInitializationTimeParameters) -> dict[str, Any]:
    """Return the numbers of a judgement of a start that took, or has taken, so many seconds."""
    progress = Progress(seen=int(seconds), needed=round(parameters.threshold * 60.0), counts="seconds")
    return {"measured": seconds / 60.0, "threshold": parameters.threshold, "progress": progress}


def _facts(start: _Start, end: float, parameters: MaxInitializationTimeParameters) -> tuple[Fact, ...]:
    limit = parameters.threshold * 60.0
    name = "time_to_first_step" if start.step_at is not None else "time_without_step"
    waited = Fact(name=name, value=end - start.at, unit="s", start=start.at, end=end, threshold=limit)
    began = Fact(name="restarted_at" if start.is_restart else "started_at", value=start.at, unit="time")
    over = Fact(name="time_over", value=max(end - start.at - limit, 0.0), unit="s")
    return waited, began, over
