from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.memory_replay import (
    DEFAULTS,
    HOUR,
    RULE,
    SMALL,
    START,
    Played,
    autoregressive,
    minutes,
    noise,
    play,
    ramp,
    sawtooth,
    windows,
    with_evaluations,
)
from tests.unit.rules.node_replay import replay, series
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncreaseParameters


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(noise(4.0, 50.0, 8.0), id="noise"),
        pytest.param(autoregressive(4.0, 0.99, 5.0), id="autoregressive"),
        pytest.param(sawtooth(4.0, 20), id="sawtooth of 20 points"),
        pytest.param(sawtooth(4.0, 1_200), id="sawtooth of 1,200 points"),
        pytest.param(with_evaluations(4.0, 4_000), id="evaluations every 33 minutes"),
        pytest.param(with_evaluations(4.0, 9_000), id="evaluations every 75 minutes"),
        pytest.param(ramp(4.0, 80.0, 30.0) + noise(4.0, 0.0), id="decline"),
        pytest.param(np.full(HOUR, 97.0), id="constant"),
    ],
)
def test_memory_without_increase_is_silent(memory: FloatArray) -> None:
    result = play(memory, DEFAULTS, a_minute=250)

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
def test_increasing_memory_fires_soon_after_and_not_before(
    memory: FloatArray, kind: str, begins_h: float, within_h: float
) -> None:
    result = play(memory, DEFAULTS, a_minute=250)

    assert begins_h * HOUR < result.fired_at[0] <= (begins_h + within_h) * HOUR
    first = result.results[result.points.index(result.fired_at[0])]
    assert first.plain_details["gpu0"]["kind"] == kind


def test_reason_and_advice_of_a_jump_have_its_numbers() -> None:
    result = play(windows(40, 40, 40, 62))

    assert result.last.reason == (
        "gpu0 on algo-1: memory activity jumped: over the last window of 10 s its floor is 62 %, 22 percentage points "
        "(threshold 10) above the highest mean of all windows but the last two, 40 %."
    )
    assert (result.last.measured, result.last.threshold, result.last.worst) == (22.0, 10.0, "gpu0")
    assert result.last.advice is not None
    assert "in the 30 s of the jump" in result.last.advice
    assert "one more such jump leaves 16 %" in result.last.advice
    assert "activity of the memory controller, not memory in use" in result.last.advice
    assert (result.last.affected_share, result.last.wasted_share) == (0.25, None)


def test_steep_ramp_is_reported_as_growth_and_not_as_a_jump() -> None:
    result = play(windows(20, 32, 44, 56, 68), interval_s=9.0)

    assert result.last.plain_details["gpu0"]["kind"] == "jump"
    assert result.last.reason == (
        "gpu0 on algo-1: memory activity grows from window to window: over the last window of 180 s its floor is 68 %, "
        "24 percentage points (threshold 10) above the highest mean of all windows but the last two, 44 %."
    )
    assert result.last.advice is not None
    assert result.last.advice.startswith(
        "It grew by 240 percentage points an hour, and at that rate gpu0 is at 100 % in 8 min: look for tensors"
    )


def test_rate_of_a_late_steep_ramp_is_that_of_its_windows() -> None:
    result = play(windows(*[4] * 25, *range(16, 90, 12)), interval_s=9.0)

    assert "grows from window to window" in result.last.reason
    assert (result.last.advice or "").startswith("It grew by 240 percentage points an hour")


@pytest.mark.parametrize("levels", [(40, 41, 42, 62), (40, 40, 52, 64), (20, 32, 44, 44), (40, 40, 62)])
def test_unsteady_increase_is_reported_as_a_jump(levels: tuple[int, ...]) -> None:
    assert "memory activity jumped" in play(windows(*levels)).last.reason


def test_advice_on_a_trend_has_its_rate_and_time_to_100_percent() -> None:
    hourly = GPUMemoryIncreaseParameters(window=20, patience=0)
    result = play(windows(*range(20, 32), parameters=hourly), hourly, interval_s=180.0, a_minute=1)

    assert result.last.reason == (
        "gpu0 on algo-1: memory activity grows: its floor rose by 11 percentage points (threshold 10) in 11 h, to "
        "31 %; Mann-Kendall Z is 4.5 (threshold 3.09)."
    )
    assert result.last.advice is not None
    assert result.last.advice.startswith(
        "It grew by 1 percentage point an hour, and at that rate gpu0 is at 100 % in 69 h"
    )


def test_leak_within_the_job_rose_by_the_rise_of_its_floor() -> None:
    result = play(windows(*[20] * 4, *range(20, 80, 4), *[80] * 2))

    assert result.kinds() == {"trend"}
    assert result.last.measured == 60.0
    assert "rose by 60 percentage points" in result.last.reason
    assert "to 80 %" in result.last.reason


def test_slow_sawtooth_that_has_fallen_back_is_no_growth() -> None:
    result = play(windows(*range(20, 44, 2), 20))

    assert result.kinds() == {"trend"}
    assert result.last.status is Status.OK


def test_reason_of_a_late_rise_says_since_when() -> None:
    hourly = GPUMemoryIncreaseParameters(window=20, patience=0)
    levels = [30.0] * 60 + [32.0, 34.0, 36.0, 38.0, 39.0, 40.0, 41.0]
    result = play(windows(*levels, parameters=hourly), hourly, interval_s=180.0, a_minute=20)

    assert result.last.plain_details["gpu0"]["kind"] == "late"
    assert result.last.reason == (
        "gpu0 on algo-1: memory activity grows: its floor of 41 % is 11 percentage points (threshold 10) above the "
        "highest until 19 h before."
    )


@pytest.mark.parametrize(("level", "fires"), [(50, False), (51, True)])
def test_jump_fires_above_the_threshold_only(level: int, fires: bool) -> None:
    assert bool(play(windows(40, 40, level, level)).fired_at) is fires


@pytest.mark.parametrize(("increase", "fires"), [(11.0, False), (10.9, True)])
def test_trend_fires_above_the_threshold_only(increase: float, fires: bool) -> None:
    parameters = GPUMemoryIncreaseParameters(window=20, patience=20, increase=increase)

    assert bool(play(windows(*range(20, 32)), parameters).fired_at) is fires


def test_trend_needs_more_than_eleven_rising_floors() -> None:
    levels = [20 + 3 * index for index in range(12)]
    steep = GPUMemoryIncreaseParameters(window=20, patience=20, increase=8.0)

    assert play(windows(*levels[:11]), steep).fired_at == []
    assert play(windows(*levels), steep).kinds() == {"trend"}


def test_return_to_an_earlier_level_is_no_increase() -> None:
    assert play(windows(60, 60, 60, 25, 25, 25, 60, 60, 60)).fired_at == []
    assert play(windows(60, 60, 60, 25, 25, 25, 75, 75, 75)).kinds() == {"jump"}


def test_window_that_holds_the_jump_is_not_compared() -> None:
    result = play(windows(40, 40, (40, 60), 60))

    assert result.kinds() == {"jump"}
    assert result.last.measured == 20.0


def test_three_of_twenty_points_staying_low_keep_the_floor_low() -> None:
    assert play(windows(40, 40, 40, (40, 90), (40, 90))).fired_at == []


def test_rule_warms_up_until_patience_and_three_windows_are_full() -> None:
    result = play(np.full(82, 50.0), a_minute=1)

    assert [said.status for said in result.results] == [Status.WARMING_UP] * 79 + [Status.OK] * 3
    assert result.results[78].patience == "79/80"
    assert [said.needs_longer for said in result.results[78:80]] == [True, False]
    assert result.results[39].reason == (
        "algo-1 has 40 of the 80 points that a first verdict takes, 20 of patience and 3 windows of 20; about 20 s "
        "left."
    )


def test_rise_within_patience_is_left_out() -> None:
    memory = np.concatenate([np.full(20, 30.0), np.full(100, 60.0)])

    assert play(memory).fired_at == []
    assert play(memory, GPUMemoryIncreaseParameters(window=20, patience=0)).fired_at != []


def test_warming_up_on_points_at_60_s_recommends_seconds() -> None:
    result = play(np.full(30, 50.0), GPUMemoryIncreaseParameters(window=500, patience=100), interval_s=60.0)

    assert "about 26.2 h left at a sampling interval of 60 s: better give patience_s and window_s" in result.last.reason


def test_patience_and_window_in_seconds_are_converted() -> None:
    in_seconds = GPUMemoryIncreaseParameters(window_s=10.0, patience_s=10.0)
    memory = windows(40, 40, 40, 60, 60)

    assert play(memory, in_seconds).results == play(memory).results
    assert RULE.clear_after_s(in_seconds, 0.5) == 30.0


def test_worst_of_several_jumping_gpus_speaks_and_all_count() -> None:
    memory = np.column_stack([windows(40, 40, 40, 60), windows(40, 40, 40, 75), windows(40, 40, 40, 40)])

    result = play(memory)

    assert (result.last.worst, result.last.measured) == ("gpu1", 35.0)
    assert result.last.reason.endswith("2 GPUs of algo-1 show an increase.")
    assert {gpu: each["kind"] for gpu, each in result.last.plain_details.items()} == {
        "gpu0": "jump",
        "gpu1": "jump",
        "gpu2": None,
    }


def test_jump_is_over_after_two_windows() -> None:
    result = play(windows(40, 40, 40, 60, 60, 60, 60), a_minute=20)

    assert result.fired_at == [100, 120]
    assert [said.affected_share for said in result.results[4:6]] == [1 / 4, 2 / 5]


def test_quantiles_are_of_the_newest_window_and_maximum_of_job() -> None:
    newest = np.arange(20.0) + 30.0
    memory = np.concatenate([np.full(20, 95.0), windows(40, 40, 40, 40)[20:], newest])

    details = play(memory).last.plain_details["gpu0"]

    p25, p50, p75 = np.quantile(newest, (0.25, 0.5, 0.75))
    assert details["gpu_max"] == 95.0
    assert (details["p25"], details["p50"], details["p75"]) == pytest.approx((p25, p50, p75))
    assert details["p05"] == pytest.approx(np.quantile(newest, 0.05))
    assert (details["lower"], details["upper"]) == (30.0, 49.0)
    assert (details["floors"], details["floor_s"]) == ([40.0, 40.0, 40.0, 40.0, 31.0], 10.0)


def test_node_without_data_or_gpus_waits_then_does_not_apply() -> None:
    view = next(minutes(np.empty((5, 0)), interval_s=0.5, a_minute=5, held=5)).view

    assert RULE.judge(RULE.state_type(), replace(view, watermark_s=None), DEFAULTS).status is Status.WAITING_FOR_DATA
    assert RULE.judge(RULE.state_type(), view, DEFAULTS).status is Status.NOT_APPLICABLE
    assert set(replay(RULE, DEFAULTS, series(np.empty((240, 0)))).statuses) == {Status.NOT_APPLICABLE}


def test_windows_with_a_pause_are_filled_by_kept_points_only() -> None:
    work, pause = np.full(60, 90.0), np.zeros(30)
    gpu = np.concatenate([work, pause, work, pause, work])
    memory = np.where(gpu > 0.0, 40.0, 0.0)

    result = replay(RULE, SMALL, series(gpu, gpu_memory=memory, interval_s=5.0))

    assert result.state.windows == (180 - 20) // 20
    assert result.state.gpus["gpu0"].floors == [400] * 8


def test_short_job_ends_without_a_verdict() -> None:
    result = replay(RULE, DEFAULTS, series(np.full(600, 90.0)))

    assert result.last.status is Status.WARMING_UP
    assert result.last.reason.endswith("its stream has ended, too early for a verdict.")


@pytest.mark.parametrize(("interval_s", "hours"), [(0.1, 1.0), (0.5, 2.0), (5.0, 2.0), (60.0, 15.0)])
def test_memory_activity_rising_with_the_load_is_no_leak(interval_s: float, hours: float) -> None:
    points = round(hours * 3_600.0 / interval_s)
    ramped = np.linspace(30.0, 95.0, points)
    stepped = np.where(np.arange(points) < points // 2, 35.0, 95.0)
    judged = round(points / 60)  # so many points at a time

    for load in (ramped, stepped):
        following = 0.5 * load + noise(points / HOUR, 0.0, 1.0)[:points]
        assert play(following, DEFAULTS, interval_s=interval_s, a_minute=judged, load=load).fired_at == []
    assert play(0.5 * ramped, DEFAULTS, interval_s=interval_s, a_minute=judged, load=90.0).fired_at != []


def test_jump_that_follows_the_load_names_it_as_the_reason() -> None:
    activity = windows(20, 20, 20, 45)
    for load, said in ((2.0 * activity, "; the GPU's load explains most of that."), (90.0, ".")):
        result = play(activity, load=load).last

        assert (result.status is Status.FIRED) is (said == ".")
        assert result.reason.endswith(
            "its floor is 45 %, 25 percentage points (threshold 10) above the highest mean of all windows but the last "
            f"two, 20 %{said}"
        )


def test_filled_cache_is_over_and_not_extrapolated() -> None:
    filling = ramp(2.0, 20.0, 50.0)
    filled = play(np.concatenate([filling, noise(2.0, 50.0, 1.0)]), DEFAULTS, a_minute=250)

    assert filled.kinds() >= {"trend"}
    assert filled.last.status is Status.OK
    assert filled.last.time_left_s is None
    assert filled.fired_at[-1] < 3 * HOUR


def test_growth_says_since_when_which_gpus_and_when_full() -> None:
    flat, leak = noise(6.0, 30.0), ramp(3.0, 30.0, 60.0) + noise(3.0, 0.0, seed=1)
    memory = np.column_stack([np.concatenate([flat, leak]), noise(9.0, 30.0)])
    result = play(memory, DEFAULTS, a_minute=250)

    assert result.last.onset is not None
    assert abs(result.last.onset - (START + 6.0 * 3_600.0)) < 3_600.0
    assert result.last.gpus == ("gpu0",)
    assert result.last.time_left_s == pytest.approx(4.0 * 3_600.0, rel=0.25)


def test_strongest_jump_is_also_shown_after_a_weaker_one() -> None:
    result = play(windows(20, 20, 20, 60, 60, 60, 72))

    assert result.last.measured == 40.0
    assert (
        "12 percentage points (threshold 10) above the highest mean of all windows but the last two, 60 %"
        in result.last.reason
    )
    assert (
        "the strongest jump was of 40 percentage points, from 20 % to 60 % on gpu0, at 2023-11-14 22:14 UTC"
        in result.last.reason
    )
    assert result.last.onset == START + 140 * 0.5
    assert result.last.time_left_s is None


def a_minute_each(*levels: float) -> Played:
    """Judge one reading a minute, by default windows."""
    return play(np.array(levels, dtype=np.float64), DEFAULTS, interval_s=60.0, a_minute=1, held=60)


def test_growth_in_one_reading_a_minute_is_found_in_an_hour() -> None:
    result = a_minute_each(*[30.0] * 10, *np.linspace(30.0, 70.0, 50))

    assert result.fired_at
    assert result.fired_at[0] <= 45


def test_noise_in_one_reading_a_minute_is_silent() -> None:
    readings = 50.0 + np.random.default_rng(3).normal(0.0, 3.0, 300)

    assert a_minute_each(*readings.tolist()).fired_at == []


def test_recent_steady_rise_is_found_after_old_higher_levels() -> None:
    levels = [*[60.0] * 12, *[30.0] * 24, *np.linspace(30.0, 50.0, 14).tolist()]
    parameters = GPUMemoryIncreaseParameters()
    result = play(windows(*levels, parameters=parameters), parameters, a_minute=500, held=500)

    assert result.kinds() == {"rise"}
    assert "window after window" in result.last.reason
    onset = result.last.onset
    assert onset is not None
    assert onset - START == pytest.approx(50.0 + 36 * 250.0, abs=300.0)


def test_rise_that_levels_off_is_not_steady() -> None:
    filled = (30.0 + 20.0 * (1.0 - np.exp(-np.arange(24) / 3.0))).tolist()
    levels = [*[60.0] * 12, *[30.0] * 24, *filled]
    parameters = GPUMemoryIncreaseParameters()
    result = play(windows(*levels, parameters=parameters), parameters, a_minute=500, held=500)

    assert "rise" not in result.kinds()
