"""The kernel family: its keys, its streams of a job, and its rules' verdicts on the job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, NodeRecord, StreamKey
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.kernels.session import CaptureSession, CaptureState, CaptureStream
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import FamilyStreams, FamilyVerdicts, JobState, Look
from trainguard.engine.streams.session import Stream, state_of
from trainguard.engine.verdicts.verdict import combine
from trainguard.kernels.captures import keys
from trainguard.kernels.captures.verdict import MOST_BYTES
from trainguard.kernels.rules.registry import KERNEL_RULES
from trainguard.kernels.rules.rule import KernelRule
from trainguard.ledger.bucket import StepShares
from trainguard.rules.family_rules import KERNELS as RULES


@dataclass(frozen=True)
class CaptureStreams(FamilyStreams):
    @cached_property
    def stream(self) -> CaptureStream | None:
        return next((each for each in self.streams.values() if isinstance(each, CaptureStream)), None)

    @property
    def step_shares(self) -> StepShares | None:
        """What the newest judged capture says about the job's steps; None where no trace has some."""
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

    def judge(self, job: JobRecord, plan: RulePlan, own: JobState, look: Look) -> FamilyVerdicts:
        del job, plan, own, look
        return [combine(rule, parts) for rule, parts in self.unit_verdicts().items()], []


class KernelFamily(Family):
    """Kernel traces of all ranks in one stream; another function reads them."""

    name = keys.KERNELS
    title = RULES.title
    units = "ranks"
    expected_keys = keys.EXPECTED_KEYS
    events = ObjectEvents(
        wildcards=(f"*/{keys.TRACE_FOLDER}/*.sqlite", f"*/{keys.TRACE_FOLDER}/*.sqlite.gz"), ends=keys.TRACE_ENDINGS
    )
    object_cap_bytes = MOST_BYTES
    # The evaluator lists traces, and reads none.
    reads = ("*/rule-output/TrainGuardReport/kernels/*/verdict.json",)
    report = "trainguard.report.job.coverage:CAPTURES"

    @property
    def rules(self) -> Sequence[KernelRule]:
        return KERNEL_RULES

    @property
    def written(self) -> Sequence[str]:
        return keys.TRACE_READS

    def parse_key(self, key: str) -> keys.TraceKey | None:
        return keys.match_key(key)

    def parse_below(self, key: str, known: Callable[[str], ProfileRoot | None]) -> keys.TraceKey | None:
        root = known(key) if keys.is_trace_name(key) else None
        return None if root is None else keys.match_below(key, root)

    def open_session(self, record: NodeRecord, source: ObjectSource, plan: RulePlan) -> CaptureSession:
        return CaptureSession(record, source, plan)

    def open_stream(self, record: NodeRecord, plan: RulePlan) -> CaptureStream:
        return CaptureStream(record.key.node, state_of(record, CaptureState), plan)

    def streams_of(
        self, records: Mapping[StreamKey, NodeRecord], streams: Mapping[StreamKey, Stream]
    ) -> CaptureStreams:
        return CaptureStreams(records, streams)

    def unit_rules(self, stream: str) -> Sequence[str]:
        del stream
        return [rule.name for rule in KERNEL_RULES]


KERNEL_PROFILES = KernelFamily()
