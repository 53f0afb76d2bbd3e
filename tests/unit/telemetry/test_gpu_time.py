"""What GPUs did with their time: exact at any sampling interval, and the same from whatever portions."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.state.gpu_time import BUSY, IDLE, SAMPLED, GpuTime
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
    done = use.finished(every_s)
    return [float(done.grid.column(column).sum()) / 1_000 for column in (SAMPLED, BUSY, IDLE)]


def regular(count: int, every_s: float, start: float = START) -> list[float]:
    """Return times at one distance."""
    return [start + every_s * place for place in range(count)]


def test_given_half_an_hour_when_added_then_steps_are_short() -> None:
    use = timed(regular(30, 60.0, 0.06), np.array([90.0] * 15 + [10.0] * 15)).finished(60.0)
    steps = [*use.steps(1_790.0)]

    assert [round(step.percent) for step in steps[:30] + steps[31:60]] == [90] * 30 + [10] * 29
    assert (steps[0].start, steps[1].start, steps[-1].end) == (0.06, 30.0, 1_790.0)


def test_given_a_month_when_added_then_the_steps_are_few_and_keep_their_sums() -> None:
    use = timed(regular(1_500, 1_800.0), np.array([100.0] * 1_000 + [0.0] * 500), every_s=1_800.0)

    assert len([*use.steps(1e12)]) <= MOST_STEPS
    assert sums(use, 1_800.0) == [2_700_000.0, 1_800_000.0, 900_000.0]
    assert len(msgspec.msgpack.encode(use)) < 2_000


@pytest.mark.parametrize("every_s", [0.1, 0.5, 1.0, 10.0, 15.0, 30.0, 60.0])
def test_given_any_interval_when_added_then_busy_time_is_the_mean(every_s: float) -> None:
    count = max(int(1_200 / every_s), 30)
    percents = np.random.default_rng(7).uniform(2.0, 100.0, (count, 3)).round(2)

    sampled, busy, idle = sums(timed(regular(count, every_s), percents, every_s=every_s), every_s)

    assert sampled == pytest.approx(3 * count * every_s)
    assert busy == pytest.approx(percents.mean() / 100.0 * sampled, rel=1e-3)
    assert idle == 0.0


def test_given_an_interval_that_changes_when_added_then_no_time_is_lost() -> None:
    times = [*regular(60, 1.0), *regular(30, 60.0, START + 60.0), *regular(100, 0.5, START + 1_860.0)]

    assert sums(timed(times, np.full(190, 50.0), every_s=1.0), 0.5) == pytest.approx([1_910.0, 955.0, 0.0])


def test_given_gaps_when_added_then_only_the_usual_distance_is_sampled() -> None:
    bursts = [START + 60.0 * minute + 1.0 * second for minute in range(10) for second in range(30)]

    assert sums(timed(bursts, np.full(300, 80.0), every_s=1.0), 1.0) == pytest.approx([300.0, 240.0, 0.0])


def test_given_samplers_that_take_turns_when_added_then_no_gpu_is_missing() -> None:
    percents = np.full((100, 2), np.nan)
    percents[::2, 0], percents[1::2, 1] = 60.0, 20.0

    assert sums(timed(regular(100, 5.0), percents, every_s=5.0), 5.0)[0] == pytest.approx(1_000.0, abs=10.0)


def test_given_a_job_that_begins_to_work_when_marked_then_what_was_before_is_exact() -> None:
    percents = np.array([0.0] * 13 + [70.0] * 40 + [0.0] * 7)
    use = timed(regular(60, 30.0), percents, every_s=30.0, since=START + 13 * 30.0).finished(30.0)

    assert use.start is not None
    assert use.end is not None
    assert use.start.sums == [390_000, 0, 390_000]
    assert (use.end.at_ms, use.end.sums) == (round((START + 53 * 30.0) * 1_000), [1_590_000, 840_000, 390_000])


def test_given_no_sample_of_a_gpu_when_added_then_there_is_no_step() -> None:
    assert [*timed(regular(5, 60.0), np.full(5, np.nan)).steps(1e12)] == []


def test_given_a_sample_once_more_when_added_then_its_time_counts_once() -> None:
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
def test_given_irregular_samples_when_added_then_all_the_time_between_is_sampled(distances: list[float]) -> None:
    times = START + np.cumsum(distances)

    assert sums(timed(times.tolist(), np.full(len(times), 30.0)))[0] == pytest.approx(
        times[-1] - times[0] + 60.0, abs=0.01
    )


@pytest.mark.parametrize(
    "stored",
    [
        [[0, 3, []]],
        [[0, 1, [[1], [1, 2]]]],
        [[0, 1, [[-1], [0], [0]]]],
        [[-5, 1, []]],
        [[0, 1, []], [[1, 2]]],
        [[0, 1, []], [], 0, 0, [5], []],
        [[0, 1, []], [], 0, 0, [5], [[1, 2, 3]]],
    ],
)
def test_given_stored_parts_that_do_not_fit_when_read_then_they_are_refused(stored: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, GpuTime)
