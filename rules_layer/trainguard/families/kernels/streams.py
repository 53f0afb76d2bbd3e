"""The kernel family's streams of a job, and what its rules say of the job from them."""

from dataclasses import dataclass
from functools import cached_property

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.family_streams import FamilyStreams, FamilyVerdicts, JobRules, Look
from trainguard.engine.verdicts.combine import combine
from trainguard.families.kernels.stream import CaptureStream
from trainguard.records import JobRecord


@dataclass(frozen=True)
class CaptureStreams(FamilyStreams):
    """The captures of a job: one stream, or none."""

    @cached_property
    def stream(self) -> CaptureStream | None:
        """The stream; None before the first trace."""
        return next((each for each in self.streams.values() if isinstance(each, CaptureStream)), None)

    def judge(self, job: JobRecord, plan: RulePlan, own: JobRules, look: Look) -> FamilyVerdicts:
        """Return the verdict of each rule; none of a job without traces."""
        del job, plan, own, look
        return FamilyVerdicts([combine(rule, parts) for rule, parts in self.unit_verdicts().items()], [])
