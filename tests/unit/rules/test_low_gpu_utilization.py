from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, NodeSeries, Replay, node_minutes, replay, series
from trainguard.core.errors import RuleConfigError
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.low_gpu_utilization.usage import P5, P95, PAUSED

RULE = LowGPUUtilization()
DEFAULTS = LowGPUUtilizationParameters()
A_POINT_A_MINUTE = LowGPUUtilizationParameters(window=20, patience=20)


def judge(node: NodeSeries, parameters: LowGPUUtilizationParameters = DEFAULTS, *, closed: bool = True) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def minutely(values: list[float]) -> NodeSeries:
    """One point a minute, so that every kept point is an evaluation."""
    return series(values, interval_s=60.0)


def training(minutes: float, level: float = 92.0, *, seed: int = 3) -> FloatArray:
    """Whole percents about ``level``, two a second."""
    noise = np.random.default_rng(seed).normal(level, 4.0, int(minutes * 120))
    return np.clip(np.rint(noise), 11.0, 100.0)


def idle(minutes: float) -> FloatArray:
    return np.zeros(int(minutes * 120))


def with_idle_every(base: FloatArray, *, every_s: float, idle_s: float) -> FloatArray:
    values = base.copy()
    phase = np.arange(len(values)) * 0.5 % every_s
    values[phase >= every_s - idle_s] = 0.0
    return values


def test_well_used_gpus_with_pauses_and_checkpoints_are_silent() -> None:
    work = with_idle_every(training(15.0), every_s=600.0, idle_s=40.0)
    node = series(np.concatenate([idle(12.0), work, idle(4.0), work, idle(9.0), work, idle(15.0)]))

    result = judge(node)

    assert result.first_fire is None
    assert result.last.status is Status.OK


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param(training(20.0, level=30.0), "under", id="low"),
        pytest.param(with_idle_every(training(20.0), every_s=2.0, idle_s=1.0), "fluctuating", id="starved"),
    ],
)
def test_fault_from_the_start_fires_by_minute_20(values: FloatArray, kind: str) -> None:
    result = judge(series(values), closed=False)

    assert result.first_fire is not None
    assert result.first_fire <= 20.0
    assert result.last.plain_details["gpus"]["gpu0"]["kind"] == kind


def test_cheap_saves_every_four_minutes_are_named_but_no_finding() -> None:
    result = judge(series(with_idle_every(training(40.0), every_s=240.0, idle_s=15.0)), closed=False)

    assert result.first_fire is None
    assert result.last.reason.endswith(
        "The GPUs of algo-1 pause for 15 s every 240 s, 5.6 % of the paid time, as saving a checkpoint, evaluating or "
        "preprocessing does."
    )


@pytest.mark.parametrize("level", [20.0, 45.0, 60.0])
def test_late_onset_fires_within_15_minutes(level: float) -> None:
    node = series(np.concatenate([idle(3.0), training(40.0), training(16.0, level=level)]))

    result = judge(node)

    assert result.first_fire is not None
    assert 43.0 < result.first_fire <= 43.0 + 15.0


def test_reason_of_one_low_gpu_of_four_has_its_numbers() -> None:
    gpu = np.column_stack([training(20.0), training(20.0, seed=4), np.full(2_400, 31.0), training(20.0, seed=5)])

    result = judge(series(gpu), closed=False)

    fire = next(said for said in result.results if said.status is Status.FIRED)
    assert fire.reason == (
        "gpu2 on algo-1: 95 % of its last 500 samples outside pauses have a GPU utilization of at most 31 % (threshold "
        "70 %), and so for 18 min. Over all samples, 2023-11-14 22:14 to 22:31 UTC, gpu2 was 31 % busy on average."
    )
    assert (fire.worst, fire.measured, fire.threshold, fire.measure) == ("gpu2", 31.0, 70.0, P95)


def test_measured_value_of_fluctuation_is_the_fifth_percentile() -> None:
    result = judge(series(with_idle_every(training(20.0), every_s=2.0, idle_s=1.0)), closed=False)

    assert (result.last.measured, result.last.threshold, result.last.measure) == (0.0, 10.0, P5)
    assert "idlest 5 % of at most 0 % (threshold 10 %)" in result.last.reason


def test_percentile_on_the_threshold_is_not_low() -> None:
    assert judge(minutely([70.0] * 90), A_POINT_A_MINUTE).first_fire is None
    assert judge(minutely([69.0] * 90), A_POINT_A_MINUTE).first_fire is not None


@pytest.mark.parametrize(("low", "fires"), [(10.0, False), (9.0, True)])
def test_fifth_percentile_fires_below_its_threshold_only(low: float, fires: bool) -> None:
    dips = np.tile([95.0] * 8 + [low] * 2, 12)
    node = series(np.column_stack([dips, np.full(120, 95.0)]), interval_s=60.0)

    assert (judge(node, A_POINT_A_MINUTE).first_fire is not None) is fires


def test_rule_warms_up_until_points_exceed_patience() -> None:
    result = judge(minutely([95.0] * 22), A_POINT_A_MINUTE, closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 20 + (Status.OK,) * 2
    assert result.results[18].patience == "19/20"
    assert result.results[19].patience == "20/20"


def test_low_gpu_fires_after_two_windows_and_not_before() -> None:
    result = judge(minutely([30.0] * 63), A_POINT_A_MINUTE, closed=False)

    first_judged = 20
    assert result.statuses[first_judged + 39] is Status.OK
    assert result.statuses[first_judged + 40] is Status.FIRED
    assert result.statuses[first_judged + 41] is Status.FIRED
    assert "that counts from 40 points on" in result.results[first_judged + 39].reason


def test_changed_kind_resets_the_count() -> None:
    under, fluctuating = [30.0] * 9 + [9.0], [95.0] * 9 + [9.0]
    node = series(np.column_stack([under * 5 + fluctuating * 8, [95.0] * 130]), interval_s=60.0)

    result = judge(node, A_POINT_A_MINUTE, closed=False)

    assert result.first_fire is not None
    assert result.first_fire >= 50.0 + 40.0


def test_clean_evaluation_resets_the_count_of_a_low_gpu() -> None:
    node = minutely([30.0] * 50 + [95.0] * 2 + [30.0] * 90)

    result = judge(node, A_POINT_A_MINUTE, closed=False)

    assert result.first_fire is not None
    assert result.first_fire > 50.0 + 2.0 + 40.0


def test_pause_neither_counts_for_nor_breaks_a_low_streak() -> None:
    paused = judge(minutely([30.0] * 40 + [0.0] * 15 + [30.0] * 40), A_POINT_A_MINUTE, closed=False)
    steady = judge(minutely([30.0] * 80), A_POINT_A_MINUTE, closed=False)

    assert paused.first_fire is not None
    assert steady.first_fire is not None
    assert paused.first_fire == steady.first_fire + 15.0


def test_early_closed_stream_has_no_verdict() -> None:
    result = judge(series(training(5.0)))

    assert result.last.status is Status.WARMING_UP
    assert "600 of the 1,000 points of patience; its stream has ended" in result.last.reason


def test_missing_samples_of_a_gpu_do_not_count() -> None:
    half, low = training(30.0), np.full(3_600, 40.0)
    half[::2] = np.nan
    low[1::2] = np.nan

    result = judge(series(np.column_stack([half, low])), closed=False)

    assert result.first_fire is not None
    assert result.last.worst == "gpu1"
    assert result.last.plain_details["gpus"]["gpu0"]["kind"] is None


def test_hardly_sampled_gpu_is_left_undecided() -> None:
    rare = np.full(6_000, np.nan)
    rare[::8] = 20.0
    rare[:1_200] = 20.0

    result = judge(series(np.column_stack([training(50.0), rare])), closed=False)

    assert result.last.status is Status.OK
    assert result.last.plain_details["gpus"]["gpu1"]["gpu_95"] is None


def test_gpu_that_appears_later_has_its_own_patience() -> None:
    late = np.full(4_800, np.nan)
    late[2_400:] = 25.0

    result = judge(series(np.column_stack([training(40.0), late])), closed=False)

    assert result.first_fire is not None
    assert 20.0 + (1_000 + 1_000) / 120.0 < result.first_fire <= 20.0 + 20.0


def test_never_active_gpu_beside_a_working_one_is_only_named() -> None:
    result = judge(series(np.column_stack([training(25.0), idle(25.0)])), closed=False)

    assert result.first_fire is None
    assert result.last.plain_details["never_active"] == ["gpu1"]


def test_node_without_gpus_waits_and_then_does_not_apply() -> None:
    node = series(np.empty((240, 0)))
    minute = next(iter(node_minutes(node, closed=False)))
    nothing = replace(minute.view, watermark_s=None, first_sample_at=None)

    assert RULE.judge(RULE.state_type(), nothing, DEFAULTS).status is Status.WAITING_FOR_DATA
    assert set(judge(node).statuses) == {Status.NOT_APPLICABLE}


def test_patience_at_60_s_sampling_is_20_points() -> None:
    result = judge(minutely([95.0] * 10), closed=False)

    assert result.last.reason == "algo-1 has 10 of the 20 points of patience, about 11 min left."


def test_patience_in_points_at_60_s_recommends_seconds() -> None:
    result = judge(minutely([95.0] * 10), LowGPUUtilizationParameters(patience=1_000), closed=False)

    assert result.last.reason == (
        "algo-1 has 10 of the 1,000 points of patience, about 16.5 h left (1,000 points are 16.7 h at a sampling "
        "interval of 60 s: better give patience_s, and window_s where the rule has one, in seconds)."
    )


def test_patience_and_window_in_seconds_are_converted() -> None:
    in_seconds = LowGPUUtilizationParameters(window_s=1_200.0, patience_s=1_200.0)
    node = minutely([30.0] * 70)

    assert judge(node, in_seconds).statuses == judge(node, A_POINT_A_MINUTE).statuses
    assert RULE.window_points(in_seconds, 60.0) == 20
    assert RULE.clear_after_s(in_seconds, 60.0) == 3 * 1_200.0


def test_window_of_fewer_than_20_points_judges_20() -> None:
    for parameters in (LowGPUUtilizationParameters(window=1), LowGPUUtilizationParameters(window_s=30.0)):
        assert RULE.window_points(parameters, 60.0) == 20
    assert RULE.window_points(LowGPUUtilizationParameters(window=21), 60.0) == 21

    short, twenty = (
        judge(minutely([30.0] * 90), LowGPUUtilizationParameters(window=window, patience=20)) for window in (5, 20)
    )
    assert short.results == twenty.results


def test_window_above_2500_points_error_names_the_valid_range() -> None:
    assert RULE.window_points(LowGPUUtilizationParameters(window_s=150_000.0), 60.0) == 2_500
    with pytest.raises(RuleConfigError, match="at most 150000 s, which are 2,500 points at the sampling") as caught:
        RULE.window_points(LowGPUUtilizationParameters(window_s=150_060.0), 60.0)

    assert (caught.value.rule, caught.value.field, caught.value.value) == ("LowGPUUtilization", "window_s", 150_060.0)


def test_waste_of_two_low_gpus_of_four_is_their_idleness() -> None:
    gpu = np.full((80, 4), [95.0, 30.0, 40.0, 95.0])

    result = judge(series(gpu, interval_s=60.0), A_POINT_A_MINUTE, closed=False)

    assert (result.last.status, result.last.worst) == (Status.FIRED, "gpu1")
    assert result.last.wasted_share == pytest.approx((0.7 + 0.6) / 4.0)
    assert result.last.affected_share == 1.0
    assert result.last.advice == (
        "Raise the batch size, make fewer blocking calls, or distribute the work in another way; if the GPUs have "
        "nothing more to do and cores are free, take a smaller instance: gpu1 on algo-1 was at most 30 % busy in 95 % "
        "of its newest samples at work."
    )


def test_late_onset_has_shares_of_judged_and_of_paid_time() -> None:
    result = judge(minutely([0.0] * 15 + [100.0] * 61 + [30.0] * 80), A_POINT_A_MINUTE, closed=False)

    assert result.last.status is Status.FIRED
    assert result.last.affected_share == pytest.approx(62.0 / 121.0)
    assert result.last.wasted_share == pytest.approx(80.0 * 0.7 / 156.0)


def test_recent_fault_costs_no_more_than_its_own_time() -> None:
    result = judge(minutely([90.0] * 300 + [30.0] * 61), A_POINT_A_MINUTE, closed=False)

    assert result.last.status is Status.FIRED
    assert result.last.affected_share == pytest.approx(43.0 / 341.0, abs=0.01)
    assert result.last.wasted_share == pytest.approx(43.0 / 341.0, abs=0.01)


def test_advice_on_fluctuation_is_to_find_what_the_gpu_waits_for() -> None:
    result = judge(series(with_idle_every(training(20.0), every_s=2.0, idle_s=1.0)), closed=False)

    assert result.last.advice is not None
    assert result.last.advice.startswith(
        "Look for what gpu0 on algo-1 waits for again and again, idle at 0 % and then busy at 97 %: "
    )


def test_given_a_healthy_node_when_judged_then_nothing_is_wasted() -> None:
    result = judge(minutely([95.0] * 60), A_POINT_A_MINUTE)

    assert (result.last.status, result.last.affected_share) == (Status.OK, 0.0)
    assert (result.last.advice, result.last.wasted_share) == (None, None)


def test_details_hold_the_box_of_the_whole_history() -> None:
    values = np.concatenate([training(12.0), idle(5.0), training(12.0, level=80.0, seed=9)])

    details = judge(series(values), closed=False).last.plain_details["gpus"]["gpu0"]

    kept = values[values > 0.0]
    p25, p50, p75, p95 = np.quantile(kept, [0.25, 0.5, 0.75, 0.95])
    assert (details["p25"], details["p50"], details["p75"]) == (p25, p50, p75)
    assert details["p95"] == pytest.approx(p95, rel=1e-12)
    assert details["gpu_max"] == kept.max()
    assert details["upper"] == min(p75 + 1.5 * (p75 - p25), kept.max())
    assert details["lower"] == max(p25 - 1.5 * (p75 - p25), kept.min())
    assert details["gpu_95"] == pytest.approx(np.quantile(values[-500:], 0.95), rel=1e-12)
    assert details["gpu_5"] == pytest.approx(np.quantile(values[-500:], 0.05), rel=1e-12)


def test_onset_and_gpus_of_a_late_fault_are_those_of_the_data() -> None:
    gpu = np.column_stack([training(60.0), np.concatenate([training(40.0), training(20.0, level=30.0)])])

    result = judge(series(gpu), closed=False)

    assert result.last.status is Status.FIRED
    assert result.last.onset == pytest.approx(JOB_START + 40.0 * 60.0, abs=60.0)
    assert result.last.gpus == ("gpu1",)


def test_lasting_cheap_dips_are_mentioned_without_a_finding() -> None:
    result = judge(series(with_idle_every(training(40.0), every_s=30.0, idle_s=3.0)), closed=False)

    assert result.first_fire is None
    assert "its dips leave 10 % of that time unused, and count from 15 % on" in result.last.reason


def test_single_idle_stretch_in_the_window_is_no_fluctuation() -> None:
    values = training(40.0)
    values[3_000:3_100] = 0.0

    result = judge(series(values), closed=False)

    assert {said.plain_details["gpus"]["gpu0"]["kind"] for said in result.results if said.data_points > 1_000} == {None}


@pytest.mark.parametrize(("idle_s", "fires"), [(60.0, False), (180.0, True)])
def test_costly_saves_every_ten_minutes_are_a_finding(idle_s: float, fires: bool) -> None:
    result = judge(series(with_idle_every(training(60.0), every_s=600.0, idle_s=idle_s)), closed=False)

    assert (result.last.status is Status.FIRED) is fires
    assert f"he GPUs of algo-1 pause for {idle_s:g} s every 10 min" in result.last.reason
    if fires:
        assert (result.last.measure, result.last.measured) == (PAUSED, 30.0)


def test_time_left_out_for_many_pauses_is_shown() -> None:
    work = [training(6.0), idle(3.0), training(11.0), idle(4.0), training(2.0)]

    result = judge(series(np.concatenate(work)), closed=False)

    assert result.last.reason.endswith("26.9 % of the samples of algo-1 since its first work were left out as pauses.")


def test_second_fire_on_one_gpu_adds_only_its_new_loss() -> None:
    def block(first: float, second: float) -> list[float]:
        return [90.0] * 40 + [first] * 60 + [90.0] * 60 + [second] * 60

    node = series(np.column_stack([block(40.0, 40.0), *([block(40.0, 90.0)] * 3)]), interval_s=60.0)
    result = judge(node, closed=False)

    fired = [(minute, said) for minute, said in zip(result.minutes, result.results, strict=True) if said.gpus]
    first = [said.wasted_share * minute for minute, said in fired if minute < 120.0 and said.wasted_share is not None]
    later = [said.wasted_share * minute for minute, said in fired if minute > 180.0 and said.wasted_share is not None]
    assert first[-1] == pytest.approx(0.6 * 60.0, abs=3.0)
    assert later[-1] - first[-1] == pytest.approx(0.6 * 60.0 / 4.0, abs=3.0)
