"""Training health on this machine: the deployed sessions over a job's files, by all rules at once.

Rules that a job's owner did not choose are evaluated for their reports, and make no finding.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trainguard.core.errors import RuleFailedError, RunMissingError
from trainguard.core.job_policy import ALL
from trainguard.core.records import JobRecord, Status, StreamKey, StreamRecord
from trainguard.engine.family import Families, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Announced, state_of
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.engine.training.scalar_files import ScalarState
from trainguard.engine.training.stream import SCALAR_FILES, SCALARS, TRAINING, StepStream, match_key, step_rules
from trainguard.formats.tensors.debug.keys import ALL_WORKERS, run_files, run_prefix
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.local.profile import ReadFaults, TrainingFiles
from trainguard.render.details import encode_report
from trainguard.report.training.digest import TrainingDigest, joined
from trainguard.report.training.predictions import CONFUSION, names_of
from trainguard.report.training.read import RunPart, ScalarPart, read_on, read_scalars_on
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import TRAINING_RULES, AnyStepRule
from trainguard.rules.training.step_rule import StepState


@dataclass(slots=True)
class RuleSteps:
    """What one rule found in one stream; ``state`` is None where it did not run: ``result`` says why."""

    rule: AnyStepRule
    parameters: Mapping[str, object]
    steps: list[int] = field(default_factory=list)
    state: StepState | None = None
    result: RuleResult = field(default_factory=lambda: RuleResult(Status.WAITING_FOR_DATA, ""))


# What each rule found in each stream.
Streams = tuple[Sequence[RuleSteps], ...]


def evaluate_training(
    job: JobRecord, plan: RulePlan, families: Families, files: TrainingFiles
) -> tuple[tuple[StreamRecord, ...], Streams, tuple[str, ...]]:
    """Evaluate an ended job by all rules of training health; return its items, what the rules found, and notes.

    Raises ProfileSourceError, PortUnavailableError.
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
        # The session lists the folder itself; the mark of the end is announced where it is there.
        end = [f"{run_prefix(files.root)}training_job_end.ts"] if files.ended else []
        done.append(_evaluated(StreamKey(job.job, ALL_WORKERS, TRAINING), source, every, end))
    if files.scalars:
        done.append(_evaluated(StreamKey(job.job, SCALAR_FILES, SCALARS), source, every, files.scalars))
    notes = tuple(note for _, _, of_stream in done for note in of_stream)
    return tuple(record for record, _, _ in done), tuple(rules for _, rules, _ in done), notes


def _evaluated(
    key: StreamKey, source: ObjectSource, plan: RulePlan, keys: Iterable[str]
) -> tuple[StreamRecord, Sequence[RuleSteps], Sequence[str]]:
    session = TRAINING_HEALTH.open_session(StreamRecord(key), source, plan)
    rules = {
        rule.name: RuleSteps(rule, plan.parameters[rule.name].in_force() if rule.name in plan.parameters else {})
        for rule in step_rules(plan)
    }
    session.announce([Announced(each, match_key(each)) for each in keys])

    def note_step() -> None:
        for outcome in rules.values():
            _note(outcome, session.stream)

    session.stream.after_step = note_step
    faults = ReadFaults()
    for applied in session.apply(drain=True, modified_before=None):
        faults.note(applied)
    last = session.stream.finished()
    last.finish()
    for verdict in last.verdicts(closed=True):
        outcome = rules[verdict.rule]
        _note(outcome, last)
        outcome.result = verdict.result
    return session.to_record(closed=True), tuple(rules.values()), [*session.stream.state.notes, *faults.notes]


def _note(outcome: RuleSteps, stream: StepStream[Any]) -> None:
    """Take note of a rule's newest check, of a step that fired only where it is the stream's newest step."""
    try:
        outcome.state = stream.state_of(outcome.rule.name)
    except RuleFailedError:
        return
    newest = outcome.state.latest
    is_new = not outcome.steps or (newest is not None and newest.step != outcome.steps[-1])
    if newest is not None and newest.fires and is_new:
        outcome.steps.append(newest.step)


DebuggerStatus = Literal["NoIssuesFound", "IssuesFound", "Error", "NotApplicable"]
_RANK: Mapping[DebuggerStatus, int] = {"IssuesFound": 0, "NoIssuesFound": 1, "Error": 2, "NotApplicable": 3}


def debugger_reports(streams: Streams) -> dict[str, bytes]:
    """Return the report of every rule by its file's name.

    Of tensors and files of scalars, the stream counts that has a finding, else one on which the rule could check a
    step.
    """
    reports = {}
    for rule in TRAINING_RULES:
        of_rule = [_report(each) for rules in streams for each in rules if each.rule is rule]
        if of_rule:
            best = min(of_rule, key=lambda report: _RANK[report["status"]])
            reports[f"debugger-reports/{best['rule']}.json"] = encode_report(best)
    return reports


def _report(outcome: RuleSteps) -> dict[str, Any]:
    state = StepState() if outcome.state is None else outcome.state
    shown = state.first or state.latest
    return {
        "rule": outcome.rule.name.rpartition("/")[2],
        "status": _status(outcome, state),
        "first_step": None if state.first is None else state.first.step,
        "steps": list(outcome.steps),
        "tensor": None if shown is None else shown.tensor,
        "value": None if shown is None else _finite(shown.value),
        "threshold": None if shown is None else _finite(shown.threshold),
        "reason": outcome.result.reason if state.first is None else outcome.rule.said(state.first),
        "parameters": {name: value for name, value in outcome.parameters.items() if name not in UNSHOWN},
    }


def _status(outcome: RuleSteps, state: StepState) -> DebuggerStatus:
    if outcome.result.status is Status.ERROR:
        return "Error"
    if state.first is not None:
        return "IssuesFound"
    judged = outcome.result.status in {Status.OK, Status.FIRED}
    return "NoIssuesFound" if judged else "NotApplicable"


def _finite(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON lacks and the reason names."""
    return value if value is not None and math.isfinite(value) else None


def digest_training(
    training: TrainingFiles, job: str, records: Iterable[StreamRecord], streams: Streams, names: ScalarNames
) -> TrainingDigest | None:
    """Read what a report shows of a job's training; tensors that rules name are shown before others.

    ``job`` is for errors. None of a debug-output without a readable collections file, and no scalars beside it.
    """
    scalars = TrainingDigest()
    if training.scalars:
        source = ObjectSource(training.objects, training.bucket, training.root, TRAINING_HEALTH.object_cap_bytes)
        states = [state_of(record, ScalarState) for record in records if record.key.stream == SCALARS]
        until = {name: step for state in states for name, step in state.other_runs.items()}
        segments = {place: found for state in states for place, found in state.segments.items()}
        scalars = read_scalars_on(source, ScalarPart(), names, until=until, segments=segments).digest
    if not training.tensors:
        return scalars
    files = run_files(training.objects, training.bucket, training.root)
    found = [each for rules in streams for each in rules]
    checks = [each.state.first for each in found if each.state is not None]
    wanted = {check.tensor for check in checks if check is not None and check.tensor is not None}
    confusion = next((names_of(each.parameters) for each in found if each.rule.name == CONFUSION), {})
    try:
        tensors = read_on(files, job, RunPart(), wanted=wanted, confusion=confusion, ended=training.ended).digest
    except RunMissingError:
        return scalars if scalars.steps else None
    return joined(tensors, scalars)
