"""Interruptions from samples of every kind: of jobs without GPUs, and where those of GPUs alone are missing."""

from collections.abc import Sequence

import numpy as np
import pytest

from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.system_stream import SystemState, SystemStream
from trainguard.records import JobRecord
from trainguard.telemetry.system import Samples, read_system_object

START = 1_795_248_000
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))


def minute(at: int, *, gpu: bool) -> Samples:
    """Return a minute of samples every five seconds, with or without those of a GPU."""
    lines = []
    for second in range(0, 60, 5):
        time = START + 60 * at + second
        lines.append(
            f'{{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":50.0,"NodeId":"algo-1","Timestamp":{time}}}'
        )
        if gpu:
            lines.append(
                f'{{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":80.0,"NodeId":"algo-1","Timestamp":{time}}}'
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
def test_given_minutes_with_samples_of_some_kind_when_applied_then_only_those_without_any_are_an_interruption(
    cpu: Sequence[int], gpu: Sequence[int], expected: list[tuple[int, int]]
) -> None:
    stream = SystemStream("algo-1", SystemState(), PLAN)
    for at in cpu:
        stream.apply(minute(at, gpu=at in gpu))
    gaps = stream.store().kept.gaps
    assert [tuple(np.array(gap) - START) for gap in gaps] == [(60 * last + 55, 60 * first) for last, first in expected]
