"""What was collected of a job's tensors and scalars, in words."""

from collections.abc import Mapping

from trainguard.families.training.keys import SCALARS, TRAINING
from trainguard.families.training.streams import AnyStepStream, TrainingStreams
from trainguard.records import NodeRecord, StreamKey
from trainguard.report.document import NodeCoverage
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.phrasing import shown_time
from trainguard.rules.units import counted

TITLES = {TRAINING: "tensors of debug-output", SCALARS: "files of scalars"}


class TrainingReport:
    """Says how many steps were judged."""

    def title_of(self, stream: str) -> str:
        """Return what people call a stream."""
        return TITLES.get(stream, stream)

    def coverage(self, record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
        """Return what was collected of one stream."""
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
        """Say how many steps each stream has."""
        return [
            f"{counted(stream.state.steps, 'step')} of the {self.title_of(key.stream)}"
            for key, stream in _streams(judged).items()
            if stream.state.steps
        ]

    def missing(self, judged: EvaluatedJob) -> list[str]:
        """Say which stream ended without data, and which files are of older runs."""
        streams = _streams(judged)
        without = [
            stream.state.no_data
            for key, stream in streams.items()
            if judged.streams.records[key].closed and stream.state.no_data
        ]
        return [*without, *(note for stream in streams.values() for note in stream.state.notes)]


def _streams(judged: EvaluatedJob) -> Mapping[StreamKey, AnyStepStream]:
    family = judged.streams.families.get(TRAINING)
    return family.of_steps if isinstance(family, TrainingStreams) else {}


REPORT_PARTS = TrainingReport()
