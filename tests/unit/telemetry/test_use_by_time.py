"""How busy GPUs were when, in few steps: the same from whatever portions the snapshots come in."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.state.use_by_time import MOST_STEPS, UseByTime


def used(percents: list[float], *, cuts: tuple[int, ...] = (), every_s: float = 60.0) -> UseByTime:
    """Return the steps of a node with one GPU, its snapshots added in portions that end at ``cuts``."""
    use, times, values = (
        UseByTime(),
        np.arange(len(percents), dtype=np.float64) * every_s,
        np.array(percents, dtype=np.float64)[:, None],
    )
    ends = [*sorted(cut for cut in cuts if cut < len(percents)), len(percents)]
    for start, end in zip([0, *ends], ends, strict=False):
        use.add(times[start:end], values[start:end])
    return use


def test_given_a_quarter_of_an_hour_when_added_then_steps_are_short() -> None:
    steps = [*used([90.0] * 30 + [10.0] * 30, every_s=15.0).steps(895.0)]

    assert [step.percent for step in steps] == [90.0] * 30 + [10.0] * 30
    assert (steps[0].start, steps[0].end, steps[-1].end) == (0.0, 15.0, 895.0)


def test_given_two_gpus_when_asked_then_each_has_its_mean() -> None:
    use, times = UseByTime(), 3.0 + np.arange(600, dtype=np.float64)
    busy = np.where(times < 300.0, 100.0, 50.0)
    use.add(times, np.stack((busy, np.full(600, np.nan)), axis=1))
    use.add(times + 600.0, np.stack((busy, busy), axis=1))

    late, early = use.between(905.0, 1_200.0, 1_202.0), use.between(0.0, 295.0, 1_202.0)

    assert early is not None
    assert late is not None
    assert (early.start, early.end, early.means[0]) == (3.0, 300.0, 100.0)
    assert np.isnan(early.means[1])
    assert (late.start, late.end, *late.means.tolist()) == (900.0, 1_200.0, 50.0, 50.0)


def test_given_a_moment_when_asked_then_it_is_the_step_around_it() -> None:
    use = used([20.0] * 15 + [80.0] * 10, every_s=1.0)

    found, none = use.between(17.0, 18.0, 24.0), use.between(50.0, 60.0, 24.0)

    assert found is not None
    assert (found.start, found.end, found.means.tolist(), none) == (15.0, 24.0, [80.0], None)


def test_given_a_month_when_added_then_the_steps_are_few_and_keep_their_means() -> None:
    use = used([100.0] * 1_000 + [0.0] * 500, every_s=1_800.0)
    steps = [*use.steps(1e9)]

    assert len(steps) <= MOST_STEPS
    assert sum(map(sum, use.counts)) == 1_500
    assert (steps[0].percent, steps[-1].percent) == (100.0, 0.0)
    assert len(msgspec.msgpack.encode(use)) < 1_100


def test_given_no_sample_of_a_gpu_when_added_then_there_is_no_step() -> None:
    assert [*used([float("nan")] * 5).steps(1e9)] == []


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=200), st.lists(st.integers(1, 200), max_size=4).map(tuple))
def test_given_any_portions_when_added_then_the_steps_are_the_same(
    percents: list[float], cuts: tuple[int, ...]
) -> None:
    assert used(percents, cuts=cuts) == used(percents)
    assert sum(map(sum, used(percents).sums)) / len(percents) == pytest.approx(float(np.mean(np.rint(percents))))
