"""A digest: what becomes of samples, what is left out and counted, and which bytes it refuses."""

import numpy as np
import pytest

from tests.unit.timeline.samples import EVAL, START, TRAIN, axis, digest, samples, steps
from trainguard.core.errors import TimelinePartError
from trainguard.report.timeline.digest import (
    KEPT_SLOWEST,
    MAX_STEP_SERIES,
    MICROSECONDS,
    MOST_BUCKETS,
    NodeDigest,
    decode_digest,
)
from trainguard.report.timeline.series import TimeAxis
from trainguard.state.histogram import MAX_DURATION_US


def test_gpu_buckets_have_count_sum_and_extremes_of_samples() -> None:
    table = digest(samples([(1.0, "gpu", "gpu0", 20.0), (9.9, "gpu", "gpu0", 81.25), (10.0, "gpu", "gpu0", 5.0)]))
    gpu = table.tables["gpu"]
    assert gpu.keys == [(0, "gpu0", "")]
    assert gpu.counts[0, :3].tolist() == [2, 1, 0]
    assert gpu.totals[0, :3].tolist() == [10_125, 500, 0]
    assert (gpu.lows[0, :2].tolist(), gpu.highs[0, :2].tolist()) == ([2_000, 500], [8_125, 500])


def test_all_cores_are_one_series() -> None:
    both = digest(samples([(1.0, "cpu", "cpu0", 10.0), (1.0, "cpu", "cpu1", 90.0), (1.0, "io_wait", "cpu0", 3.0)]))
    cpu, io_wait = both.tables["cpu"], both.tables["io_wait"]
    assert (cpu.totals[0, 0], cpu.counts[0, 0], cpu.highs[0, 0]) == (10_000, 2, 9_000)
    assert io_wait.totals[0, 0] == 300


def test_gpus_are_ordered_by_their_numbers() -> None:
    gpus = digest(samples((1.0, "gpu", f"gpu{number}", 1.0) for number in (10, 2, 0)))
    assert [name for _, name, _ in gpus.tables["gpu"].keys] == ["gpu0", "gpu2", "gpu10"]


def test_samples_beyond_the_axis_are_counted_and_not_used() -> None:
    outside = digest(samples((at, "gpu", "gpu0", 50.0) for at in (-0.001, 0.0, 99.999, 100.0, 1e6)))
    assert outside.outside == 3
    assert outside.tables["gpu"].counts.sum() == 2


def test_device_with_samples_only_beyond_the_axis_has_no_series() -> None:
    outside = digest(samples([(-1.0, "gpu", "gpu0", 50.0), (1.0, "gpu", "gpu1", 50.0)]))
    assert outside.tables["gpu"].keys == [(1, "gpu1", "")]


def test_object_without_samples_changes_nothing() -> None:
    assert digest(samples([])).encode() == digest().encode()


def test_gpus_beyond_the_limit_of_a_node_are_counted() -> None:
    rows = [(1.0, "gpu", f"gpu{number}", 50.0) for number in range(70)]
    late = digest(*(samples([row]) for row in reversed(rows)))
    assert [name for _, name, _ in late.tables["gpu"].keys] == [f"gpu{number}" for number in range(64)]
    assert late.tables["gpu"].refused == 6
    assert late.encode() == digest(samples(rows)).encode()


def test_impossible_rate_counts_as_a_terabyte_a_second() -> None:
    fast = digest(samples([(1.0, "network", "eth0", 1e15), (1.0, "network", "eth0", 12.4)]))
    assert fast.tables["network"].totals[0, 0] == 10**12 + 12


def test_steps_lie_in_the_bucket_of_their_start() -> None:
    table = digest(steps([9.9, 10.0], [30.0, 0.5])).tables["steps"]
    assert table.counts[0, :3].tolist() == [1, 1, 0]
    assert table.totals[0, :2].tolist() == [30 * MICROSECONDS, MICROSECONDS // 2]


def test_each_of_two_modes_has_its_first_start_and_last_end() -> None:
    extents = digest(steps([5.0, 1.0], [1.0, 50.0]), steps([60.0], [2.0], mode=EVAL)).extents
    spans = {mode: (first_us, end_us) for (_, _, mode), (first_us, end_us, _) in extents.items()}
    base = START * MICROSECONDS
    assert spans[TRAIN] == (base + MICROSECONDS, base + 51 * MICROSECONDS)
    assert spans[EVAL] == (base + 60 * MICROSECONDS, base + 62 * MICROSECONDS)


def test_step_beyond_the_axis_is_counted_and_not_a_slowest_one() -> None:
    late = digest(steps([-1.0, 1.0, 100.0], [50.0, 1.0, 50.0]))
    assert late.outside == 2
    ((_, (_, _, slowest)),) = late.extents.items()
    assert [number for _, _, number in slowest] == ["1"]


def test_slowest_of_many_steps_are_kept_with_their_numbers() -> None:
    count = KEPT_SLOWEST + 50
    durations = np.random.default_rng(1).permutation(count) + 1
    many = digest(steps(np.linspace(0, 99, count).tolist(), durations.tolist()))
    ((_, (_, _, slowest)),) = many.extents.items()
    kept = [duration_us // MICROSECONDS for _, duration_us, _ in slowest]
    assert kept == list(range(count, 50, -1))
    assert all(durations[int(number)] * MICROSECONDS == duration_us for _, duration_us, number in slowest)


def test_slowest_steps_of_two_merged_parts_are_kept() -> None:
    starts, durations = [0.2 * index for index in range(400)], [float(index % 7) for index in range(400)]
    parts = digest(steps(starts[250:], durations[250:], first=250))
    parts.merge(digest(steps(starts[:250], durations[:250])))
    assert parts.encode() == digest(steps(starts, durations)).encode()


def test_earliest_of_equally_slow_steps_are_kept() -> None:
    count = KEPT_SLOWEST + 50
    same = digest(steps([0.1 * index for index in range(count)], [1.0] * count))
    ((_, (_, _, slowest)),) = same.extents.items()
    assert [number for _, _, number in slowest] == [str(index) for index in range(KEPT_SLOWEST)]


def test_first_processes_by_name_stay_whole_beyond_the_limit() -> None:
    names = [f"algo-1-{number:03}" for number in range(MAX_STEP_SERIES + 3)]
    objects = [steps([1.0, 2.0], [0.1, 0.2], process=name) for name in names]
    late = digest(*reversed(objects))
    assert [process for _, process, _ in late.tables["steps"].keys] == names[:MAX_STEP_SERIES]
    assert set(late.extents) == set(late.tables["steps"].keys)
    assert late.tables["steps"].refused == 6
    assert late.encode() == digest(*objects).encode()


def test_merging_keeps_nothing_of_processes_beyond_the_limit() -> None:
    names = [f"algo-1-{number:03}" for number in range(2 * MAX_STEP_SERIES)]
    both = digest(*(steps([1.0], [0.1], process=name) for name in names[MAX_STEP_SERIES:]))
    both.merge(digest(*(steps([1.0], [0.1], process=name) for name in names[:MAX_STEP_SERIES])))
    assert sorted(process for _, process, _ in both.extents) == names[:MAX_STEP_SERIES]


def test_impossible_duration_counts_as_the_longest_one() -> None:
    endless = digest(steps([1.0], [1e7]))
    ((_, (_, _, slowest)),) = endless.extents.items()
    assert endless.tables["steps"].totals[0, 0] == slowest[0][1] == MAX_DURATION_US


def test_part_of_another_node_or_axis_is_refused() -> None:
    with pytest.raises(TimelinePartError, match="algo-2"):
        digest().merge(digest(node="algo-2"))
    with pytest.raises(TimelinePartError, match="bucket_s=20"):
        digest().merge(digest(on=axis(bucket_s=20)))


FULL = digest(samples([(1.0, "gpu", "gpu0", 20.0), (95.0, "cpu", "cpu0", 3.0)]), steps([3.0], [1.0])).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with"),
        (FULL[:4] + b"\x02" + FULL[5:], "format 1"),
        (b"PK\x03\x04\x01" + FULL[5:], "begins with"),
        (FULL[:-8], "truncated, or larger"),
        (FULL[:40] + b"\xff\xff\xff" + FULL[43:], "damaged"),
    ],
)
def test_invalid_digest_bytes_name_the_part(data: bytes, reason: str) -> None:
    with pytest.raises(TimelinePartError, match=reason) as caught:
        decode_digest(data, "parts/algo-1")
    assert caught.value.place == "parts/algo-1"


def edited(**changes: object) -> NodeDigest:
    """Return a digest whose insides say something impossible."""
    result = digest(samples([(1.0, "gpu", "gpu0", 20.0)]), steps([3.0], [1.0]))
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def test_unbounded_axis_is_decoded_without_allocating_for_it() -> None:
    endless = TimeAxis(start=0.0, bucket_s=1.0, buckets=MOST_BUCKETS + 1)
    with pytest.raises(TimelinePartError, match="17401 buckets"):
        decode_digest(edited(axis=endless).encode())


def test_more_value_buckets_than_the_axis_has_are_refused() -> None:
    with pytest.raises(TimelinePartError, match="within 1 columns"):
        decode_digest(edited(tables=digest(samples([(95.0, "gpu", "gpu0", 20.0)])).tables, axis=axis(1)).encode())


def test_steps_without_their_extents_are_refused() -> None:
    broken = edited()
    broken.tables["steps"].keys.append((9, "another", TRAIN))
    broken.extents[9, "another", TRAIN] = next(iter(broken.extents.values()))
    with pytest.raises(TimelinePartError, match="damaged"):
        decode_digest(broken.encode())


def test_unknown_kind_is_refused() -> None:
    tables = {**edited().tables, "tpu": digest(samples([(1.0, "gpu", "gpu0", 20.0)])).tables["gpu"]}
    with pytest.raises(TimelinePartError, match="kind tpu"):
        decode_digest(edited(tables=tables).encode())
