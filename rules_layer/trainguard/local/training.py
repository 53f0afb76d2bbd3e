"""Training health on this machine: the deployed sessions over a job's files, by all rules at once.

The rules that a job's owner did not choose are evaluated too, for the reports of each rule. They make no finding: the
item that is returned holds their state, and a plan without them shows none of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from trainguard.engine.family import Families, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Announced
from trainguard.errors import RuleFailedError
from trainguard.families.training.family import TRAINING_HEALTH
from trainguard.families.training.keys import SCALAR_FILES, SCALARS, TRAINING, match_key
from trainguard.families.training.stream import StepStream, step_rules
from trainguard.job_policy import ALL
from trainguard.local.run_files import TrainingFiles
from trainguard.records import JobRecord, NodeRecord, Status, StreamKey
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import AnyStepRule
from trainguard.rules.training.step_rule import StepState
from trainguard.tensors.debug.keys import ALL_WORKERS, run_prefix


@dataclass(slots=True)
class RuleSteps:
    """What one rule said of one stream: all steps at which it fired, its last state, and its result at the job's end.

    ``state`` is None where the rule did not run, because of its parameters or a failure: ``result`` says why.
    """

    rule: AnyStepRule
    parameters: Mapping[str, object]
    steps: list[int] = field(default_factory=list)
    state: StepState | None = None
    result: RuleResult = field(default_factory=lambda: RuleResult(Status.WAITING_FOR_DATA, ""))


@dataclass(frozen=True, slots=True)
class EvaluatedTraining:
    """A job's training that was evaluated: its items, and what each rule said of each stream.

    ``notes`` are what people have to know beside that, a sentence each.
    """

    records: tuple[NodeRecord, ...]
    streams: tuple[Sequence[RuleSteps], ...]
    notes: tuple[str, ...] = ()


def evaluate_training(job: JobRecord, plan: RulePlan, families: Families, files: TrainingFiles) -> EvaluatedTraining:
    """Evaluate a job that has ended by all rules of training health.

    Parameters
    ----------
    job : JobRecord
    plan : RulePlan
        The job's own.
    families : Families
        Those that made the plan.
    files : TrainingFiles

    Raises
    ------
    ProfileSourceError, PortUnavailableError
        When a file cannot be read, or S3 does not answer.
    """
    every = families.plan(replace(job, training_rules=(ALL,)), prices=plan.prices)
    every = replace(every, by_event_time=True, episodes=plan.episodes, interval_s=plan.interval_s)
    source = ObjectSource(
        files.objects,
        files.bucket,
        files.root,
        TRAINING_HEALTH.object_cap_bytes,
        TRAINING_HEALTH.share(files.objects),
    )
    done = []
    if files.tensors:
        done.append(_evaluated(StreamKey(job.job, ALL_WORKERS, TRAINING), source, every, _tensor_keys(files)))
    if files.scalars:
        done.append(_evaluated(StreamKey(job.job, SCALAR_FILES, SCALARS), source, every, files.scalars))
    records = tuple(each.record for each in done)
    notes = tuple(note for each in done for note in each.notes)
    return EvaluatedTraining(records, tuple(each.rules for each in done), notes)


class _EvaluatedStream(NamedTuple):
    record: NodeRecord
    rules: Sequence[RuleSteps]
    notes: Sequence[str]


def _tensor_keys(files: TrainingFiles) -> Iterator[str]:
    """Yield what wakes the session, which lists the rest: the folder, and the mark of the end where it is there."""
    if files.ended:
        yield f"{run_prefix(files.root)}training_job_end.ts"


def _evaluated(key: StreamKey, source: ObjectSource, plan: RulePlan, keys: Iterable[str]) -> _EvaluatedStream:
    """Apply all steps of a stream; return its item at the job's end, and what each rule said."""
    session = TRAINING_HEALTH.open_session(NodeRecord(key), source, plan)
    rules = {rule.name: RuleSteps(rule, _parameters(plan, rule.name)) for rule in step_rules(plan)}
    session.announce([Announced(each, match_key(each)) for each in keys])

    def note_step() -> None:
        for said in rules.values():
            _note(said, session.stream)

    session.stream.after_step = note_step
    for _ in session.apply(drain=True, modified_before=None):
        pass
    last = session.stream.finished()
    last.finish()
    for verdict in last.verdicts(closed=True):
        said = rules[verdict.rule]
        _note(said, last)
        said.result = verdict.result
    return _EvaluatedStream(session.to_record(closed=True), tuple(rules.values()), session.stream.state.notes)


def _note(said: RuleSteps, stream: StepStream[Any]) -> None:
    """Take note of a rule's newest check: of a step that fired, where it is the stream's newest step."""
    try:
        said.state = stream.state_of(said.rule.name)
    except RuleFailedError:
        return
    newest = said.state.latest
    is_new = not said.steps or (newest is not None and newest.step != said.steps[-1])
    if newest is not None and newest.fires and is_new:
        said.steps.append(newest.step)


def _parameters(plan: RulePlan, rule: str) -> Mapping[str, object]:
    return plan.parameters[rule].in_force() if rule in plan.parameters else {}
