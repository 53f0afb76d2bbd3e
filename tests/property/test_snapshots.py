"""Snapshots do not depend on where one object ends and the next begins, nor on the order of lines."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainguard.formats.profile.assemble import assemble, complete, estimate_interval_s, extend_gpu_names
from trainguard.formats.profile.system import MetricSeries, Samples

TABLE = (
    MetricSeries("cpu", "cpu0"),
    MetricSeries("cpu", "cpu1"),
    MetricSeries("gpu", "gpu0"),
    MetricSeries("gpu", "gpu1"),
    MetricSeries("gpu_memory", "gpu0"),
    MetricSeries("io_wait", "cpu0"),
)
GPUS = ("gpu0", "gpu1")


def samples(rows: Any) -> Any:
    times, series, values = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.array([]),) * 3
    return Samples(times.astype(float), values.astype(float), series.astype(np.int64), TABLE)


@st.composite
def grids(draw: Any) -> Any:
    """Rows (time, series, value) of a drifting grid at 500 ms whose threads differ by up to 25 ms."""
    count = draw(st.integers(1, 30))
    rows = []
    for index in range(count):
        for series in range(len(TABLE)):
            if draw(st.integers(0, 9)):
                jitter = draw(st.floats(0, 0.025))
                rows.append((1_000.0 + index * 0.501 + jitter, series, draw(st.integers(0, 10_000)) / 100))
    return rows


def columns(snapshots: Any) -> Any:
    return [
        column.tobytes()
        for column in (
            snapshots.times,
            snapshots.gpu_utilization,
            snapshots.gpu_memory,
            snapshots.cpu_mean,
            snapshots.cpu_max,
            snapshots.io_wait_max,
        )
    ]


def assembled(parts: Any) -> Any:
    whole, open_snapshot = [], None
    for part in parts:
        done, open_snapshot = assemble(samples(part), open_snapshot, gpu_names=GPUS, interval_s=0.5)
        whole.append(done)
    whole.append(complete([] if open_snapshot is None else [open_snapshot], GPUS))
    return [
        np.concatenate([np.atleast_1d(getattr(each, name)) for each in whole])
        for name in (
            "times",
            "gpu_utilization",
            "gpu_memory",
            "cpu_mean",
            "cpu_max",
            "io_wait_mean",
            "io_wait_max",
            "host_memory",
            "network",
        )
    ]


@given(grids(), st.data())
def test_any_cut_in_time_gives_the_same_snapshots(rows: Any, data: Any) -> None:
    rows.sort()
    cut = data.draw(st.integers(0, len(rows)))
    at_once, in_two = assembled([rows]), assembled([rows[:cut], rows[cut:]])
    for left, right in zip(at_once, in_two, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, equal_nan=True)


@given(grids(), st.randoms())
def test_any_order_of_lines_gives_the_same_snapshots(rows: Any, random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    for left, right in zip(assembled([rows]), assembled([shuffled]), strict=True):
        np.testing.assert_array_equal(left, right)


@given(grids())
def test_snapshot_of_a_grid_holds_one_tick(rows: Any) -> None:
    times = assembled([rows])[0]
    ticks = {round((time - 1_000.0) / 0.501) for time, _, _ in rows}
    assert len(times) == len(ticks)


@given(
    steps=st.lists(
        st.sampled_from([0.0, 0.01, 0.1, 0.124, 0.125, 0.2, 0.249, 0.25, 0.251, 0.4, 0.5, 3.0]), max_size=40
    ),
    cut=st.integers(0, 40),
)
@example(steps=[0.5, 0.1, 0.1, 0.1, 0.5], cut=40)  # no gap inside what are two snapshots
@example(steps=[0.5, 0.2, 0.4], cut=40)  # a gap inside one snapshot
def test_snapshot_is_shorter_than_half_an_interval(steps: list[float], cut: int) -> None:
    times = (1_000.0 + np.cumsum([0.0, *steps])).tolist()
    rows = [(time, 2, 50.0) for time in times]

    expected: list[float] = []
    for time in times:
        if not expected or time >= expected[-1] + 0.25:
            expected.append(time)

    assert assembled([rows])[0].tolist() == expected
    assert assembled([rows[:cut], rows[cut:]])[0].tolist() == expected


def test_samples_of_a_snapshot_have_their_own_columns() -> None:
    rows = [(10.0, 0, 20.0), (10.0, 1, 41.0), (10.004, 2, 90.0), (10.004, 4, 55.0), (10.02, 5, 3.0)]
    done, open_snapshot = assemble(samples(rows), None, gpu_names=GPUS, interval_s=0.5)
    assert len(done) == 0
    assert open_snapshot is not None
    last = complete([open_snapshot], GPUS)
    assert last.times.tolist() == [10.0]
    assert last.cpu_mean.tolist() == [30.5]
    assert last.cpu_max.tolist() == [41.0]
    assert last.io_wait_max.tolist() == [3.0]
    np.testing.assert_array_equal(last.gpu_utilization, [[90.0, np.nan]])
    np.testing.assert_array_equal(last.gpu_memory, [[55.0, np.nan]])


def test_interval_of_60_s_is_found_from_single_samples() -> None:
    first, second = samples([(0.0, 2, 50.0)]), samples([(60.0, 2, 50.0)])
    unknown = estimate_interval_s(first, None, None)
    assert unknown is None
    assert estimate_interval_s(second, unknown, 0.0) == 60.0


@pytest.mark.parametrize("interval_s", [0.1, 0.25, 0.5, 0.9, 1.0, 1.2, 4.0, 5.0, 12.0, 30.0, 50.0, 60.0, 70.0, 90.0])
def test_any_interval_is_known_within_a_few_percent(
    interval_s: float,
) -> None:
    grid = np.arange(600.0, 3_600.0, interval_s)
    times = grid + np.random.default_rng(7).uniform(0.0, 0.02 * interval_s, grid.size)
    found, last = None, None
    for minute in np.unique(times // 60.0):
        seen = times[times // 60.0 == minute]
        found, last = estimate_interval_s(samples([(at, 2, 50.0) for at in seen]), found, last), float(seen[-1])
    assert found == pytest.approx(interval_s, rel=0.05)


@pytest.mark.parametrize("interval_s", [8.0, 14.0, 20.0, 29.0])
def test_a_slow_irregular_sampler_has_a_point_for_each_sample(interval_s: float) -> None:
    grid = np.arange(600.0, 30_000.0, interval_s)
    times = grid + np.random.default_rng(3).uniform(0.0, 0.4 * interval_s, grid.size)
    found: Any = interval_s
    opened: Any = None
    points = 0
    for minute in np.unique(times // 60.0):
        seen = samples([(at, 2, 50.0) for at in times[times // 60.0 == minute]])
        found = estimate_interval_s(seen, found, None if opened is None else opened.time)
        done, opened = assemble(seen, opened, gpu_names=GPUS, interval_s=found)
        points += len(done)
    assert found == pytest.approx(interval_s, rel=0.1)
    assert points == times.size - 1


def test_single_samples_at_changing_distances_keep_the_shortest() -> None:
    found, last = None, 0.0
    for at in (90.0, 150.0, 240.0, 300.0, 390.0):
        found, last = estimate_interval_s(samples([(at, 2, 50.0)]), found, last), at
    assert found == 60.0


def test_columns_keep_their_place_for_a_late_gpu() -> None:
    assert extend_gpu_names(("gpu1",), samples([(0.0, 2, 1.0)])) == ("gpu1", "gpu0")


def test_known_interval_stays_with_half_of_the_samples_missing() -> None:
    rows = [(2.0 * step, 2, 50.0) for step in (0, 1, 3, 5, 7, 8, 10, 12)]
    assert estimate_interval_s(samples(rows), 2.0, None) == 2.0
    assert estimate_interval_s(samples([(10.0 * step, 2, 50.0) for step in range(8)]), 2.0, None) == 10.0
