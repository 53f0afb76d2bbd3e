"""What a node's rules remember does not grow with the job: whole streams of samples, minute after minute."""

from collections.abc import Iterator

import numpy as np
import pytest

from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.state.codec import encode_state

START = 1_795_248_000.0
PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))
DIFFERENT_MINUTES = 11
ITEM_LIMIT_BYTES = 9 * 1_024


def series_of(gpus: int, cores: int) -> tuple[MetricSeries, ...]:
    return (
        *(MetricSeries("cpu", f"cpu{core}") for core in range(cores)),
        *(MetricSeries("gpu", f"gpu{gpu}") for gpu in range(gpus)),
        *(MetricSeries("gpu_memory", f"gpu{gpu}") for gpu in range(gpus)),
        MetricSeries("host_memory", "MemoryUsedPercent"),
        *(MetricSeries("io_wait", f"cpu{core}") for core in range(cores)),
        MetricSeries("network", "ReceiveBytesPerSecond"),
        MetricSeries("network", "TransmitBytesPerSecond"),
    )


def minute_of_values(number: int, *, snapshots: int, gpus: int, cores: int) -> FloatArray:
    """Return a minute of a healthy node, float64[T, S]: busy GPUs, and every fifth minute a checkpoint of 20 s."""
    rng = np.random.default_rng(number)
    gpu = np.clip(np.rint(rng.normal(93.0, 3.0, (snapshots, gpus))), 60.0, 100.0)
    if number % 5 == 0:
        gpu[: snapshots // 3] = 0.0
    return np.column_stack(
        [
            np.clip(rng.normal(35.0, 8.0, (snapshots, cores)), 0.0, 88.0).round(2),
            gpu,
            np.rint(gpu * 0.4),
            np.full(snapshots, 31.2),
            np.clip(rng.exponential(0.5, (snapshots, cores)), 0.0, 100.0).round(2),
            np.rint(rng.normal(4e8, 4e7, (snapshots, 2))),
        ]
    )


def item_sizes(*, gpus: int, cores: int, interval_s: float, minutes: int, every: int) -> Iterator[int]:
    """Apply a job to one stream; yields the size of its encoded state every so many minutes."""
    table, snapshots = series_of(gpus, cores), round(60.0 / interval_s)
    values = [
        minute_of_values(number, snapshots=snapshots, gpus=gpus, cores=cores) for number in range(DIFFERENT_MINUTES)
    ]
    series = np.tile(np.arange(len(table), dtype=np.int64), snapshots)
    since = np.repeat(np.arange(snapshots, dtype=np.float64) * interval_s, len(table))
    stream = SystemStream("algo-1", SystemState(), PLAN)
    for minute in range(1, minutes + 1):
        times = START + 60.0 * minute + since
        stream.apply(Samples(times, values[minute % DIFFERENT_MINUTES].ravel(), series, table))
        if minute % every == 0:
            yield len(encode_state(stream.store()))
    assert not stream.raised
    assert not PLAN.faults


@pytest.mark.parametrize(("gpus", "interval_s"), [(16, 0.1), (8, 0.5)])
def test_item_of_full_windows_stays_as_large(gpus: int, interval_s: float) -> None:
    period = 5 * DIFFERENT_MINUTES

    full, *later = item_sizes(gpus=gpus, cores=4, interval_s=interval_s, minutes=4 * period, every=period)

    assert max(later) <= 1.03 * full


def test_item_of_8_healthy_gpus_stays_below_9_kib() -> None:
    sizes = item_sizes(gpus=8, cores=8, interval_s=0.5, minutes=240, every=20)

    assert max(sizes) <= ITEM_LIMIT_BYTES
