"""How busy GPUs were, a byte a step: what rounding leaves out of a step is carried into the next one."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gpu_levels import means_of
from trainguard.state.time_grid import GpuLevels

STEP_MS = 15_000
OPEN_MS = 7_000


def levels_of(busy: list[int], sampled: int = STEP_MS) -> GpuLevels:
    """Return the levels of one GPU that was busy for so many milliseconds of each step, after which one more opens."""
    levels = GpuLevels()
    levels.extend(1)
    for step, each in enumerate([*busy, OPEN_MS]):
        levels.add(step, [sampled], [each])
    return levels


def weights(levels: GpuLevels, sampled: int = STEP_MS) -> np.ndarray:
    return np.full(levels.steps + 1, sampled)


def test_a_steady_series_keeps_its_mean() -> None:
    levels = levels_of([round(0.74833 * STEP_MS)] * 50)

    assert levels.mean(np.arange(10, 40), weights(levels))[0] == pytest.approx(74.833, abs=0.5 / 30)
    assert set(levels.closed[0]) == {149, 150}


@given(st.lists(st.integers(0, STEP_MS), min_size=2, max_size=60), st.integers(0, 59), st.integers(1, 60))
def test_any_steps_have_a_mean_within_half_a_point_a_step(busy: list[int], first: int, count: int) -> None:
    levels = levels_of(busy)
    chosen = np.arange(len(busy))[first:][:count]

    if chosen.size:
        true = 100.0 * np.mean(np.array(busy)[chosen]) / STEP_MS
        within = 0.5 if chosen[0] > 0 and chosen[-1] < len(busy) - 1 else 0.25
        assert levels.mean(chosen, weights(levels))[0] == pytest.approx(true, abs=within / chosen.size + 1e-9)
    every = np.arange(len(busy) + 1)
    assert levels.mean(every, weights(levels))[0] == pytest.approx(
        100.0 * (sum(busy) + OPEN_MS) / (STEP_MS * every.size), abs=1e-9
    )
    assert abs(levels.carried[0]) <= STEP_MS // 2


@given(st.lists(st.integers(0, STEP_MS), min_size=1, max_size=60), st.booleans(), st.integers(1, 3))
def test_wider_steps_keep_the_busy_time(busy: list[int], odd: bool, times: int) -> None:
    levels, sums = levels_of(busy), [STEP_MS] * (len(busy) + 1)
    for _ in range(times):
        levels.widen(np.array(sums), odd=odd)
        sums = [0] * odd + sums
        sums = [sum(sums[place : place + 2]) for place in range(0, len(sums), 2)]
        assert levels.steps == len(sums) - 1

    mean = levels.mean(np.arange(len(sums)), np.array(sums))[0]
    assert mean * sum(sums) == pytest.approx(100.0 * (sum(busy) + OPEN_MS))
    assert abs(levels.carried[0]) <= max(sums) // 2


@given(st.lists(st.sampled_from([0, STEP_MS, 4_321, 10_007]), min_size=1, max_size=60))
def test_an_idle_step_stays_idle_and_a_busy_one_busy(busy: list[int]) -> None:
    closed = levels_of(busy).closed[0]

    assert {level for level, each in zip(closed, busy, strict=True) if each == 0} <= {0}
    assert {level for level, each in zip(closed, busy, strict=True) if each == STEP_MS} <= {200}


def test_a_short_step_takes_no_more_than_half_a_level() -> None:
    levels = levels_of([10_030])
    levels.add(2, [100], [50])
    levels.add(3, [100], [50])

    assert abs(levels.carried[0]) > 50
    assert levels.closed[0][2] in {99, 100, 101}


def test_a_gpu_without_samples_has_no_level() -> None:
    levels = levels_of([5_001, 5_002])
    levels.extend(2)
    levels.add(5, [10, 10], [5, 5])

    assert np.isnan(means_of(levels)[:5, 1]).all()
    assert levels.mean(np.arange(5), np.array([STEP_MS] * 3 + [0, 0, 20])).tolist()[1:] == pytest.approx(
        [np.nan], nan_ok=True
    )


def test_what_is_carried_takes_few_bytes() -> None:
    levels = levels_of([5_001] * 119)

    grown = len(msgspec.msgpack.encode(levels)) - len(msgspec.msgpack.encode([levels.closed, levels.open]))
    assert grown <= 1 + 3
