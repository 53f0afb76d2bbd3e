"""A small object that was made to fill the evaluator: what reading and applying it takes stays bounded."""

import gzip
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.formats.profile.assemble import assemble
from trainguard.formats.profile.columns import read_framework_object
from trainguard.formats.profile.system import MetricSeries, Samples, read_system_object
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import axis_for

MINUTE = 1_795_248_000
MEGABYTE = 1_000_000
# An evaluator has 1 GB, and reads one object at a time.
MOST = 150 * MEGABYTE


def peak(work: Callable[[], object]) -> int:
    """Return the most memory that was in use at once, in bytes, whether the work refuses or not."""
    tracemalloc.start()
    try:
        work()
    except TelemetryFormatError:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


def sample(name: str, second: float, dimension: str = "CPUUtilization") -> bytes:
    return b'{"Name":"%s","Dimension":"%s","Value":1,"NodeId":"algo-1","Timestamp":%.4f}\n' % (
        name.encode(),
        dimension.encode(),
        MINUTE + second,
    )


def many_samples(count: int, series: int, dimensions: int = 1) -> bytes:
    """Return samples 0.4 ms apart, each of the next series and dimension in turn."""
    named = [f"CPUUtilization{number or ''}" for number in range(dimensions)]
    return b"".join(
        sample(f"cpu{number % series}", number * 0.0004, named[number % dimensions]) for number in range(count)
    )


def apply(body: bytes, interval_ms: int = 1) -> SystemStream:
    """Read an object and apply it as the evaluator does, for a job that says how often it samples."""
    job = JobRecord("job", "unknown:job", "profiles", "", profiling_interval_ms=interval_ms)
    stream = SystemStream("algo-1", SystemState(), FAMILIES.plan(job))
    stream.apply(read_system_object("the/key", body, node="algo-1", minute=MINUTE))
    return stream


ATTACKS = {
    "as large a grid as is taken": lambda: many_samples(400_000, 250),
    "no interval but the claimed one": lambda: sample("cpu0", 1.0) * 100_000 + many_samples(200_000, 400),
    "the same in as large a grid as is taken": lambda: sample("cpu0", 1.0) * 100_000 + many_samples(200_000, 250),
    "as many names": lambda: many_samples(200_000, 200_000),
    "as many dimensions": lambda: many_samples(200_000, 1, 200_000),
}


# What these try is tried by others, too.
ALSO_TRIED = ("the same in as large a grid as is taken", "as many names")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.thorough] if name in ALSO_TRIED else [])
        for name, make in ATTACKS.items()
    ],
)
def test_endless_samples_in_a_small_object_stay_bounded(
    make: Callable[[], bytes],
) -> None:
    packed = gzip.compress(make())
    assert len(packed) < 4 * MEGABYTE
    assert peak(lambda: apply(packed)) < MOST


def test_sparse_samples_of_many_series_are_refused_with_size() -> None:
    body = b"".join(sample(f"cpu{number}", number * 0.025) for number in range(1_024))
    body += b"".join(sample(f"cpu{number}", number * 0.025, "I/OWaitPercentage") for number in range(1_024, 2_048))
    with pytest.raises(
        TelemetryFormatError, match=r"the/key.*2,048 series at 1,\d+ times, expected .* 2,000,000 values"
    ):
        read_system_object("the/key", body, node="algo-1", minute=MINUTE)


def test_densest_minute_of_the_largest_node_is_used_in_full() -> None:
    times = [tick * 0.1 + jitter for tick in range(600) for jitter in (0.0, 0.012)]
    body = b"".join(
        sample(f"cpu{core}", times[2 * tick + core % 2], dimension)
        for tick in range(0, 600, 2)
        for core in range(192)
        for dimension in ("CPUUtilization", "I/OWaitPercentage")
    )
    samples = read_system_object("the/key", body, node="algo-1", minute=MINUTE)
    assert (samples.times.size, len(samples.table), +samples.tally) == (115_200, 384, {"lines": 115_200})


def test_grid_is_no_finer_than_half_the_shortest_interval() -> None:
    times = np.linspace(0.0, 180.0, 100_000)
    samples = Samples(times, np.ones(times.size), np.zeros(times.size, np.int64), (MetricSeries("gpu", "gpu0"),))
    snapshots, _ = assemble(samples, None, gpu_names=("gpu0",), interval_s=1e-6)
    assert 7_000 < len(snapshots) <= 7_200


@pytest.mark.parametrize(("interval_ms", "interval_s"), [(-5, 0.1), (0, 0.1), (1, 0.1), (100, 0.1), (60_000, 60.0)])
def test_planned_interval_is_at_least_the_sagemaker_minimum(interval_ms: int, interval_s: float) -> None:
    job = JobRecord("job", "unknown:job", "profiles", "", profiling_interval_ms=interval_ms)
    assert FAMILIES.plan(job).interval_s == interval_s


def test_endless_names_keep_those_with_a_place_right() -> None:
    refused = b"".join(sample(f"cpu{number}", 1.0) for number in range(10_000))
    known = sample("cpu7", 2.0) + sample("MemoryUsedPercent", 2.0) + sample("MemoryUsedPercent", 3.0)
    samples = read_system_object("the/key", refused + known, node="algo-1", minute=MINUTE)
    assert samples.tally == {"lines": 10_003, "too_many_series": 10_000 - 1_024}
    assert [series.kind for series in samples.table].count("host_memory") == 1
    assert np.count_nonzero(samples.times == MINUTE + 2.0) == 2


def test_object_in_several_pieces_reads_as_one() -> None:
    lines = [sample(f"cpu{number % 64}", number / 5_000) for number in range(100_000)]
    lines[50_000] = b"no json\n"
    samples = read_system_object("the/key", b"".join(lines), node="algo-1", minute=MINUTE)
    assert samples.tally == {"lines": 99_999, "bad_lines": 1}
    expected = [number / 5_000 for number in range(100_000) if number != 50_000]
    np.testing.assert_allclose(samples.times - MINUTE, expected, atol=1e-3)


TRACES = {
    "lists where a number belongs": b'[{"ph":"X","name":"a","tid":[' + b"[]," * 8_000_000 + b"1]}]",
    "many lists": b"[" + b'{"ph":"X","name":"a","args":{"pid":[%s1]}},' % (b"[]," * 1_500) * 2_000 + b"{}]",
    "steps of as many names": b"["
    + b",".join(b'{"ph":"X","name":"Step:ModeKeys%d","ts":%d,"dur":1}' % (number, number) for number in range(250_000))
    + b"]",
}


@pytest.mark.parametrize("text", TRACES.values(), ids=TRACES.keys())
def test_trace_made_to_fill_memory_stays_bounded(text: bytes) -> None:
    packed = gzip.compress(text, 1)
    assert len(packed) < 4 * MEGABYTE
    assert peak(lambda: read_framework_object("the/key", packed, process="algo-1-7", end_us=MINUTE * 1_000_000)) < MOST


def test_samples_made_to_fill_memory_stay_bounded_in_a_digest() -> None:
    packed = gzip.compress(many_samples(200_000, 250))
    axis = axis_for(MINUTE - 86_400.0, MINUTE + 86_400.0, 64)

    def digest() -> None:
        NodeDigest("algo-1", axis).add_samples(read_system_object("the/key", packed, node="algo-1", minute=MINUTE))

    assert peak(digest) < MOST
