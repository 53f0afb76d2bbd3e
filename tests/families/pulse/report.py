"""The family's half in reports."""

from trainguard.core.records import NodeRecord
from trainguard.report.evaluated_job import EvaluatedJob, NodeCoverage, shown_time


class PulseReport:
    """Says how many workers have a pulse."""

    def title_of(self, stream: str) -> str:
        return "pulse"

    def coverage(self, record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
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
        workers = judged.streams.families["pulse"].streams
        return [f"the pulse of {len(workers)} workers"] if workers else []

    def missing(self, judged: EvaluatedJob) -> list[str]:
        return []


REPORT_PARTS = PulseReport()
