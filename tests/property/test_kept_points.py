"""Kept points against a plain reading of their definition, however the snapshots are cut into objects."""

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kept_points import kept_points
from tests.support.node_snapshots import node_snapshots
from trainguard.state.sample_window import INTERRUPTED_S, REMEMBERED_GAPS, SampleWindow, SampleWindowState

STEP_S = 10.0
CAPACITY = 25


def snapshots(values: Any, first: Any = 0, step_s: float = STEP_S) -> Any:
    gpu = np.array([[value, 3.0 if value is not None else np.nan] for value in values], dtype=np.float64).reshape(-1, 2)
    count = len(values)
    return node_snapshots(1_000.0 + step_s * np.arange(first, first + count), gpu, cpu_mean=12.25)


def kept_by_definition(values: Any) -> Any:
    """Return the indexes of the kept points."""
    seen = np.array([value is not None for value in values], dtype=np.bool_)
    active = np.array([value is not None and value >= 10 for value in values], dtype=np.bool_)
    return kept_points(1_000.0 + STEP_S * np.arange(len(values), dtype=np.float64), active, seen, STEP_S).rows


VALUE = st.one_of(st.just(0.0), st.just(0.0), st.integers(0, 100).map(float), st.none())
UTILIZATION = st.lists(st.tuples(VALUE, st.integers(1, 9)), max_size=20).map(
    lambda runs: [value for value, length in runs for _ in range(length)]
)


@given(UTILIZATION, st.lists(st.integers(0, 80), max_size=4))
def test_kept_points_of_any_cut_match_the_definition(values: Any, cuts: Any) -> None:
    state = SampleWindowState()
    edges = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    for start, end in pairwise(edges):
        points = SampleWindow(state, 2)
        points.extend(snapshots(values[start:end], start), capacity=CAPACITY, interval_s=STEP_S)
        points.store()
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SampleWindowState)
    points = SampleWindow(state, 2)
    expected = kept_by_definition(values)
    assert state.kept_total == len(expected)
    seen = [index for index, value in enumerate(values) if value is not None]
    missing = sum(STEP_S * (after - before - 1) for before, after in pairwise(seen) if after - before > 3)
    assert state.missing_s == missing
    np.testing.assert_allclose(points.times, 1_000.0 + STEP_S * np.array(expected[-CAPACITY:]))
    assert points.gpu_utilization[:, 0].tolist() == [values[index] for index in expected[-CAPACITY:]]
    counts = np.bincount([int(values[index]) for index in expected], minlength=101)
    np.testing.assert_array_equal(points.histogram[0], counts)


def test_gap_of_an_interrupted_node_is_no_idle_time() -> None:
    state = SampleWindowState()
    fold(state, [*[50.0] * 6, 0.0, 0.0], 0)
    fold(state, [0.0, 0.0], 240)
    assert state.idle is not None
    assert state.idle.since == 1_000.0 + STEP_S * 240
    assert state.observed_since == state.idle.since


def fold(state: Any, values: Any, first: Any, capacity: Any = CAPACITY, step_s: float = STEP_S) -> Any:
    points = SampleWindow(state, 2)
    points.extend(snapshots(values, first, step_s), capacity=capacity, interval_s=step_s)
    points.store()
    return points


def test_idle_run_of_60_s_is_kept_and_longer_is_a_pause() -> None:
    for idle, kept in ((6, 13), (7, 7)):
        state = SampleWindowState()
        fold(state, [*[50.0] * 6, *[0.0] * idle, 50.0], 0)
        assert state.kept_total == kept


def test_points_before_a_second_gpu_appears_are_missing() -> None:
    state = SampleWindowState()
    one = snapshots([50.0] * 6)
    alone = node_snapshots(one.times, one.gpu_utilization[:, :1])
    points = SampleWindow(state, 1)
    points.extend(alone, capacity=CAPACITY, interval_s=STEP_S)
    points.store()
    both = fold(state, [60.0], 6)
    np.testing.assert_array_equal(both.gpu_utilization[:, 0], [*[50.0] * 6, 60.0])
    assert np.isnan(both.gpu_utilization[:6, 1]).all()
    assert both.gpu_utilization[6, 1] == 3.0


def test_degraded_state_stays_degraded() -> None:
    state = SampleWindowState()
    points = fold(state, [50.0] * 50, 0, capacity=200)
    assert points.degrade() == "degraded_to_whole_percents"
    assert points.degrade() == "degraded_to_half_the_window"
    points.store()
    later = fold(state, [50.0] * 50, 50, capacity=200)
    assert len(later.times) == 25
    assert set(later.cpu_mean.tolist()) == {12.0}
    assert later.degrade() == "degraded_to_half_the_window"
    assert later.degrade() is None


def gaps_of(*pieces: Any, since: float | None = None, interval_s: float = STEP_S) -> list[tuple[float, float]]:
    """Return the gaps that are remembered of snapshots at such times, one object a piece."""
    points = SampleWindow(state := SampleWindowState(), 1)
    for piece in pieces:
        points.note_gaps(np.array(piece), since=since, interval_s=interval_s)
        since = piece[-1] if piece else since
    return state.gaps


@given(st.lists(st.floats(1.0, 400.0), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_long_gaps_are_remembered_in_any_cut(distances: list[float], cuts: list[int]) -> None:
    times = np.cumsum([1_000.0, *distances]).tolist()
    edges = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    expected = [pair for pair in pairwise(times) if pair[1] - pair[0] >= INTERRUPTED_S]
    assert gaps_of(*(times[start:end] for start, end in pairwise(edges))) == expected


def test_gap_threshold_is_longer_for_a_slow_sampler() -> None:
    assert gaps_of([0.0, INTERRUPTED_S]) == [(0.0, INTERRUPTED_S)]
    assert gaps_of([0.0, INTERRUPTED_S - 0.001]) == []
    assert gaps_of([0.0, 3_600.0, 7_200.0], interval_s=3_600.0) == []
    assert gaps_of([0.0, 3_600.0, 14_400.0], interval_s=3_600.0) == [(3_600.0, 14_400.0)]


def test_interruption_is_remembered_through_many_lost_minutes() -> None:
    lost = [5_000.0 + 61.0 * number for number in range(3 * REMEMBERED_GAPS)]
    assert gaps_of([0.0], [4_000.0], lost) == [(0.0, 4_000.0), (4_000.0, 5_000.0)]


def test_newest_interruptions_are_remembered_beyond_the_limit() -> None:
    times = [1_000.0 * number for number in range(REMEMBERED_GAPS + 4)]
    assert gaps_of(times) == list(pairwise(times))[-REMEMBERED_GAPS:]


def test_work_in_a_state_of_an_earlier_version_stays_work() -> None:
    state = SampleWindowState()
    fold(state, [50.0] * 6, 0)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    for name in ("start_up", "recent_use", "idle_time"):
        stored.pop(name, None)
    stored |= {"idle": {"since": 1_060.0, "points": []}, "last_seen_at": 1_120.0}
    earlier = msgspec.convert(stored, SampleWindowState)

    fold(earlier, [0.0] * 2, 13)
    assert (earlier.first_active_at, earlier.kept_total) == (1_000.0, 6)
    fold(earlier, [50.0], 15)
    assert (earlier.kept_total, earlier.idle) == (7, None)


def test_brief_gpu_use_before_compilation_does_not_end_start_up() -> None:
    state = SampleWindowState()
    points = fold(state, [50.0, 0.0, 0.0], 0)
    assert points.working_since == 1_000.0
    points = fold(state, [0.0] * 51, 3)
    assert (points.working_since, points.restarted) == (None, True)
    fold(state, [80.0] * 4, 54)
    assert (state.first_active_at, state.kept_total) == (None, 0)
    fold(state, [80.0], 58)
    assert (state.first_active_at, state.kept_total) == (1_000.0 + STEP_S * 54, 5)


def test_work_with_short_idle_runs_counts_whole_after_a_minute() -> None:
    state = SampleWindowState()
    fold(state, [50.0, 0.0] * 6, 0)
    assert (state.first_active_at, state.kept_total) == (1_000.0, 11)


def test_ended_idle_runs_are_counted_as_pauses_and_breaks() -> None:
    state = SampleWindowState()
    fold(state, [*[50.0] * 30, 0.0, 0.0, 50.0, *[0.0] * 3, 50.0, *[0.0] * 20, 50.0], 0)
    found = state.idle_time
    assert (found.samples, found.paused, found.chance, found.breaks_s) == (25, 20, 0, 230.0)
    assert found.breaks == [(1_330.0, 30.0), (1_370.0, 200.0)]


def test_likely_zeros_in_a_row_are_kept() -> None:
    state = SampleWindowState()
    fold(state, [50.0, 50.0, *[50.0, 0.0, 0.0] * 10, 50.0, *[0.0] * 8, 50.0, *[0.0] * 24, 50.0], 0)
    found = state.idle_time
    assert (found.samples, found.paused, found.chance) == (20 + 8 + 24, 24, 8)
    assert found.breaks == [(1_420.0, 240.0)]


def test_start_up_ends_where_a_starved_gpu_is_read_once_a_minute() -> None:
    state = SampleWindowState()
    fold(state, [50.0, *[0.0] * 5, 50.0, *[0.0] * 9, 50.0, 0.0, 50.0, 50.0, 50.0, 50.0, 50.0], 0, step_s=60.0)
    assert state.first_active_at == 1_000.0


def test_after_three_readings_five_zeros_are_a_pause_not_four() -> None:
    for idle, kept in ((2, 6), (4, 8), (5, 4)):
        state = SampleWindowState()
        points = SampleWindow(state, 2)
        values = [50.0] * 3 + [0.0] * idle + [50.0]
        gpu = np.array([[value, 3.0] for value in values])
        shown = node_snapshots(1_000.0 + 60.0 * np.arange(len(values), dtype=np.float64), gpu, cpu_mean=12.25)
        points.extend(shown, capacity=CAPACITY, interval_s=60.0)
        assert state.kept_total == kept
