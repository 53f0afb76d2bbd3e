"""The kernel family's streams of a job, and what its rules say of the job from them."""

from dataclasses import dataclass
from functools import cached_property

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.family_streams import FamilyStreams, FamilyVerdicts, JobRules, Look
from trainguard.engine.verdicts.combine import combine
from trainguard.families.kernels.stream import CaptureStream
from trainguard.ledger.shares import StepShares
from trainguard.records import JobRecord


@dataclass(frozen=True)
class CaptureStreams(FamilyStreams):
    """The captures of a job: one stream, or none."""

    @cached_property
    def stream(self) -> CaptureStream | None:
        """The stream; None before the first trace."""
        return next((each for each in self.streams.values() if isinstance(each, CaptureStream)), None)

    @property
    def step_shares(self) -> StepShares | None:
        """What the newest judged capture says of the job's steps; None where no trace has some."""
        verdict = None if self.stream is None else self.stream.state.verdict
        found = None if verdict is None else verdict.shares
        if found is None or not found.steps:
            return None
        return StepShares(
            compute=found.compute + found.copies,
            communication=found.communication,
            peers=found.peers,
            data=found.loader,
            host=found.host,
            other=found.other,
            steps=found.steps,
        )

    def judge(self, job: JobRecord, plan: RulePlan, own: JobRules, look: Look) -> FamilyVerdicts:
        """Return the verdict of each rule; none of a job without traces."""
        del job, plan, own, look
        return FamilyVerdicts([combine(rule, parts) for rule, parts in self.unit_verdicts().items()], [])
