from typing import Any
from zlib import compress

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.memory_replay import (
    RULE,
    SMALL,
    minutes,
    noise,
    play,
    windows,
)
from trainguard.core.records import Status
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncreaseParameters


def test_state_is_the_same_for_any_cut_into_minutes() -> None:
    memory = np.column_stack([noise(0.5, 50.0, 9.0, seed=seed) for seed in range(3)])

    states = [play(memory, a_minute=points).state for points in (1, 7, 60, 600)]

    assert len({msgspec.msgpack.encode(state) for state in states}) == 1


def test_patience_of_a_late_gpu_begins_with_its_first_sample() -> None:
    late = np.full(220, np.nan)
    late[50:] = 30.0
    late[150:] = 70.0
    steady = np.full(220, 50.0)

    result = play(np.column_stack([steady, late]), a_minute=1)

    # Patience lasts from point 50 to 70; the first window after it is 80 to 100, the jump shows in 160 to 180.
    assert result.fired_at[0] == 180
    assert result.results[179].worst == "gpu1"
    assert result.state.gpus["gpu1"].since == 50
    assert len(result.state.gpus["gpu1"].floors) == len(result.state.gpus["gpu0"].floors) - 3


def test_present_samples_count_and_too_few_are_no_window() -> None:
    wide = GPUMemoryIncreaseParameters(window=80, patience=20)
    memory = windows(40, 40, 40, 70, 70, parameters=wide)
    row = np.arange(len(memory))
    a_third, a_fifth = np.where(row % 3 == 0, memory, np.nan), np.where(row % 5 == 0, memory, np.nan)

    assert play(a_third, wide).kinds() == {"jump"}
    assert play(a_fifth, wide).last.reason == "too few of the newest points of algo-1 have samples of GPU memory."
    assert play(np.full(500, np.nan), wide).last.status is Status.NOT_APPLICABLE


def test_degraded_item_judges_the_rest_of_a_partial_window() -> None:
    wide = GPUMemoryIncreaseParameters(window=200, patience=0)
    memory = windows(40, 40, 40, 70, 70, parameters=wide)

    assert play(memory, wide, a_minute=60, held=30).kinds() == {"jump"}


def test_floors_beyond_24_are_merged_by_minimum() -> None:
    levels = list(range(50, 74))
    state = play(windows(*levels, 80, 81, 82)).state.gpus["gpu0"]

    assert state.floors == [10 * level for level in [*levels[::2], 80]]
    assert (state.stride, state.pending, state.lowest, state.earlier_floor) == (2, 1, 820, 730)


def test_state_of_8_noisy_gpus_for_3_days_is_small() -> None:
    rng = np.random.default_rng(5)
    memory = rng.normal(50.0, 6.0, (72 * 120, 8)).clip(0.0, 100.0)

    # A point every 30 s, so that three days take 432 windows of 20 points.
    state = play(memory, interval_s=30.0, a_minute=200).state

    assert max(len(growth.floors) for growth in state.gpus.values()) <= 24
    assert len(compress(msgspec.msgpack.encode(state), 6)) <= 800


levels = st.one_of(st.integers(0, 100).map(float), st.just(float("nan")))


@given(
    values=st.lists(st.tuples(st.integers(1, 30), levels, levels), min_size=1, max_size=12), a_minute=st.integers(1, 90)
)
def test_storing_after_every_minute_keeps_state_and_verdicts(
    values: list[tuple[int, float, float]], a_minute: int
) -> None:
    memory = np.repeat([[first, second] for _, first, second in values], [count for count, _, _ in values], axis=0)
    parameters = GPUMemoryIncreaseParameters(window=20, patience=5)
    held, stored = RULE.state_type(), msgspec.msgpack.encode(RULE.state_type())

    for minute in minutes(memory, interval_s=1.0, a_minute=a_minute, held=20):
        restored: Any = msgspec.msgpack.decode(stored, type=RULE.state_type)
        RULE.observe(held, minute, parameters)
        RULE.observe(restored, minute, parameters)
        stored = msgspec.msgpack.encode(restored)
        said = RULE.judge(held, minute.view, parameters)
        assert stored == msgspec.msgpack.encode(held)
        assert RULE.judge(restored, minute.view, parameters) == said
        assert (said.advice is not None) == (said.status is Status.FIRED)
    assert play(memory, parameters, interval_s=1.0, a_minute=1).state == held


def test_state_of_a_version_without_loads_still_finds_growth() -> None:
    memory = windows(*range(20, 42, 2))
    state = play(memory).state
    stored = msgspec.to_builtins(state)
    stored[3] = {gpu: growth[:11] for gpu, growth in stored[3].items()}
    restored = msgspec.convert(stored[:4], type=RULE.state_type)

    for minute in minutes(np.concatenate([memory, np.repeat([42.0, 44.0], 20)]), interval_s=0.5, a_minute=20, held=20):
        if minute.view.kept_total > len(memory):
            RULE.observe(restored, minute, SMALL)
            said = RULE.judge(restored, minute.view, SMALL)

    assert said.plain_details["gpu0"]["kind"] == "trend"
