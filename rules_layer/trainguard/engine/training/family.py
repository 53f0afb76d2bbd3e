"""The family of rules over what training computes: its streams and their verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.ports import ReadableObjects
from trainguard.core.records import JOB_NODE, JobRecord, JobStatus, Status, StreamKey, StreamRecord
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import FamilyStreams, FamilyVerdicts, JobMoment, JobState, UnitVerdicts
from trainguard.engine.streams.rule_runner import RuleRunner
from trainguard.engine.streams.session import AnyStream, Session, state_of
from trainguard.engine.training.debug_session import DebugSession, DebugState
from trainguard.engine.training.runs import SharedRuns
from trainguard.engine.training.scalar_files import ScalarState
from trainguard.engine.training.scalar_session import ScalarSession
from trainguard.engine.training.stream import (
    COMPARES_RUNS,
    EXPECTED_KEYS,
    SCALAR_FILES,
    SCALARS,
    STALLED,
    TRAINING,
    StepStream,
    StepStreamState,
    match_key,
    step_rules,
)
from trainguard.engine.verdicts.episodes import FiringHistory, StoredEpisode
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome, combine
from trainguard.formats.tensors.debug.json_files import MAX_INDEX_BYTES
from trainguard.formats.tensors.debug.keys import ALL_WORKERS
from trainguard.ledger.node import Span
from trainguard.planning.finish import Point
from trainguard.rules.family_rules import TRAINING_TITLE
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import SETTINGS_TYPES, TRAINING_RULES, AnyStepRule
from trainguard.rules.training.stalled_training import (
    StalledTrainingRule,
    StalledTrainingRuleParameters,
    StalledTrainingRuleState,
    patience_s,
)
from trainguard.rules.training.step_rule import RunView
from trainguard.rules.training.step_words import StepKind

# GPUs that are busy for this share of the time work. Those that are always busy may wait in a collective.
WORKS, SPINS = 0.5, 0.995


def works_on(busy: float | None) -> bool:
    return busy is not None and WORKS <= busy < SPINS


# Secondary statuses in which a job may write steps; in others it downloads, uploads, stops or waits for instances.
_TRAINS = frozenset({None, "Training"})

_TEXT = StalledTrainingRule().text


def judge_stall(
    rule: StalledTrainingRule,
    job: JobRecord,
    states: Sequence[StepStreamState],
    parameters: StalledTrainingRuleParameters,
    busy: Callable[[Span], float | None] = lambda _: None,
) -> RuleResult:
    """Return the clock's verdict on a job, from the states of its streams (at least one).

    ``busy`` gives which share, 0 to 1, of a span in epoch seconds the GPUs were busy; None where that is not known.
    """
    if job.closing or job.status.is_final or any(state.ended for state in states):
        return RuleResult.of(_TEXT, Status.OK, "ended")
    newest = max(states, key=lambda state: state.progress_s or 0.0)
    if newest.progress_s is None:
        return RuleResult.of(_TEXT, Status.WARMING_UP, StepKind.NO_STEP)
    if job.status is not JobStatus.IN_PROGRESS:
        status = Fact(name="job_status", value=job.status.value)
        return RuleResult.of(_TEXT, Status.NOT_APPLICABLE, "not running", (status,))
    looked_s, longest_s = min(state.looked_s for state in states), max(state.longest_s for state in states)
    silent_s = max(looked_s - newest.progress_s, 0.0)
    if silent_s <= patience_s(parameters, longest_s) or job.secondary_status not in _TRAINS:
        at = newest.progress_s
        since = Fact(name="time_since_object", value=silent_s, unit="s", start=at, end=at + silent_s)
        return RuleResult.of(_TEXT, Status.OK, "newest object", (since,), data_points=newest.steps)
    share = busy((looked_s - parameters.threshold, looked_s))
    if works_on(share):
        return _working(silent_s, share or 0.0, newest.steps)
    known = StalledTrainingRuleState(step=newest.step, evaluated=newest.steps, longest_s=longest_s)
    return rule.judge_at(known, RunView(newest.steps), parameters, now=looked_s, progress_at=newest.progress_s)


def _working(silent_s: float, busy: float, steps: int) -> RuleResult:
    facts = (
        Fact(name="time_without_step", value=silent_s, unit="s"),
        Fact(name="gpus_busy", value=busy, unit="share"),
    )
    return RuleResult.of(_TEXT, Status.OK, "GPUs work", facts, data_points=steps)


def _silence(episode: StoredEpisode) -> float:
    """Return for how many seconds no step came, with those that the rule waits before an episode begins."""
    gaps = [float(fact.value) for fact in episode.facts if fact.name == "time_without_step"]
    return gaps[0] if gaps else episode.until - episode.start


def without_working(verdict: RuleOutcome, busy: Callable[[Span], float | None]) -> RuleOutcome:
    """Leave out of a recorded run's stalls those in which the GPUs worked on; ``busy`` as in `judge_stall`."""
    history = verdict.history
    shares = [busy((each.start, each.until)) for each in history.episodes]
    kept = [each for each, share in zip(history.episodes, shares, strict=True) if not works_on(share)]
    dropped = len(history.episodes) - len(kept)
    if not dropped:
        return verdict
    times = history.times_fired - dropped
    changed = msgspec.structs.replace(
        history,
        episodes=kept,
        times_fired=times,
        alerted=min(history.alerted, times - 1),
        is_open=history.is_open and not works_on(shares[-1]),
    )
    if kept and not (verdict.result.status is Status.FIRED and works_on(shares[-1])):
        return replace(verdict, history=changed)
    length, share = max(
        (_silence(each), share)
        for each, share in zip(history.episodes, shares, strict=True)
        if share is not None and works_on(share)
    )
    return replace(verdict, history=changed, result=_working(length, share, verdict.result.data_points))


AnyStepStream = StepStream[Any]

WAITS = "No step was saved: neither debug-output nor a file of scalars came."


@dataclass(frozen=True)
class TrainingStreams(FamilyStreams):
    @cached_property
    def of_steps(self) -> Mapping[StreamKey, AnyStepStream]:
        return {key: stream for key, stream in self.streams.items() if isinstance(stream, StepStream)}

    def due_for_listing(self, now: float) -> frozenset[StreamKey]:
        """Return the streams that were silent for as long as StalledTrainingRule allows: S3 is to be asked."""
        return frozenset(key for key, stream in self.of_steps.items() if stream.is_overdue(now))

    @property
    def newest_step(self) -> Point | None:
        marks = ((stream.state.watermark_s, stream.state.step) for stream in self.of_steps.values())
        return max(((at, step) for at, step in marks if at is not None and step is not None), default=None)

    def last_write_at(self, key: StreamKey) -> float | None:
        """Return when S3 got a stream's newest object, epoch seconds: a file may grow by what holds no step."""
        stream = self.of_steps.get(key)
        return None if stream is None else stream.state.progress_s

    def judge(self, job: JobRecord, plan: RulePlan, job_state: JobState, moment: JobMoment) -> FamilyVerdicts:
        by_unit = self._with_data(self.unit_verdicts())
        fires: list[Fire] = []
        stalled = next((rule for rule in step_rules(plan) if isinstance(rule, StalledTrainingRule)), None)
        if stalled is not None and self.of_steps and not plan.by_event_time:
            verdict, fires = self._stall(stalled, job, plan, job_state, moment)
            by_unit[STALLED] = {JOB_NODE: verdict}
        elif STALLED in by_unit:
            stalls = by_unit[STALLED]
            by_unit[STALLED] = {unit: without_working(each, moment.busy) for unit, each in stalls.items()}
        verdicts = [combine(rule.name, by_unit[rule.name]) for rule in step_rules(plan) if rule.name in by_unit]
        if not self.of_steps and job.training_rules:
            waiting = RuleResult(Status.WAITING_FOR_DATA, WAITS)
            verdicts = [RuleOutcome(rule.name, waiting, FiringHistory()) for rule in step_rules(plan)]
        return verdicts, fires

    def _with_data(self, by_unit: UnitVerdicts) -> UnitVerdicts:
        """Leave out the unit that ended without data where another has some; runs are compared by tensors first."""
        without = {
            key.node for key, stream in self.of_steps.items() if self.records[key].closed and stream.state.no_data
        }
        if len(without) == len(self.of_steps):
            return by_unit
        with_data = {
            rule: {unit: verdict for unit, verdict in parts.items() if unit not in without}
            for rule, parts in by_unit.items()
        }
        compared = with_data.get(COMPARES_RUNS, {})
        if len(compared) > 1:
            compared.pop(SCALAR_FILES, None)
        return with_data

    def _stall(
        self, rule: StalledTrainingRule, job: JobRecord, plan: RulePlan, job_state: JobState, moment: JobMoment
    ) -> tuple[RuleOutcome, list[Fire]]:
        """Judge by the clock of the moment; one without a clock keeps the last one's verdict."""
        runner = RuleRunner([rule], job_state.stored_rules, plan)
        stood = job_state.stored_rules[rule.name].watermark_s
        at = max(stood, (self.watermark_s or 0.0) if moment.now is None else moment.now)
        states = [stream.state for stream in self.of_steps.values()]

        def judge(of: StalledTrainingRule, _: object, parameters: StalledTrainingRuleParameters) -> RuleResult:
            return judge_stall(of, job, states, parameters, moment.busy)

        fires = runner.run(None, judge, watermark_s=at, interval_s=plan.interval_s, ledger=moment.ledger)
        (verdict,) = runner.verdicts(judge, interval_s=plan.interval_s)
        return replace(verdict, watermark_s=at), fires


DEFAULT_NAMES = tuple(rule.name for rule in TRAINING_RULES if rule.by_default)


class TrainingFamily(Family):
    """Debug-output in one stream over all workers, and files of scalars in another; by default ``defaults`` run."""

    name = TRAINING
    title = TRAINING_TITLE
    units = "streams"
    expected_keys = EXPECTED_KEYS
    # An index file is written after its event file, and stands for it.
    events = ObjectEvents(
        wildcards=("*/debug-output/index/*.json", "*/events.out.tfevents.*"),
        ends=(
            "_collections.json",
            "/debug-output/training_job_end.ts",
            "/trainer_state.json",
            "/metrics.csv",
            "log.csv",
            "history.csv",
            "training.csv",
            "progress.csv",
            "/results.csv",
            "/training.log",
        ),
    )
    object_cap_bytes = MAX_INDEX_BYTES
    # Of checkpoints the trainers' logs alone, never the models' weights.
    reads = (
        "*/debug-output/*",
        "*/tensorboard-output/*",
        "*/trainer-output/*",
        "*/checkpoints/*trainer_state.json",
        "*/checkpoints/*.csv",
        "*/checkpoints/*training.log",
        "*/checkpoints/*tfevents*",
    )
    settings_types = SETTINGS_TYPES
    report = "trainguard.report.job.coverage:TRAINING_STREAMS"
    streams_type = TrainingStreams
    parse_key = staticmethod(match_key)

    def __init__(self, rules: Sequence[AnyStepRule] = TRAINING_RULES, defaults: Sequence[str] = DEFAULT_NAMES) -> None:
        self.rules: Sequence[AnyStepRule] = tuple(rules)
        self.defaults = frozenset(defaults)

    def open_session(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> Session[Any]:
        if record.key.stream == SCALARS:
            return ScalarSession(record, source, plan)
        return DebugSession(record, source, plan)

    def open_stream(self, record: StreamRecord, plan: RulePlan) -> AnyStream:
        kind = ScalarState if record.key.stream == SCALARS else DebugState
        return StepStream(record.key.node, state_of(record, kind), plan)

    def share(self, objects: ReadableObjects) -> SharedRuns:
        del objects
        return SharedRuns()

    def expected(self, job: JobRecord, known: set[StreamKey]) -> set[StreamKey]:
        """Return debug-output for a job whose owner named rules, unless its scalars are there to be judged."""
        if not job.training_rules or StreamKey(job.job, SCALAR_FILES, SCALARS) in known:
            return set()
        return {StreamKey(job.job, ALL_WORKERS, TRAINING)}


TRAINING_HEALTH = TrainingFamily()
