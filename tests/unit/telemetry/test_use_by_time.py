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


def test_given_an_hour_when_added_then_each_minute_is_a_step() -> None:
    steps = [*used([90.0] * 30 + [10.0] * 30).steps(3_570.0)]

    assert [step.percent for step in steps] == [90.0] * 30 + [10.0] * 30
    assert (steps[0].start, steps[0].end, steps[-1].end) == (0.0, 60.0, 3_570.0)


def test_given_a_month_when_added_then_the_steps_are_few_and_keep_their_means() -> None:
    use = used([100.0] * 1_000 + [0.0] * 500, every_s=1_800.0)
    steps = [*use.steps(1e9)]

    assert len(steps) <= MOST_STEPS
    assert sum(use.counts) == 1_500
    assert (steps[0].percent, steps[-1].percent) == (100.0, 0.0)
    assert len(msgspec.msgpack.encode(use)) < 900


def test_given_no_sample_of_a_gpu_when_added_then_there_is_no_step() -> None:
    assert [*used([float("nan")] * 5).steps(1e9)] == []


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=200), st.lists(st.integers(1, 200), max_size=4).map(tuple))
def test_given_any_portions_when_added_then_the_steps_are_the_same(
    percents: list[float], cuts: tuple[int, ...]
) -> None:
    assert used(percents, cuts=cuts) == used(percents)
    assert sum(used(percents).sums) / len(percents) == pytest.approx(float(np.mean(np.rint(percents))))
