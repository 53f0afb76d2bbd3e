"""What counts as a bottleneck's time: short idle runs at once, pauses when they recur, and since when it holds."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.node_replay import JOB_START, node_minutes, series
from trainguard.rules.bottlenecks.state import BottleneckState, Counted, MinuteCount, Tally
from trainguard.rules.rule_inputs import NodeMinute, NodeView

LIMITS = {"core": 90.0, "gpu": 10.0, "fraction": 0.5}
BASE = next(node_minutes(series([95.0], interval_s=60.0), closed=False)).view


def view_at(interval_s: float) -> NodeView:
    """Return the view of a node of one GPU."""
    return next(node_minutes(series([95.0], interval_s=interval_s), closed=False)).view


def shown(state: BottleneckState, first: int, busy: Sequence[bool], interval_s: float = 60.0) -> None:
    """Show a state one object: snapshots from a row on, in each of which the GPU is busy, or waits for a full core."""
    times = JOB_START + interval_s * (first + np.arange(len(busy), dtype=np.float64))
    active = np.array(busy, dtype=np.bool_)
    gpu = np.where(active, 95.0, 0.0)[:, np.newaxis]
    core = np.where(active, 40.0, 100.0)
    minute = NodeMinute(node_snapshots(times, gpu), active, np.ones_like(active), 0, view_at(interval_s))
    counted = Counted.of(gpu, (core, core, core), ("gpu0",), **LIMITS)
    state.add(minute, counted, np.ones_like(active), is_slow=lambda _: False, threshold=50.0)


def seen(busy: Sequence[bool], interval_s: float = 60.0, *, objects: int = 1) -> BottleneckState:
    """Return the state after rows that come in objects of so many."""
    state = BottleneckState()
    for first in range(0, len(busy), objects):
        shown(state, first, busy[first : first + objects], interval_s)
    return state


@pytest.mark.parametrize("objects", [1, 2, 5, 99], ids=lambda count: f"objects of {count}")
@pytest.mark.parametrize(
    ("interval_s", "idle", "counts"),
    [
        (20.0, 3, True),
        (20.0003, 3, True),
        (20.0, 4, False),
        (30.0, 2, True),
        (30.0, 3, False),
        (60.0, 2, True),
        (60.0, 3, False),
    ],
)
def test_long_idle_run_is_a_pause_and_does_not_count(interval_s: float, idle: int, counts: bool, objects: int) -> None:
    state = seen([True, *[False] * idle, True, True], interval_s, objects=objects)
    assert (state.kept.judged, state.kept.bottlenecked) == (3 + idle * counts, idle * counts)
    assert [ended for ended, _ in state.pauses] == (
        [] if counts else [int(JOB_START // 60.0 + interval_s * (idle + 1) // 60.0)]
    )


def test_open_idle_run_does_not_count_yet() -> None:
    state = seen([True, True, False, False], objects=3)
    assert (state.kept.judged, state.open_idle.judged, state.idle_since) == (2, 2, JOB_START + 120.0)
    assert seen([False, False], objects=1).idle_since == JOB_START


@pytest.mark.parametrize(
    ("ends", "counted", "objects"),
    [
        ((10, 60), 0, 1),
        ((10, 60, 129), 9, 1),
        ((10, 60, 129), 9, 1_000),
        ((10, 60, 130), 0, 1),
        ((10, 60, 130), 0, 1_000),
        ((10, 60, 130, 179), 9, 1),
        ((10, 60, 120, 200), 9, 1),
        ((10, 60, 120, 140), 12, 1),
        ((10, 60, 120, 180, 239), 15, 1),
    ],
)
def test_third_pause_within_two_hours_makes_all_pauses_count(ends: Sequence[int], counted: int, objects: int) -> None:
    busy = np.ones(ends[-1] + 2, dtype=np.bool_)
    for end in ends:
        busy[end - 3 : end] = False
    state = seen(busy.tolist(), objects=objects)
    assert state.kept.bottlenecked == counted
    assert state.kept.judged == len(busy) - 3 * len(ends) + counted
    assert len(state.pauses) == 2


def bad(minutes: Sequence[int], newest: int) -> BottleneckState:
    """Return the state of a node of which some minutes are bottlenecks, each an idle run of one snapshot."""
    busy = np.ones(newest + 1, dtype=np.bool_)
    busy[list(minutes)] = False
    return seen(busy.tolist())


@pytest.mark.parametrize("objects", [1, 4, 1_000])
@pytest.mark.parametrize(("short", "since"), [([11, 19], 3), ([19], 3), ([20], 20)])
def test_the_onset_moves_back_to_pauses_that_count_late(short: list[int], since: int, objects: int) -> None:
    busy = np.ones(30, dtype=np.bool_)
    busy[[3, 4, 5, 7, 8, 9, *short, 24, 25, 26]] = False
    state = seen(busy.tolist(), objects=objects)
    first = int(JOB_START // 60.0)
    assert (state.bad_since, state.bad_through) == (first + since, first + 26)


@pytest.mark.parametrize(
    ("minutes", "since", "through"),
    [([3], 3, 3), ([3, 13], 3, 13), ([3, 14], 14, 14), ([3, 5, 15], 3, 15), ([3, 5, 16], 16, 16)],
)
def test_ten_minutes_without_a_bad_one_reset_the_onset(minutes: Sequence[int], since: int, through: int) -> None:
    state, first = bad(minutes, 20), int(JOB_START // 60.0)
    assert (state.bad_since, state.bad_through) == (first + since, first + through)


@pytest.mark.parametrize(("newest", "lapsed"), [(8, False), (9, True)])
def test_bottleneck_lapses_after_four_free_minutes_not_three(newest: int, lapsed: bool) -> None:
    assert bad([5], newest).has_lapsed is lapsed
    assert bad([], newest).has_lapsed
    assert BottleneckState().has_lapsed


@pytest.mark.parametrize(("waiting", "is_bad"), [(1, False), (2, False), (3, True)])
def test_minute_waiting_for_more_than_the_threshold_is_bad(waiting: int, is_bad: bool) -> None:
    state = seen([*[True] * (3 - waiting), *[False] * waiting, True], interval_s=15.0)
    assert (state.bad_since is not None) is is_bad


def test_restarted_work_discards_all_counts_of_start_up() -> None:
    state = bad([1, 2, 5], 6)
    state.reset()
    assert (state.kept, state.open_idle, state.pauses) == (Tally(), Tally(), [])
    assert (state.idle_since, state.bad_since, state.bad_through) == (None, None, None)


def test_oldest_minute_is_dropped_after_30_but_its_slowness_kept() -> None:
    kept = Tally()
    for number in range(31):
        count = MinuteCount(100 + number, 4, 1, gpu=20_000, level=32_000, peak=800, gpus=2, lost=3)
        kept.absorb(Tally(judged=4, bottlenecked=1, minutes=[count], low={"gpu0": 1}), lambda each: each.judged == 4)
    assert [each.minute for each in kept.minutes] == list(range(101, 131))
    assert (kept.judged, kept.bottlenecked, kept.low, kept.slow) == (124, 31, {"gpu0": 31}, 4)
    gone = kept.slow_minutes([])
    assert (gone.judged, gone.mean(gone.gpu), gone.mean(gone.level), gone.mean(gone.peak)) == (4, 50.0, 80.0, 2.0)
    assert kept.slow_lost == 100 * (4 * 95 - 200)
    twice = Tally()
    for _ in range(2):
        twice.absorb(kept, lambda _: False)
    assert (twice.slow, twice.slow_minutes([]).judged, twice.slow_minutes([]).level) == (8, 8, 64_000)
    assert kept.slow_minutes([]).judged == 4
    assert Tally(slow=4).slow_minutes([]).mean(800) == 2.0


@pytest.mark.parametrize(("idle", "used"), [(9, ("gpu0", "gpu1")), (10, ("gpu0",))])
def test_gpu_idle_beside_another_for_ten_minutes_waits_no_more(idle: int, used: tuple[str, ...]) -> None:
    node = series(np.array([[95.0, 95.0], *[[95.0, 0.0]] * idle, [95.0, 0.0]]), interval_s=60.0)
    state = BottleneckState()
    for minute in list(node_minutes(node, closed=False))[:-1]:
        state.note_use(minute, minute.snapshots.gpu_utilization >= 10.0)
    assert state.used(minute.view) == used
    state.note_use(minute, np.array([[True, True]]))
    assert state.used(minute.view) == ("gpu0", "gpu1")
    assert state.unused == {}


def test_lost_time_of_a_slow_minute_is_exact_to_0_01_percent() -> None:
    gpu = np.array([[9.0, 0.0, 4.56], [95.0, 99.0, 91.0]])
    core = np.array([100.0, 40.0])
    counted = Counted.of(gpu, (core, core, core), ("gpu0", "gpu1", "gpu2"), **LIMITS)
    (minute,) = counted.tally(JOB_START + np.array([0.0, 30.0]), np.ones(2, dtype=np.bool_)).minutes
    assert minute.lost == 9_548
