"""When and under which key each object of a job's profile appears in the bucket."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from demo.minute_lines import MinuteWriter
from demo.samples import MICROSECONDS, MINUTE_S, NodeSamples, Phase, ProcessTimeline
from demo.timelines import timeline_files

_LAST_FILES_BEFORE_END_US = 3 * MICROSECONDS
_END_MARKS_APART_S = 0.2


@dataclass(frozen=True, slots=True)
class RecordedObject:
    """One object of a job's profile; ``appears_at`` in epoch seconds."""

    key: str
    body: bytes
    appears_at: float


# When an object appears (epoch seconds), its key, and what makes its content when it is asked for.
Upload = tuple[float, str, Callable[[], bytes]]


def minute_files(nodes: Sequence[NodeSamples], *, root: str, start: int) -> Iterator[Upload]:
    """Yield the system metrics, node by node and minute by minute; ``root`` is the key of ``profiler-output``."""
    for number, samples in enumerate(nodes, start=1):
        node = f"algo-{number}"
        writer = MinuteWriter(node=node, cores=samples.busy.shape[1], gpus=samples.gpu.shape[1])
        for minute, appears_us in zip(samples.minutes, samples.uploads_us.tolist(), strict=True):
            begins = start + minute * MINUTE_S
            key = f"{root}/system/incremental/{_hour(begins)}/{begins:010d}.{node}.json"
            body = partial(writer.body, samples, samples.rows(minute), start=start)
            yield start + appears_us / MICROSECONDS, key, body


def process_files(
    processes: Sequence[ProcessTimeline], phases: Sequence[Phase], *, root: str, start: int, ended_us: int
) -> Iterator[Upload]:
    """Yield the framework events, process by process and file by file."""
    for process in processes:
        source = f"{process.pid}-algo-{process.node + 1}"
        closed_us = ended_us - _LAST_FILES_BEFORE_END_US
        for file in timeline_files(process, phases, start=start, closed_us=closed_us):
            folder = f"{root}/framework/pevents/{_hour(file.last_end_us // MICROSECONDS)}"
            key = f"{folder}/{file.last_end_us}_{source}_pythontimeline.json"
            yield file.closed_us / MICROSECONDS, key, partial(bytes, file.body)


def end_marks(*, root: str, start: int, ended_us: int) -> Iterator[Upload]:
    """Yield the two empty objects that mark the end of the job's streams."""
    ended_at = start + ended_us / MICROSECONDS
    yield ended_at, f"{root}/system/training_job_end.ts", bytes
    yield ended_at + _END_MARKS_APART_S, f"{root}/framework/training_job_end.ts", bytes


def _hour(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%d%H")
