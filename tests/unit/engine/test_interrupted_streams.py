"""Interruptions from samples of every kind: of jobs without GPUs, and where those of GPUs alone are missing."""

from collections.abc import Sequence

import numpy as np
import pytest

from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.formats.profile.system import Samples, read_system_object

START = 1_795_248_000
JOB = JobRecord("job", "arn", "bucket", "")
PLAN = FAMILIES.plan(JOB)


def minute(at: int, *, gpu: bool, percent: float = 80.0) -> Samples:
    """Return a minute of samples every five seconds, with or without those of a GPU."""
    lines = []
    for second in range(0, 60, 5):
        time = START + 60 * at + second
        lines.append(
            f'{{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":50.0,"NodeId":"algo-1","Timestamp":{time}}}'
        )
        if gpu:
            lines.append(
                f'{{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":{percent},"NodeId":"algo-1","Timestamp":{time}}}'
            )
    return read_system_object("key", "\n".join(lines).encode(), node="algo-1", minute=START + 60 * at)


@pytest.mark.parametrize(
    ("cpu", "gpu", "expected"),
    [
        ([0, 1, 10, 11], [0, 1, 10, 11], [(1, 10)]),
        ([0, 1, 10, 11], [], [(1, 10)]),
        (range(12), [0, 1, 10, 11], []),
        (range(12), [], []),
        ([0, 1, 3, 4], [0, 1, 3, 4], []),
        ([0, 1, 10, 11], [1, 11], [(1, 10)]),
    ],
)
def test_only_minutes_without_any_sample_are_an_interruption(
    cpu: Sequence[int], gpu: Sequence[int], expected: list[tuple[int, int]]
) -> None:
    stream = SystemStream("algo-1", SystemState(), PLAN)
    for at in cpu:
        stream.apply(minute(at, gpu=at in gpu))
    gaps = stream.store().kept.gaps
    assert [tuple(np.array(gap) - START) for gap in gaps] == [(60 * last + 55, 60 * first) for last, first in expected]


def streams_of(busy: Sequence[float | None]) -> ProfilerStreams:
    """Return the streams of a job of one node whose GPU is so busy, percent, minute by minute; None has no samples."""
    stream = SystemStream("algo-1", SystemState(), PLAN)
    for at, percent in enumerate(busy):
        if percent is not None:
            stream.apply(minute(at, gpu=True, percent=percent))
    key = StreamKey(JOB.job, "algo-1", "system")
    record = StreamRecord(key, 1, watermark_s=stream.state.watermark_s, closed=True)
    return ProfilerStreams({key: record}, {key: stream})


@pytest.mark.parametrize(
    ("after", "unpaid_min", "gaps"),
    [
        pytest.param([0.0, 0.0, 80.0], 6, 0, id="restarted"),
        pytest.param([80.0, 80.0, 80.0], 0, 1, id="samples lost"),
    ],
)
def test_a_silence_is_a_restart_where_gpus_idle_after_it(after: list[float], unpaid_min: int, gaps: int) -> None:
    """What is not paid for is no gap in what was seen; what is paid for is one."""
    silence: list[float | None] = [None] * 6
    streams = streams_of([80.0] * 20 + silence + after + [80.0] * 20)

    assert streams.unpaid_s == pytest.approx(60.0 * unpaid_min, abs=10.0)
    assert len(streams.gaps(JOB)) == gaps


def test_a_restart_hides_no_other_gap() -> None:
    silence: list[float | None] = [None] * 6
    streams = streams_of([80.0] * 20 + silence + [0.0, 0.0] + [80.0] * 20 + silence + [80.0] * 20)
    (gap,) = streams.gaps(JOB)

    assert gap.seconds == pytest.approx(360.0, abs=10.0)
    assert [round((end - start) / 60.0) for start, end in gap.spans] == [6]
