"""What GPUs did with their time: exact at any sampling interval, and the same from whatever portions."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gpu_levels import means_of
from trainguard.state.gpu_time import GpuTime
from trainguard.state.time_grid import MOST_STEPS

START = 1_700_000_007.25


def timed(
    times: list[float],
    percents: np.ndarray,
    *,
    cuts: tuple[int, ...] = (),
    every_s: float = 60.0,
    since: float | None = None,
) -> GpuTime:
    """Return the time of a node's GPUs, its samples added in portions that end at ``cuts``."""
    use, at = GpuTime(), np.array(times, dtype=np.float64)
    values = np.asarray(percents, dtype=np.float64).reshape(len(times), -1)
    ends = [*sorted(cut for cut in cuts if cut < len(times)), len(times)]
    for start, end in zip([0, *ends], ends, strict=False):
        use.add(at[start:end], values[start:end], interval_s=every_s, working_since=since)
    return use


def sums(use: GpuTime, every_s: float = 60.0) -> list[float]:
    """Return GPU-seconds sampled, busy and idle."""
    found: list[float] = use.finished(every_s).sums().sum(axis=1).tolist()
    return found


def regular(count: int, every_s: float, start: float = START) -> list[float]:
    """Return times at one distance."""
    return [start + every_s * place for place in range(count)]


def test_given_half_an_hour_when_added_then_steps_are_short() -> None:
    use = timed(regular(30, 60.0, 0.06), np.array([90.0] * 15 + [10.0] * 15)).finished(60.0)
    levels = means_of(use.levels)[:, 0].round().tolist()

    assert levels[:30] + levels[31:60] == [90.0] * 30 + [10.0] * 29
    assert (use.grid.edges[0], use.grid.width_s) == (0.0, 30.0)


def test_steps_of_a_month_are_few_and_keep_their_sums() -> None:
    use = timed(regular(1_500, 1_800.0), np.array([100.0] * 1_000 + [0.0] * 500), every_s=1_800.0)

    assert means_of(use.levels).shape[0] <= MOST_STEPS
    assert sums(use, 1_800.0) == pytest.approx([2_700_000.0, 1_800_000.0, 900_000.0], rel=1e-3)
    assert len(msgspec.msgpack.encode(use)) < 2_000


@pytest.mark.parametrize("every_s", [0.1, 0.5, 1.0, 10.0, 15.0, 30.0, 60.0])
def test_busy_time_is_the_mean_at_any_interval(every_s: float) -> None:
    count = max(int(1_200 / every_s), 30)
    percents = np.random.default_rng(7).uniform(2.0, 100.0, (count, 3)).round(2)

    sampled, busy, idle = sums(timed(regular(count, every_s), percents, every_s=every_s), every_s)

    assert sampled == pytest.approx(3 * count * every_s)
    assert busy == pytest.approx(percents.mean() / 100.0 * sampled, rel=1e-3)
    assert idle == 0.0


def test_rounding_short_samples_to_milliseconds_does_not_add_up() -> None:
    cuts = tuple(range(7, 4_000, 200))
    use = timed(regular(4_000, 0.225, 1_700_000_000.0), np.full((4_000, 2), [18.0, 2.0]), cuts=cuts, every_s=0.225)
    sampled, busy, idle = sums(use, 0.225)
    assert (sampled, idle) == (1_800.0, 0.0)
    assert busy == pytest.approx(900.0 * 0.2, abs=2e-3)


def test_changing_interval_loses_no_time() -> None:
    times = [*regular(60, 1.0), *regular(30, 60.0, START + 60.0), *regular(100, 0.5, START + 1_860.0)]

    assert sums(timed(times, np.full(190, 50.0), every_s=1.0), 0.5) == pytest.approx([1_910.0, 955.0, 0.0])


def test_only_the_usual_distance_is_sampled_across_gaps() -> None:
    bursts = [START + 60.0 * minute + 1.0 * second for minute in range(10) for second in range(30)]

    assert sums(timed(bursts, np.full(300, 80.0), every_s=1.0), 1.0) == pytest.approx([300.0, 240.0, 0.0])


def test_alternating_samplers_leave_no_gpu_missing() -> None:
    percents = np.full((100, 2), np.nan)
    percents[::2, 0], percents[1::2, 1] = 60.0, 20.0

    assert sums(timed(regular(100, 5.0), percents, every_s=5.0), 5.0)[0] == pytest.approx(1_000.0, abs=10.0)


def test_time_before_the_first_work_is_exact() -> None:
    percents = np.array([0.0] * 13 + [70.0] * 40 + [0.0] * 7)
    use = timed(regular(60, 30.0), percents, every_s=30.0, since=START + 13 * 30.0).finished(30.0)

    assert use.start is not None
    assert use.end is not None
    assert use.start.sums == [390_000, 0, 390_000]
    assert (use.end.at_ms, use.end.sums) == (round((START + 53 * 30.0) * 1_000), [1_590_000, 840_000, 390_000])


def test_gpu_without_samples_makes_no_step() -> None:
    use = timed(regular(5, 60.0), np.full(5, np.nan))

    assert use.sums().shape == (3, 0)
    assert use.between(START, START + 300.0, START + 240.0) is None


def test_given_two_gpus_when_asked_then_each_has_its_mean() -> None:
    times = np.array(regular(1_200, 1.0, 3.0))
    busy = np.where(times < 303.0, 100.0, 50.0)
    other = np.where(times < 603.0, np.nan, busy)
    use = timed(times.tolist(), np.stack((busy, other), axis=1), every_s=1.0).finished(1.0)

    early, late = use.between(0.0, 295.0, 1_202.0), use.between(905.0, 1_200.0, 1_202.0)

    assert early is not None
    assert late is not None
    assert (early.start, early.end, early.means[0]) == (3.0, 300.0, 100.0)
    assert np.isnan(early.means[1])
    assert (late.start, late.end, *late.means.tolist()) == (900.0, 1_200.0, 50.0, 50.0)


def test_given_a_moment_when_asked_then_it_is_the_step_around_it() -> None:
    use = timed(regular(25, 1.0, 0.06), np.array([20.0] * 15 + [80.0] * 10), every_s=1.0).finished(1.0)

    found = use.between(17.0, 18.0, 24.06)

    assert found is not None
    assert (found.start, found.end, found.means.round().tolist()) == (15.0, 24.06, [80.0])
    assert use.between(50.0, 60.0, 24.06) is None


@pytest.mark.parametrize("hours", [0.4, 1.0, 7.0, 30.0])
def test_levels_of_a_long_job_are_true_to_a_percent(hours: float) -> None:
    count = round(hours * 360.0)
    random = np.random.default_rng(3)
    percents = np.clip(random.normal([93.4, 60.2, 5.5, 99.8], 2.0, (count, 4)), 0.0, 100.0)
    percents[count // 3 : count // 2] = 0.0
    use = timed(regular(count, 10.0), percents, every_s=10.0).finished(10.0)

    for begin, end in [(0.0, 1.0), (0.1, 0.25), (0.55, 0.95)]:
        found = use.between(START + begin * 3_600.0 * hours, START + end * 3_600.0 * hours, 1e12)
        assert found is not None
        times = np.array(regular(count, 10.0))
        rows = (times >= found.start) & (times < found.end)
        assert found.means == pytest.approx(percents[rows].mean(axis=0), abs=0.6)
    busy = use.sums()[1]
    assert busy.sum() == pytest.approx(percents.sum() / 100.0 * 10.0, rel=1e-4)
    in_steps = [
        percents[(np.array(regular(count, 10.0)) >= start) & (np.array(regular(count, 10.0)) < end)].mean()
        for start, end in itertools.pairwise(use.grid.edges[3:13])
    ]
    assert 100.0 * busy[3:12] / use.sums()[0][3:12] == pytest.approx(in_steps, abs=1.0 if hours > 1.0 else 3.0)


def test_repeated_sample_counts_its_time_once() -> None:
    times = [*regular(20, 1.0), *regular(20, 1.0), *regular(20, 1.0, START + 20.0)]

    assert sums(timed(times, np.full(60, 40.0), every_s=1.0), 1.0)[0] == pytest.approx(40.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 60.0), st.floats(0.0, 100.0)), min_size=1, max_size=150),
    st.lists(st.integers(1, 150), max_size=4).map(tuple),
)
def test_given_any_portions_when_added_then_the_time_is_the_same(
    samples: list[tuple[float, float]], cuts: tuple[int, ...]
) -> None:
    times = START + np.cumsum([each for each, _ in samples])
    percents = np.array([[percent, 100.0 - percent] for _, percent in samples])
    percents[3::7, 0] = np.nan

    whole = timed(times.tolist(), percents, every_s=60.0)
    assert timed(times.tolist(), percents, cuts=cuts, every_s=60.0) == whole
    sampled, busy, idle = sums(whole)
    assert sampled <= 2 * (times[-1] - times[0] + 60.0) + 0.01
    assert busy + idle <= sampled + 1e-6


@given(st.lists(st.floats(0.1, 60.0), min_size=2, max_size=100))
def test_all_time_between_irregular_samples_is_sampled(distances: list[float]) -> None:
    times = START + np.cumsum(distances)

    assert sums(timed(times.tolist(), np.full(len(times), 30.0)))[0] == pytest.approx(
        times[-1] - times[0] + 60.0, abs=0.01
    )


@pytest.mark.parametrize(
    "stored",
    [
        [[0, 3, []]],
        [[0, 1, [[1], [1, 2]]]],
        [[0, 1, [[-1], [0]]]],
        [[0, 1, [[1], [0]]], [[b"d"], [[0], [0]], [0]], [[1, 2, 3]]],
        [[0, 1, [[1], [0]]], [[b"", b""], [[0], [0]], [0]], [[1, 2, 3]]],
        [[0, 1, [[1, 2], [0, 0]]], [[b"\xc9"], [[0], [0]], [0]], [[1, 2, 3]]],
        [[0, 1, [[1, 2], [0, 0]]], [[b"d"], [[0], []], [0]], [[1, 2, 3]]],
        [[0, 1, [[1, 2], [0, 0]]], [[b"d"], [[0], [0]]], [[1, 2, 3]]],
        [[-5, 1, []]],
        [[0, 1, []], [[], [[], []]], [[1, 2]]],
        [[0, 1, []], [[], [[], []]], [], 0, 0, [5], []],
        [[0, 1, []], [[], [[], []]], [], 0, 0, [5], [[1, 2, 3]]],
    ],
)
def test_stored_parts_that_do_not_fit_are_refused(stored: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, GpuTime)


def test_what_is_finished_leaves_the_stored_time_as_it_is() -> None:
    use = timed(regular(30, 10.0), np.random.default_rng(1).uniform(0.0, 100.0, (30, 2)), every_s=10.0)
    before = msgspec.msgpack.encode(use)

    assert use.finished(10.0) == use.finished(10.0) != use
    assert msgspec.msgpack.encode(use) == before
