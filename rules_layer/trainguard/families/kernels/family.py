"""The family of rules over kernel profiles."""

from collections.abc import Callable, Mapping, Sequence

from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Stream
from trainguard.families.kernels.session import CaptureSession, state_of
from trainguard.families.kernels.stream import CaptureStream
from trainguard.families.kernels.streams import CaptureStreams
from trainguard.kernels.captures.keys import (
    EXPECTED_KEYS,
    KERNELS,
    TRACE_ENDINGS,
    TRACE_FOLDER,
    TRACE_READS,
    TraceKey,
    is_trace_name,
    match_below,
    match_key,
)
from trainguard.kernels.captures.verdict import MOST_BYTES
from trainguard.layout import ProfileRoot
from trainguard.records import NodeRecord, StreamKey
from trainguard.rules.kernels.capture_rule import CaptureRule
from trainguard.rules.kernels.names import TITLE
from trainguard.rules.kernels.registry import KERNEL_RULES


class KernelFamily(Family):
    """Kernel traces of all ranks in one stream; another function reads them."""

    name = KERNELS
    title = TITLE
    units = "ranks"
    expected_keys = EXPECTED_KEYS
    events = ObjectEvents(
        wildcards=(f"*/{TRACE_FOLDER}/*.sqlite", f"*/{TRACE_FOLDER}/*.sqlite.gz"),
        ends=TRACE_ENDINGS,
    )
    object_cap_bytes = MOST_BYTES
    # Of traces themselves the evaluator reads nothing but their listing.
    reads = ("*/rule-output/TrainGuardReport/kernels/*/verdict.json",)
    report = "trainguard.report.captures.coverage:REPORT_PARTS"

    @property
    def rules(self) -> Sequence[CaptureRule]:
        """The rules over captures."""
        return KERNEL_RULES

    @property
    def written(self) -> Sequence[str]:
        """The keys of traces."""
        return TRACE_READS

    def parse_key(self, key: str) -> TraceKey | None:
        """Read a key; None when it is of another layout."""
        return match_key(key)

    def parse_below(self, key: str, known: Callable[[str], ProfileRoot | None]) -> TraceKey | None:
        """Read the key of a trace in any folder of a job that is known; None for any other."""
        root = known(key) if is_trace_name(key) else None
        return None if root is None else match_below(key, root)

    def open_session(self, record: NodeRecord, source: ObjectSource, plan: RulePlan) -> CaptureSession:
        """Return the session of a job's captures; raises StateCodecError."""
        return CaptureSession(record, source, plan)

    def open_stream(self, record: NodeRecord, plan: RulePlan) -> CaptureStream:
        """Return a stream from its item; raises StateCodecError."""
        return CaptureStream(record.key.node, state_of(record), plan)

    def streams_of(
        self, records: Mapping[StreamKey, NodeRecord], streams: Mapping[StreamKey, Stream]
    ) -> CaptureStreams:
        """Return the family's streams of a job."""
        return CaptureStreams(records, streams)

    def unit_rules(self, stream: str) -> Sequence[str]:
        """Return the names of the rules over the stream."""
        del stream
        return [rule.name for rule in KERNEL_RULES]


KERNEL_PROFILES = KernelFamily()
