"""A job that was judged from its items: what every part of a report is written from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainguard.engine.family import Families
from trainguard.engine.jobs.job_verdicts import account_of, job_verdicts, unit_verdicts
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.verdicts.findings import RankedFinding, rank_findings
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.streams import ProfilerStreams
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True)
class EvaluatedJob:
    """A job, its streams, and what the rules say of them.

    ``by_node`` holds the nodes' own verdicts by rule and node; ``findings`` are ranked; ``account`` is of all nodes.
    """

    job: JobRecord
    plan: RulePlan
    streams: JobStreams
    verdicts: Sequence[Verdict]
    by_node: Mapping[str, Mapping[str, Verdict]]
    findings: Sequence[RankedFinding]
    account: Account
    families: Families = FAMILIES

    @property
    def profiler(self) -> ProfilerStreams:
        """The streams of the profiler family."""
        return ProfilerStreams.of(self.streams)

    @property
    def final(self) -> bool:
        """Whether the job has ended and all of it was judged."""
        return self.job.closing and self.streams.closed

    @property
    def ended(self) -> bool:
        """Whether the job runs no more."""
        return self.final or self.job.status.is_final

    @property
    def started_at(self) -> float | None:
        """The training start or the first sample, whichever is earlier; epoch seconds."""
        return self.account.started_at

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
        """Whether any profile of the job was read."""
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
        """Nodes of which system metrics were read."""
        return sorted(node for node, stream in self.profiler.system.items() if stream.state.watermark_s is not None)

    @property
    def framework_nodes(self) -> list[str]:
        """Nodes of which framework events were read."""
        return sorted(node for node, stream in self.profiler.framework.items() if stream.state.watermark_s is not None)

    def verdict_of(self, rule: str) -> Verdict | None:
        """Return the job's verdict of a rule."""
        return next((verdict for verdict in self.verdicts if verdict.rule == rule), None)


def evaluate_job(
    job: JobRecord, plan: RulePlan, records: Sequence[NodeRecord], families: Families = FAMILIES
) -> EvaluatedJob:
    """Judge a job from its items; raises StateCodecError when one of them cannot be decoded."""
    streams = families.open(job.job, plan, records)
    verdicts, _ = job_verdicts(job, plan, streams)
    account = account_of(job, plan, streams)
    return EvaluatedJob(
        job=job,
        plan=plan,
        streams=streams,
        verdicts=tuple(verdicts),
        by_node=unit_verdicts(streams),
        findings=tuple(rank_findings(verdicts, account)),
        account=account,
        families=families,
    )
