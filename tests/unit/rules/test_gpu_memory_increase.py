from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from zlib import compress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.node_replay import replay, series
from trainguard.records import Status
from trainguard.rules.gpu_memory_increase import (
    GPUMemoryIncrease,
    GPUMemoryIncreaseParameters,
    GPUMemoryIncreaseState,
)
from trainguard.rules.judgement import Judgement
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.telemetry.snapshots import FloatArray

RULE = GPUMemoryIncrease()
DEFAULTS = GPUMemoryIncreaseParameters()
SMALL = GPUMemoryIncreaseParameters(window=20, patience=20)
START = 1_700_000_040.0
HOUR = 7_200
"""Points an hour at 0.5 s."""


@dataclass(frozen=True)
class Played:
    """What the rule said after each minute, by kept points, and its state at the end."""

    points: tuple[int, ...]
    judgements: tuple[Judgement, ...]
    state: GPUMemoryIncreaseState

    @property
    def last(self) -> Judgement:
        return self.judgements[-1]

    @property
    def fired_at(self) -> list[int]:
        return [at for at, said in zip(self.points, self.judgements, strict=True) if said.status is Status.FIRED]

    def kinds(self, gpu: str = "gpu0") -> set[str | None]:
        said = (each.details[gpu]["kind"] for each in self.judgements if gpu in each.details)
        return {kind for kind in said if kind is not None}


def minutes(memory: FloatArray, *, interval_s: float, a_minute: int, held: int) -> Iterator[NodeMinute]:
    """Cut memory (float64[T] or [T, G]) of a node that is always busy into minutes of ``a_minute`` points."""
    matrix = memory[:, np.newaxis] if memory.ndim == 1 else memory
    gpus = matrix.shape[1]
    for begin in range(0, len(matrix), a_minute):
        end = min(begin + a_minute, len(matrix))
        oldest = max(begin - held, 0)
        times: FloatArray = START + np.arange(oldest, end, dtype=np.float64) * interval_s
        busy = np.full((end - oldest, gpus), 90.0)
        view = NodeView(
            node="algo-1",
            through=float(times[-1]),
            first_sample_at=START,
            first_active_at=START,
            interval_s=interval_s,
            gpu_names=tuple(f"gpu{index}" for index in range(gpus)),
            ever_active=np.ones(gpus, dtype=np.bool_),
            kept_total=end,
            kept_times=times,
            kept_gpu_utilization=busy,
            kept_gpu_memory=matrix[oldest:end],
            kept_cpu_mean=np.full(end - oldest, 20.0),
            idle_run_s=0.0,
            gpu_histogram=np.full((gpus, 101), end, dtype=np.int64),
            closed=False,
        )
        seen = np.ones(end - begin, dtype=np.bool_)
        snapshots = node_snapshots(times[begin - oldest :], busy[begin - oldest :], gpu_memory=matrix[begin:end])
        yield NodeMinute(snapshots=snapshots, active=seen, started=seen, fresh=end - begin, view=view)


def play(
    memory: FloatArray,
    parameters: GPUMemoryIncreaseParameters = SMALL,
    *,
    interval_s: float = 0.5,
    a_minute: int | None = None,
    held: int | None = None,
) -> Played:
    """Show the rule a series of whole percents, a minute at a time or, where that is less, a window."""
    state, points, judgements = RULE.state_type(), [], []
    window = RULE.window_points(parameters, interval_s)
    kept = window if held is None else held
    cut = min(round(60.0 / interval_s), window) if a_minute is None else a_minute
    whole = np.clip(np.rint(memory), 0.0, 100.0)
    for minute in minutes(whole, interval_s=interval_s, a_minute=cut, held=kept):
        RULE.observe(state, minute, parameters)
        judgements.append(RULE.judge(state, minute.view, parameters))
        points.append(minute.view.kept_total)
    return Played(tuple(points), tuple(judgements), state)


def windows(*levels: float | tuple[float, float], parameters: GPUMemoryIncreaseParameters = SMALL) -> FloatArray:
    """Patience at the first level, then a window a level; a pair is the level's floor and the rest of its window."""
    pairs = [level if isinstance(level, tuple) else (level, level) for level in levels]
    parts = [np.where(np.arange(parameters.window) < 3, low, rest) for low, rest in pairs]
    return np.concatenate([np.full(parameters.patience, pairs[0][1]), *parts]).astype(np.float64)


def noise(hours: float, level: float, spread: float = 3.0, *, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(level, spread, int(hours * HOUR))


def autoregressive(hours: float, weight: float, spread: float) -> FloatArray:
    shocks = noise(hours, 0.0, spread * np.sqrt(1.0 - weight**2))
    values = np.empty_like(shocks)
    last = 0.0
    for index, shock in enumerate(shocks.tolist()):
        last = weight * last + shock
        values[index] = last
    return 50.0 + values


def sawtooth(hours: float, points: int, low: float = 20.0, high: float = 80.0) -> FloatArray:
    phase = np.arange(int(hours * HOUR)) % points / points
    return low + (high - low) * phase + noise(hours, 0.0, 1.0)


def with_evaluations(hours: float, every: int, *, share: float = 0.15) -> FloatArray:
    """Training at 60 %, and evaluations at 25 % that take ``share`` of the time."""
    evaluating = np.arange(int(hours * HOUR)) % every >= (1.0 - share) * every
    return np.where(evaluating, 25.0, 60.0) + noise(hours, 0.0, 2.0)


def ramp(hours: float, first: float, last: float) -> FloatArray:
    return np.linspace(first, last, int(hours * HOUR))


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(noise(8.0, 50.0, 8.0), id="noise"),
        pytest.param(autoregressive(8.0, 0.99, 5.0), id="autoregressive"),
        pytest.param(sawtooth(8.0, 20), id="sawtooth of 20 points"),
        pytest.param(sawtooth(8.0, 1_200), id="sawtooth of 1,200 points"),
        pytest.param(with_evaluations(8.0, 4_000), id="evaluations every 33 minutes"),
        pytest.param(with_evaluations(8.0, 9_000), id="evaluations every 75 minutes"),
        pytest.param(ramp(8.0, 80.0, 30.0) + noise(8.0, 0.0), id="decline"),
        pytest.param(np.full(HOUR, 97.0), id="constant"),
    ],
)
def test_given_memory_without_increase_when_replayed_then_it_stays_silent(memory: FloatArray) -> None:
    result = play(memory, DEFAULTS)

    assert result.fired_at == []
    assert result.last.status is Status.OK
    assert result.last.advice is None


@pytest.mark.parametrize(
    ("memory", "kind", "begins_h", "within_h"),
    [
        pytest.param(np.concatenate([ramp(0.4, 20.0, 90.0), noise(0.3, 90.0, 1.0)]), "jump", 0.0, 0.25, id="ramp"),
        pytest.param(np.concatenate([noise(1.0, 30.0), noise(0.5, 60.0)]), "jump", 1.0, 0.15, id="jump"),
        pytest.param(ramp(4.0, 20.0, 60.0) + noise(4.0, 0.0), "trend", 0.0, 1.3, id="leak"),
        pytest.param(ramp(4.0, 0.0, 40.0) + sawtooth(4.0, 200, 10, 50), "trend", 0.0, 1.3, id="leak under a sawtooth"),
        pytest.param(
            ramp(4.0, 0.0, 40.0) + sawtooth(4.0, 1_200, 10, 50), "trend", 0.0, 1.8, id="leak under a long sawtooth"
        ),
        pytest.param(
            np.concatenate([noise(10.0, 30.0), ramp(3.0, 30.0, 60.0) + noise(3.0, 0.0, seed=1)]),
            "late",
            10.0,
            1.5,
            id="leak that begins in hour 10",
        ),
    ],
)
def test_given_memory_that_increases_when_replayed_then_it_fires_soon_after_and_not_before(
    memory: FloatArray, kind: str, begins_h: float, within_h: float
) -> None:
    result = play(memory, DEFAULTS)

    assert begins_h * HOUR < result.fired_at[0] <= (begins_h + within_h) * HOUR
    first = result.judgements[result.points.index(result.fired_at[0])]
    assert first.details["gpu0"]["kind"] == kind


def test_given_a_jump_when_it_fires_then_reason_and_advice_have_its_numbers() -> None:
    result = play(windows(40, 40, 40, 62))

    assert result.last.reason == (
        "gpu0 on algo-1: memory activity jumped: over the last window of 10 s its floor is 62 %, 22 percentage points "
        "(threshold 10) above the highest mean of any window before, 40 %."
    )
    assert (result.last.measured, result.last.threshold, result.last.worst) == (22.0, 10.0, "gpu0")
    assert result.last.advice is not None
    assert "in the last 30 s" in result.last.advice
    assert "one more such jump leaves 16 %" in result.last.advice
    assert "activity of the memory controller, not memory in use" in result.last.advice
    assert (result.last.affected_share, result.last.wasted_share) == (0.25, None)


def test_given_a_trend_when_it_fires_then_the_advice_has_its_rate_and_when_it_reaches_100() -> None:
    hourly = GPUMemoryIncreaseParameters(window=20, patience=0)
    result = play(windows(*range(20, 32), parameters=hourly), hourly, interval_s=180.0, a_minute=1)

    assert result.last.reason == (
        "gpu0 on algo-1: memory activity grows: its floor rose by 11 percentage points (threshold 10) in 11 h and is "
        "31 % now; Mann-Kendall Z is 4.5 (threshold 3.09)."
    )
    assert result.last.advice is not None
    assert result.last.advice.startswith(
        "It grew by 1 percentage points an hour, and at that rate gpu0 is at 100 % in 69 h"
    )


def test_given_a_leak_that_began_and_ended_on_the_way_when_it_fires_then_it_rose_by_what_its_floor_did() -> None:
    result = play(windows(*[20] * 4, *range(20, 80, 4), *[80] * 4))

    assert result.kinds() == {"trend"}
    assert result.last.measured == 60.0
    assert "rose by 60 percentage points" in result.last.reason
    assert "is 80 % now" in result.last.reason


def test_given_a_slow_sawtooth_when_it_has_fallen_back_then_it_grows_no_more() -> None:
    result = play(windows(*range(20, 44, 2), 20))

    assert result.kinds() == {"trend"}
    assert result.last.status is Status.OK


def test_given_a_late_rise_when_it_fires_then_the_reason_says_since_when() -> None:
    hourly = GPUMemoryIncreaseParameters(window=20, patience=0)
    levels = [30.0] * 60 + [32.0, 34.0, 36.0, 38.0, 39.0, 40.0, 41.0]
    result = play(windows(*levels, parameters=hourly), hourly, interval_s=180.0, a_minute=1)

    assert result.last.details["gpu0"]["kind"] == "late"
    assert result.last.reason == (
        "gpu0 on algo-1: memory activity grows: its floor of 41 % is 11 percentage points (threshold 10) above the "
        "highest until 19 h ago."
    )


@pytest.mark.parametrize(("level", "fires"), [(50, False), (51, True)])
def test_given_a_jump_about_the_threshold_when_judged_then_only_above_it_fires(level: int, fires: bool) -> None:
    assert bool(play(windows(40, 40, level, level)).fired_at) is fires


@pytest.mark.parametrize(("increase", "fires"), [(11.0, False), (10.9, True)])
def test_given_a_trend_about_the_threshold_when_judged_then_only_above_it_fires(increase: float, fires: bool) -> None:
    parameters = GPUMemoryIncreaseParameters(window=20, patience=20, increase=increase)

    assert bool(play(windows(*range(20, 32)), parameters).fired_at) is fires


def test_given_eleven_floors_that_rise_when_judged_then_a_trend_needs_one_more() -> None:
    levels = [20 + 3 * index for index in range(12)]
    steep = GPUMemoryIncreaseParameters(window=20, patience=20, increase=8.0)

    assert play(windows(*levels[:11]), steep).fired_at == []
    assert play(windows(*levels), steep).kinds() == {"trend"}


def test_given_a_return_to_a_level_that_was_there_before_when_judged_then_it_is_no_increase() -> None:
    assert play(windows(60, 60, 60, 25, 25, 25, 60, 60, 60)).fired_at == []
    assert play(windows(60, 60, 60, 25, 25, 25, 75, 75, 75)).kinds() == {"jump"}


def test_given_the_mean_of_the_window_just_before_when_it_holds_the_jump_then_it_is_not_what_is_compared() -> None:
    result = play(windows(40, 40, (40, 60), 60))

    assert result.kinds() == {"jump"}
    assert result.last.measured == 20.0


def test_given_three_in_twenty_points_that_stay_low_when_the_rest_jumps_then_the_floor_is_low_and_it_is_silent() -> (
    None
):
    assert play(windows(40, 40, 40, (40, 90), (40, 90))).fired_at == []


def test_given_points_about_patience_and_three_windows_when_judged_then_it_warms_up_until_they_are_there() -> None:
    result = play(np.full(82, 50.0), a_minute=1)

    assert [said.status for said in result.judgements] == [Status.WARMING_UP] * 79 + [Status.OK] * 3
    assert result.judgements[78].patience == "79/80"
    assert result.judgements[39].reason == (
        "algo-1 has 40 of the 80 points that a first verdict takes, 20 of patience and 3 windows of 20; about 20 s "
        "left."
    )


def test_given_a_rise_within_patience_when_judged_then_it_is_left_out() -> None:
    memory = np.concatenate([np.full(20, 30.0), np.full(100, 60.0)])

    assert play(memory).fired_at == []
    assert play(memory, GPUMemoryIncreaseParameters(window=20, patience=0)).fired_at != []


def test_given_60_s_sampling_when_warming_up_then_seconds_are_recommended() -> None:
    result = play(np.full(30, 50.0), DEFAULTS, interval_s=60.0)

    assert "about 26.2 h left at a sampling interval of 60 s: better give patience_s and window_s" in result.last.reason


def test_given_patience_and_window_in_seconds_when_judged_then_they_are_converted() -> None:
    in_seconds = GPUMemoryIncreaseParameters(window_s=10.0, patience_s=10.0)
    memory = windows(40, 40, 40, 60, 60)

    assert play(memory, in_seconds).judgements == play(memory).judgements
    assert RULE.clear_after_s(in_seconds, 0.5) == 30.0


@pytest.mark.parametrize("a_minute", [7, 60, 600])
def test_given_any_cut_into_minutes_when_all_is_applied_then_the_state_is_the_same(a_minute: int) -> None:
    memory = np.column_stack([noise(0.5, 50.0, 9.0, seed=seed) for seed in range(3)])

    states = [play(memory, a_minute=points).state for points in (1, a_minute)]

    assert msgspec.msgpack.encode(states[0]) == msgspec.msgpack.encode(states[1])


def test_given_a_gpu_that_appears_late_when_it_jumps_then_its_patience_begins_with_its_first_sample() -> None:
    late = np.full(220, np.nan)
    late[50:] = 30.0
    late[150:] = 70.0
    steady = np.full(220, 50.0)

    result = play(np.column_stack([steady, late]), a_minute=1)

    # Patience lasts from point 50 to 70; the first window after it is 80 to 100, the jump shows in 160 to 180.
    assert result.fired_at[0] == 180
    assert result.judgements[179].worst == "gpu1"
    assert result.state.gpus["gpu1"].since == 50
    assert len(result.state.gpus["gpu1"].floors) == len(result.state.gpus["gpu0"].floors) - 3


def test_given_missing_samples_when_judged_then_those_that_are_there_count_and_too_few_are_no_window() -> None:
    wide = GPUMemoryIncreaseParameters(window=80, patience=20)
    memory = windows(40, 40, 40, 70, 70, parameters=wide)
    row = np.arange(len(memory))
    a_third, a_fifth = np.where(row % 3 == 0, memory, np.nan), np.where(row % 5 == 0, memory, np.nan)

    assert play(a_third, wide).kinds() == {"jump"}
    assert play(a_fifth, wide).last.reason.endswith("but too few of the newest have samples of GPU memory.")
    assert play(np.full(500, np.nan), wide).last.status is Status.WARMING_UP


def test_given_an_item_that_was_degraded_when_a_window_is_only_partly_held_then_its_rest_is_judged() -> None:
    wide = GPUMemoryIncreaseParameters(window=200, patience=0)
    memory = windows(40, 40, 40, 70, 70, parameters=wide)

    assert play(memory, wide, a_minute=60, held=30).kinds() == {"jump"}


def test_given_several_gpus_that_jump_when_judged_then_the_worst_speaks_and_all_are_counted() -> None:
    memory = np.column_stack([windows(40, 40, 40, 60), windows(40, 40, 40, 75), windows(40, 40, 40, 40)])

    result = play(memory)

    assert (result.last.worst, result.last.measured) == ("gpu1", 35.0)
    assert result.last.reason.endswith("2 GPUs of algo-1 show an increase.")
    assert {gpu: each["kind"] for gpu, each in result.last.details.items()} == {
        "gpu0": "jump",
        "gpu1": "jump",
        "gpu2": None,
    }


def test_given_a_jump_when_two_windows_have_passed_then_it_is_over() -> None:
    result = play(windows(40, 40, 40, 60, 60, 60, 60), a_minute=20)

    assert result.fired_at == [100, 120]
    assert [said.affected_share for said in result.judgements[4:6]] == [1 / 4, 2 / 5]


def test_given_details_when_judged_then_quantiles_are_of_the_newest_window_and_the_maximum_of_the_job() -> None:
    newest = np.arange(20.0) + 30.0
    memory = np.concatenate([np.full(20, 95.0), windows(40, 40, 40, 40)[20:], newest])

    details = play(memory).last.details["gpu0"]

    p25, p50, p75 = np.quantile(newest, (0.25, 0.5, 0.75))
    assert details["gpu_max"] == 95.0
    assert (details["p25"], details["p50"], details["p75"]) == pytest.approx((p25, p50, p75))
    assert details["p05"] == pytest.approx(np.quantile(newest, 0.05))
    assert (details["lower"], details["upper"]) == (30.0, 49.0)
    assert (details["floors"], details["floor_s"]) == ([40.0, 40.0, 40.0, 40.0, 31.0], 10.0)


def test_given_24_floors_when_more_come_then_neighbours_are_merged_by_their_minimum() -> None:
    levels = list(range(50, 74))
    state = play(windows(*levels, 80, 81, 82)).state.gpus["gpu0"]

    assert state.floors == [10 * level for level in [*levels[::2], 80]]
    assert (state.stride, state.pending, state.lowest, state.earlier_floor) == (2, 1, 820, 730)


def test_given_a_node_without_data_or_gpus_when_judged_then_it_waits_and_then_does_not_apply() -> None:
    view = next(minutes(np.empty((5, 0)), interval_s=0.5, a_minute=5, held=5)).view

    assert RULE.judge(RULE.state_type(), replace(view, through=None), DEFAULTS).status is Status.WAITING_FOR_DATA
    assert RULE.judge(RULE.state_type(), view, DEFAULTS).status is Status.NOT_APPLICABLE
    assert set(replay(RULE, DEFAULTS, series(np.empty((240, 0)))).statuses) == {Status.NOT_APPLICABLE}


def test_given_a_pause_between_windows_when_replayed_then_only_kept_points_fill_them() -> None:
    work, pause = np.full(60, 90.0), np.zeros(30)
    gpu = np.concatenate([work, pause, work, pause, work])
    memory = np.where(gpu > 0.0, 40.0, 0.0)

    result = replay(RULE, SMALL, series(gpu, gpu_memory=memory, interval_s=5.0))

    assert result.state.windows == (180 - 20) // 20
    assert result.state.gpus["gpu0"].floors == [400] * 8


def test_given_a_short_job_when_it_ends_then_it_says_that_there_is_no_verdict() -> None:
    result = replay(RULE, DEFAULTS, series(np.full(600, 90.0)))

    assert result.last.status is Status.WARMING_UP
    assert result.last.reason.endswith("its stream has ended, too early for a verdict.")


def test_given_8_noisy_gpus_for_3_days_when_stored_then_the_state_is_small() -> None:
    rng = np.random.default_rng(5)
    memory = rng.normal(50.0, 6.0, (72 * 120, 8)).clip(0.0, 100.0)

    # A point every 30 s, so that three days take 432 windows of 20 points.
    state = play(memory, interval_s=30.0, a_minute=200).state

    assert max(len(growth.floors) for growth in state.gpus.values()) <= 24
    assert len(compress(msgspec.msgpack.encode(state), 6)) <= 500


levels = st.one_of(st.integers(0, 100).map(float), st.just(float("nan")))


@given(
    values=st.lists(st.tuples(st.integers(1, 30), levels, levels), min_size=1, max_size=12), a_minute=st.integers(1, 90)
)
def test_given_any_series_when_stored_after_every_minute_then_state_and_verdicts_stay_the_same(
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
