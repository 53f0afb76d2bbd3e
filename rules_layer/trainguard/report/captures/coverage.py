"""What was collected of a job's kernel traces, in words."""

from trainguard.families.kernels.streams import CaptureStreams
from trainguard.kernels.captures.keys import KERNELS
from trainguard.records import NodeRecord
from trainguard.report.document import NodeCoverage
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.phrasing import shown_time
from trainguard.rules.units import counted

TITLE = "kernel traces"


class CaptureReport:
    """Says how many captures were judged."""

    def title_of(self, stream: str) -> str:
        """Return what people call the stream."""
        del stream
        return TITLE

    def coverage(self, record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
        """Return what was collected of the stream."""
        return NodeCoverage(
            node=record.key.node,
            stream=record.key.stream,
            first_at=None,
            evaluated_through=shown_time(record.watermark_s),
            closed=record.closed,
            share=None,
            counters=dict(record.counters),
            last_fault=judged.streams.stream_of(record.key).state.last_fault,
        )

    def covered(self, judged: EvaluatedJob) -> list[str]:
        """Say how many captures there are, and of how many traces the newest one is."""
        family = judged.streams.families.get(KERNELS)
        stream = family.stream if isinstance(family, CaptureStreams) else None
        if stream is None or stream.state.verdict is None:
            return []
        traces = counted(stream.state.verdict.traces, "trace")
        return [f"{counted(stream.state.captures, 'capture')} of {TITLE}, the newest of {traces}"]

    def missing(self, judged: EvaluatedJob) -> list[str]:
        """Say that traces wait to be judged."""
        waits = [record for record in judged.streams.records.values() if record.key.family == KERNELS]
        if any(record.pending for record in waits):
            return ["The newest kernel traces are not judged yet."]
        return []


REPORT_PARTS = CaptureReport()
