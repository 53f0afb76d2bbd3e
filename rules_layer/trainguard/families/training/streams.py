"""The training family's streams of a job, and what its rules say of the job from them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.family_streams import FamilyStreams, FamilyVerdicts, JobRules, Look, UnitVerdicts
from trainguard.engine.streams.rule_runner import RuleRunner
from trainguard.engine.verdicts.combine import combine
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.families.training.keys import COMPARES_RUNS, SCALAR_FILES, STALLED
from trainguard.families.training.stall import judge_stall
from trainguard.families.training.stream import StepStream, step_rules
from trainguard.records import JOB_NODE, JobRecord, Status, StreamKey
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.stalled_training import StalledTrainingRule, StalledTrainingRuleParameters

AnyStepStream = StepStream[Any]

WAITS = "No step was saved: neither debug-output nor a file of scalars came."


@dataclass(frozen=True)
class TrainingStreams(FamilyStreams):
    """Debug-output and files of scalars of a job."""

    @cached_property
    def of_steps(self) -> Mapping[StreamKey, AnyStepStream]:
        """The streams by key."""
        return {key: stream for key, stream in self.streams.items() if isinstance(stream, StepStream)}

    def doubted(self, now: float) -> frozenset[StreamKey]:
        """Return the streams that were silent for as long as StalledTrainingRule allows: S3 is to be asked."""
        return frozenset(key for key, stream in self.of_steps.items() if stream.is_overdue(now))

    def heard_at(self, key: StreamKey) -> float | None:
        """Return when S3 got a stream's newest object, epoch seconds: a file may grow by what holds no step."""
        stream = self.of_steps.get(key)
        return None if stream is None else stream.state.progress_s

    def judge(self, job: JobRecord, plan: RulePlan, own: JobRules, look: Look) -> FamilyVerdicts:
        """Return the verdict of each rule that runs on the job; moves the episodes in ``own``."""
        by_unit = self._with_data(self.unit_verdicts())
        fires: list[Fire] = []
        stalled = next((rule for rule in step_rules(plan) if isinstance(rule, StalledTrainingRule)), None)
        if stalled is not None and self.of_steps and not plan.by_event_time:
            verdict, fires = self._stall(stalled, job, plan, own, look)
            by_unit[STALLED] = {JOB_NODE: verdict}
        verdicts = [combine(rule.name, by_unit[rule.name]) for rule in step_rules(plan) if rule.name in by_unit]
        if not self.of_steps and job.training_rules:
            waiting = RuleResult(Status.WAITING_FOR_DATA, WAITS)
            verdicts = [Verdict(rule.name, waiting, FiringHistory()) for rule in step_rules(plan)]
        return FamilyVerdicts(verdicts, fires)

    def _with_data(self, by_unit: UnitVerdicts) -> UnitVerdicts:
        """Leave out the unit that ended without data where another one has some.

        Scalars of other runs are not read: runs are compared by their tensors where there are any.
        """
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
        self, rule: StalledTrainingRule, job: JobRecord, plan: RulePlan, own: JobRules, look: Look
    ) -> tuple[Verdict, list[Fire]]:
        """Judge by the clock of the look; one without a clock stands where the last one with a clock stood."""
        runner = RuleRunner([rule], own.stored_rules, plan)
        stood = own.stored_rules[rule.name].watermark_s
        at = max(stood, (self.watermark_s or 0.0) if look.now is None else look.now)
        states = [stream.state for stream in self.of_steps.values()]

        def judge(of: StalledTrainingRule, _: object, parameters: StalledTrainingRuleParameters) -> RuleResult:
            return judge_stall(of, job, states, parameters)

        fires = runner.run(None, judge, watermark_s=at, interval_s=plan.interval_s, ledger=look.ledger)
        (verdict,) = runner.verdicts(judge, interval_s=plan.interval_s)
        return replace(verdict, watermark_s=at), fires
