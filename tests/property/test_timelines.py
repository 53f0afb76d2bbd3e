"""A digest does not depend on the order of a node's objects, how they are shared out, nor on a trip through bytes."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.errors import TimelinePartError
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.system import MetricSeries, Samples
from trainguard.report.timeline.buckets import pack_rows, unpack_rows
from trainguard.report.timeline.build import build_timelines
from trainguard.report.timeline.digest import NodeDigest, decode_digest
from trainguard.report.timeline.series import TimeAxis

START = 1_795_248_000
AXIS = TimeAxis(start=float(START), bucket_s=5.0, buckets=40)
MODES = ("Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL")
SERIES = [
    *(MetricSeries(kind, f"gpu{number}") for kind in ("gpu", "gpu_memory") for number in (0, 2, 10, 64, 70)),
    *(MetricSeries(kind, f"cpu{number}") for kind in ("cpu", "io_wait") for number in range(3)),
    MetricSeries("host_memory", "memory"),
    *(MetricSeries("network", name) for name in ("eth0", "eth1")),
]
LARGEST = {"network": 1e15}

Object = Samples | FrameworkEvents


@st.composite
def system_objects(draw: st.DrawFn) -> Samples:
    table = tuple(draw(st.lists(st.sampled_from(SERIES), min_size=1, max_size=6, unique=True)))
    rows = draw(
        st.lists(
            st.integers(0, len(table) - 1).flatmap(
                lambda row: st.tuples(
                    st.floats(-10, 210), st.floats(0, LARGEST.get(table[row].kind, 100.0)), st.just(row)
                )
            ),
            max_size=30,
        )
    )
    times, values, series = zip(*rows, strict=True) if rows else ((), (), ())
    return Samples(
        START + np.array(times, dtype=np.float64),
        np.array(values, dtype=np.float64),
        np.array(series, dtype=np.int64),
        table,
    )


@st.composite
def framework_objects(draw: st.DrawFn) -> FrameworkEvents:
    """Steps of one process, of more processes than a node has room for, some of them equally long."""
    process = f"algo-1-{draw(st.integers(0, 99)):02}"
    batches = []
    for mode in draw(st.lists(st.sampled_from(MODES), max_size=2, unique=True)):
        count = draw(st.integers(1, 5))
        numbers = [draw(st.integers(-10_000_000, 210_000_000)) for _ in range(count)]
        lengths = [draw(st.sampled_from([0, 5, 400_000, 10**12]) | st.integers(0, 9_000_000)) for _ in range(count)]
        starts = START * 1_000_000 + np.array(numbers, dtype=np.int64)
        names = tuple(str(number) for number in range(count))
        batches.append(StepBatch(process, mode, starts, np.array(lengths, dtype=np.int64), names))
    return FrameworkEvents(tuple(batches))


def many_processes(count: int) -> list[FrameworkEvents]:
    """One step each of many processes, so that some have no place."""
    one = np.array([START * 1_000_000], dtype=np.int64)
    return [
        FrameworkEvents((StepBatch(f"algo-1-{rank:02}", MODES[0], one + rank, one * 0 + rank, ("0",)),))
        for rank in range(count)
    ]


objects = st.lists(system_objects() | framework_objects(), max_size=12)


def folded(parts: Sequence[Object]) -> NodeDigest:
    digest = NodeDigest("algo-1", AXIS)
    for each in parts:
        if isinstance(each, Samples):
            digest.add_samples(each)
        else:
            digest.add_events(each)
    return digest


@given(objects, st.integers(0, 70), st.integers(1, 4), st.randoms(use_true_random=False), st.booleans())
def test_randomly_shared_objects_merge_to_the_digest_of_all(
    listed: list[Object], processes: int, parts: int, random: Any, travels: bool
) -> None:
    every = [*listed, *many_processes(processes)]
    whole = folded(every)
    random.shuffle(every)
    shares: list[list[Object]] = [[] for _ in range(parts)]
    for each in every:
        random.choice(shares).append(each)
    digests = [folded(share) for share in shares]
    if travels:
        digests = [decode_digest(digest.encode()) for digest in digests]
    while len(digests) > 1:
        other = digests.pop(random.randrange(len(digests)))
        random.choice(digests).merge(other)
    assert digests[0].encode() == whole.encode()


@given(system_objects(), st.data())
def test_object_cut_in_two_has_the_same_digest(samples: Samples, data: Any) -> None:
    first = np.array(data.draw(st.lists(st.booleans(), min_size=samples.times.size, max_size=samples.times.size)), bool)
    parts = [
        Samples(samples.times[rows], samples.values[rows], samples.series[rows], samples.table)
        for rows in (first, ~first)
    ]
    assert folded(parts).encode() == folded([samples]).encode()


@given(objects)
def test_digest_round_trips_and_continues_the_same(listed: list[Object]) -> None:
    digest = folded(listed)
    data = digest.encode()
    decoded = decode_digest(data)
    assert decoded.encode() == data
    of_decoded, of_digest = (
        build_timelines([each], episodes=[], started_at=None, ended_at=None) for each in (decoded, digest)
    )
    assert of_decoded == of_digest
    for each in listed[:3]:
        for one in (digest, decoded):
            if isinstance(each, Samples):
                one.add_samples(each)
            else:
                one.add_events(each)
    assert decoded.encode() == digest.encode()


@given(objects)
def test_shown_means_lie_between_extremes_and_keep_all_samples(
    listed: list[Object],
) -> None:
    digest = folded(listed)
    shown = build_timelines([digest], episodes=[], started_at=None, ended_at=None)
    for gpu in shown.nodes[0].gpus:
        band = gpu.utilization
        assert band.low is not None
        assert band.high is not None
        assert len(band.mean) == shown.axis.buckets
        for low, mean, high in zip(band.low, band.mean, band.high, strict=True):
            if low is None or mean is None or high is None:
                assert low is mean is high is None
            else:
                assert 0.0 <= low <= mean <= high <= 100.0
    kept = sum(int(table.counts.sum()) + table.refused for table in digest.tables.values())
    samples = sum(each.times.size for each in listed if isinstance(each, Samples))
    steps = sum(batch.starts_us.size for each in listed if isinstance(each, FrameworkEvents) for batch in each.steps)
    assert kept + digest.outside == samples + steps


@given(
    st.integers(0, 5),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 29), st.integers(0, 2**62)), max_size=20),
)
def test_given_a_matrix_when_packed_then_unpacking_gives_it_back(rows: int, columns: int, cells: list[Any]) -> None:
    matrix = np.zeros((rows, columns), dtype=np.int64)
    for row, column, value in cells:
        if row < rows and column < columns:
            matrix[row, column] = value
    assert np.array_equal(unpack_rows(pack_rows(matrix), (rows, columns)), matrix)


@given(objects, st.data())
def test_changed_byte_gives_a_digest_or_a_named_error(listed: list[Object], data: Any) -> None:
    encoded = folded(listed).encode()
    text = bytearray(zlib.decompress(encoded[5:]))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        changed = decode_digest(encoded[:5] + zlib.compress(bytes(text)))
    except TimelinePartError:
        return
    assert decode_digest(changed.encode()).encode() == changed.encode()
