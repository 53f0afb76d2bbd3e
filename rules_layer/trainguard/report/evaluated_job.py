"""A job that was judged from its items: what every part of a report is written from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import msgspec

from trainguard.core.records import JobRecord, StreamRecord
from trainguard.core.timestamps import iso_time
from trainguard.engine.diagnosis.case import DiagnosedJob, Diagnosis, case_of, diagnose, unit_verdicts
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.engine.verdicts.verdict import RuleOutcome


class NodeCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected of one node's stream, and what was missing or not used, by the name of its fault.

    first_at: Its first sample; of framework events the first step.
    share: Share, 0 to 1, of the minutes from the first to the last that could be used; None of framework events, which
        have no minute grid.
    counters: How much was read, was missing (``gaps``, in minutes) or was not used, by the name of its fault.
    """

    node: str
    stream: str
    first_at: str | None
    evaluated_through: str | None
    closed: bool
    share: float | None
    counters: dict[str, int]
    last_fault: str | None


@dataclass(frozen=True)
class EvaluatedJob(DiagnosedJob):
    """A job, its streams, its diagnosis, and what the rules say; ``by_node`` is by rule and node."""

    by_node: Mapping[str, Mapping[str, RuleOutcome]] = field(default_factory=dict)
    families: Families = FAMILIES

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self)

    @property
    def profiler(self) -> ProfilerStreams:
        return ProfilerStreams.of(self.streams)

    @property
    def started_at(self) -> float | None:
        """The training start or the first sample, whichever is earlier; epoch seconds."""
        return self.paid_time.started_at

    @property
    def ended_at(self) -> float | None:
        """When the job ended as SageMaker says, else the last thing that it wrote; None while it runs."""
        if self.job.ended_at is not None:
            return self.job.ended_at
        return self.streams.watermark_s if self.ended else None

    @property
    def duration_s(self) -> float | None:
        """Seconds from the start to the end, or to what was judged last."""
        until = self.streams.watermark_s if self.ended_at is None else self.ended_at
        return None if until is None or self.started_at is None else max(until - self.started_at, 0.0)

    @property
    def profiled(self) -> bool:
        return bool(self.profiler.nodes)

    @property
    def gpus(self) -> int:
        """How many GPUs wrote metrics, all nodes together."""
        return sum(len(stream.state.gpu_names) for stream in self.profiler.system.values())

    @property
    def mig_instances(self) -> int:
        """How many instances of partitioned GPUs wrote metrics, all nodes together."""
        return sum(len(stream.state.mig_names) for stream in self.profiler.system.values())

    @property
    def interval_s(self) -> float:
        """The longest sampling interval of a node, seconds."""
        known = [each.interval_s for each in self.profiler.system.values() if each.state.interval_s is not None]
        return max(known, default=self.plan.interval_s)

    @property
    def system_nodes(self) -> list[str]:
        return sorted(node for node, stream in self.profiler.system.items() if stream.state.watermark_s is not None)

    @property
    def framework_nodes(self) -> list[str]:
        return sorted(node for node, stream in self.profiler.framework.items() if stream.state.watermark_s is not None)


def evaluate_job(
    job: JobRecord, plan: RulePlan, records: Sequence[StreamRecord], families: Families = FAMILIES
) -> EvaluatedJob:
    """Judge a job from its items; raises StateCodecError when one of them cannot be decoded."""
    streams = families.open(job.job, plan, records)
    case, _ = case_of(job, plan, streams)
    known = {each.name: getattr(case, each.name) for each in fields(case)}
    return EvaluatedJob(**known, by_node=unit_verdicts(streams), families=families)


def shown_time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else iso_time(epoch_s)
