from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.node_replay import NodeSeries, Replay, node_minutes, replay, series
from trainguard.core.errors import RuleConfigError
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.batch_size.rule import BatchSize, BatchSizeParameters

RULE = BatchSize()
DEFAULTS = BatchSizeParameters()
A_POINT_A_MINUTE = BatchSizeParameters(window=20, patience=20)
SMALL, LARGE = 40.0, 92.0


def judge(node: NodeSeries, parameters: BatchSizeParameters = DEFAULTS, *, closed: bool = True) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def training(minutes: float, level: float, *, seed: int = 3) -> FloatArray:
    """Whole percents about ``level``, two a second."""
    noise = np.random.default_rng(seed).normal(level, 4.0, int(minutes * 120))
    return np.clip(np.rint(noise), 11.0, 100.0)


def idle(minutes: float) -> FloatArray:
    return np.zeros(int(minutes * 120))


def minutely(values: list[float]) -> NodeSeries:
    """One point a minute, so that every kept point is an evaluation."""
    return series(values, interval_s=60.0)


def test_batch_too_small_from_the_start_fires_by_minute_15() -> None:
    result = judge(series(training(20.0, SMALL)), closed=False)

    assert result.first_fire is not None
    assert result.first_fire <= 15.0


def test_well_used_node_with_pauses_and_checkpoints_is_silent() -> None:
    work = training(15.0, LARGE)
    work[np.arange(work.size) * 0.5 % 600.0 >= 560.0] = 0.0
    node = series(np.concatenate([idle(12.0), work, idle(4.0), work, idle(9.0), work, idle(15.0)]))

    result = judge(node)

    assert result.first_fire is None
    assert result.last.status is Status.OK


def test_six_minute_light_phase_of_a_well_used_job_is_silent() -> None:
    evaluation = training(6.0, 30.0)
    result = judge(series(np.concatenate([training(20.0, LARGE), evaluation, training(20.0, LARGE)])))

    assert Status.OK in result.statuses
    assert result.first_fire is None
    assert any("and counts from 1,000 points on" in said.reason for said in result.results)


@pytest.mark.parametrize(
    ("gpu", "memory", "cpu", "fires"),
    [
        pytest.param(69.0, 69.0, 138.0, True, id="all-below"),
        pytest.param(70.0, 30.0, 40.0, False, id="gpu-on-threshold"),
        pytest.param(30.0, 70.0, 40.0, False, id="memory-on-threshold"),
        pytest.param(30.0, 30.0, 140.0, False, id="cpu-on-threshold"),
    ],
)
def test_all_three_values_must_be_below_their_thresholds(gpu: float, memory: float, cpu: float, fires: bool) -> None:
    # the replayed node's mean CPU is half of its busiest core
    node = series(np.full(90, gpu), gpu_memory=np.full(90, memory), cpu=cpu, interval_s=60.0)

    assert (judge(node, A_POINT_A_MINUTE).first_fire is not None) is fires


def test_one_busy_gpu_of_four_means_the_batch_is_not_too_small() -> None:
    gpu = np.full((90, 4), SMALL)
    gpu[:, 2] = LARGE

    result = judge(series(gpu, gpu_memory=np.full((90, 4), 20.0), interval_s=60.0), A_POINT_A_MINUTE)

    assert result.first_fire is None
    assert (result.last.worst, result.last.measured, result.last.threshold) == ("gpu2", LARGE, 70.0)


def test_never_active_gpu_does_not_count() -> None:
    gpu = np.full((90, 2), SMALL)
    gpu[:, 1] = 0.0

    result = judge(series(gpu, gpu_memory=np.full((90, 2), 90.0) * [0.2, 1.0], interval_s=60.0), A_POINT_A_MINUTE)

    assert result.first_fire is not None
    assert "gpu1" not in result.last.plain_details


def test_rule_warms_up_until_points_exceed_patience() -> None:
    result = judge(minutely([LARGE] * 102), BatchSizeParameters(patience=100), closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 100 + (Status.OK,) * 2
    assert result.results[99].patience == "100/100"


def test_small_batch_at_60_s_sampling_fires_within_half_an_hour() -> None:
    result = judge(minutely([SMALL] * 30), closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 20 + (Status.OK,) * 8 + (Status.FIRED,) * 2


def test_small_batch_fires_after_two_windows_and_not_before() -> None:
    result = judge(minutely([SMALL] * 63), A_POINT_A_MINUTE, closed=False)

    first_judged = 20
    assert result.statuses[first_judged + 39] is Status.OK
    assert result.statuses[first_judged + 40] is Status.FIRED


def test_clean_evaluation_resets_the_count_of_small_batches() -> None:
    result = judge(minutely([SMALL] * 50 + [95.0] * 2 + [SMALL] * 90), A_POINT_A_MINUTE, closed=False)

    assert result.first_fire is not None
    assert result.first_fire > 50.0 + 2.0 + 40.0


def test_long_tail_adds_nothing_to_a_small_batch() -> None:
    result = judge(minutely([SMALL] * 39 + [0.0] * 60), A_POINT_A_MINUTE)

    assert result.first_fire is None
    assert result.last.data_points == 39


def test_sentences_of_a_fire_have_the_numbers_of_the_job() -> None:
    gpu = np.full((80, 2), [31.0, 44.0])

    result = judge(
        series(gpu, gpu_memory=np.full((80, 2), [18.0, 12.0]), cpu=50.0, interval_s=60.0),
        A_POINT_A_MINUTE,
        closed=False,
    )

    assert result.last.reason == (
        "over the last 20 points (20 min) the 95th percentiles on algo-1 are 25 % of CPU (threshold 70 %), at most "
        "44 % of GPU utilization (gpu1, threshold 70 %) and at most 18 % of GPU memory activity (gpu0, threshold "
        "70 %); this has lasted for 80 points (79 min)."
    )
    assert result.last.advice == (
        "Raise the batch size, or take a smaller instance: even the busiest GPU, gpu1, is at or below 44 % in 95 % of "
        "the newest points of algo-1."
    )
    assert result.last.affected_share == 1.0
    assert result.last.wasted_share == pytest.approx((0.69 + 0.56) / 2.0)


def test_affected_share_of_a_late_onset_is_of_points_found_low() -> None:
    result = judge(minutely([95.0] * 60 + [SMALL] * 80), A_POINT_A_MINUTE, closed=False)

    assert result.last.status is Status.FIRED
    assert result.last.affected_share == pytest.approx(62.0 / 120.0)


def test_box_whiskers_lie_within_their_own_data() -> None:
    memory = training(30.0, 20.0, seed=5)

    details = judge(series(training(30.0, 60.0), gpu_memory=memory), closed=False).last.plain_details

    newest = memory[-500:]
    p25, p50, p75, p95 = np.quantile(newest, [0.25, 0.5, 0.75, 0.95])
    box = details["gpu0_memory"]
    assert (box["p25"], box["p50"], box["p75"], box["p95"]) == pytest.approx((p25, p50, p75, p95))
    assert box["upper"] == min(p75 + 1.5 * (p75 - p25), newest.max())
    assert box["lower"] == max(p25 - 1.5 * (p75 - p25), newest.min())
    assert set(details) == {"cpu", "gpu0", "gpu0_memory", "memory_note", "last_timestamp"}
    assert "memory controller" in details["memory_note"]


def test_box_of_changed_utilization_is_of_all_kept_points() -> None:
    values = np.concatenate([training(30.0, LARGE), training(6.0, SMALL)])

    box = judge(series(values), closed=False).last.plain_details["gpu0"]

    assert box["p50"] == np.quantile(values, 0.5)
    assert box["window_p95"] == pytest.approx(np.quantile(values[-500:], 0.95))


@pytest.mark.parametrize("missing", ["memory", "cpu"])
def test_series_without_new_samples_says_nothing_of_the_batch(missing: str) -> None:
    memory, cpu = np.full(200, 20.0), np.full(200, 40.0)
    (memory if missing == "memory" else cpu)[30:] = np.nan

    result = judge(
        series(np.full(200, SMALL), gpu_memory=memory, cpu=cpu, interval_s=60.0), A_POINT_A_MINUTE, closed=False
    )

    assert result.last.status is Status.WARMING_UP
    assert result.last.reason.startswith("too few of the newest points of algo-1 have samples")


def test_node_without_gpus_waits_and_then_does_not_apply() -> None:
    node = series(np.empty((240, 0)))
    minute = next(iter(node_minutes(node, closed=False)))
    nothing = replace(minute.view, watermark_s=None, first_sample_at=None)

    assert RULE.judge(RULE.state_type(), nothing, DEFAULTS).status is Status.WAITING_FOR_DATA
    assert set(judge(node).statuses) == {Status.NOT_APPLICABLE}


def test_never_used_node_warms_up() -> None:
    assert judge(series(idle(30.0)), closed=False).last.status is Status.WARMING_UP


@pytest.mark.parametrize("interval_s", [0.1, 0.2, 0.5, 1.0, 5.0])
def test_window_and_patience_in_seconds_hold_at_any_sampling(interval_s: float) -> None:
    parameters = BatchSizeParameters(window_s=120.0, patience_s=120.0)
    points = round(16.0 * 60.0 / interval_s)

    result = judge(series(np.full(points, SMALL), interval_s=interval_s), parameters, closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 2 + (Status.OK,) * 4 + (Status.FIRED,) * 10


def test_too_long_window_in_seconds_error_names_the_maximum() -> None:
    parameters = BatchSizeParameters(window_s=3_600.0)

    assert RULE.window_points(parameters, 5.0) == 720
    assert RULE.clear_after_s(parameters, 5.0) == 3 * 3_600.0
    with pytest.raises(RuleConfigError, match=r"BatchSize: parameter window_s is 3600\.0, expected at most 1250 s"):
        RULE.window_points(parameters, 0.5)


def test_cheap_light_phase_is_mentioned_without_a_finding() -> None:
    result = judge(minutely([LARGE] * 600 + [SMALL] * 80), A_POINT_A_MINUTE, closed=False)

    assert result.first_fire is None
    assert "of its time unused, and counts from 15 % on" in result.last.reason


def test_onset_and_gpus_of_a_small_batch_are_those_of_the_data() -> None:
    result = judge(minutely([SMALL] * 70), A_POINT_A_MINUTE, closed=False)

    assert (result.last.onset, result.last.gpus) == (result.view.first_active_at, ("gpu0",))


def test_what_is_low_is_no_longer_than_its_points_stand() -> None:
    gpu = np.full((123, 2), np.nan)
    seen = np.cumsum([0, *([3, 3, 3, 3, 2] * 9)[:41]])  # samplers take turns: every 90 s, now and then after 60 s
    gpu[seen[seen < 123]] = SMALL
    node = series(gpu, interval_s=30.0)

    result = judge(node, BatchSizeParameters(window=20, patience=2))

    facts = {fact.name: fact for fact in result.last.facts}
    window = facts["window"]
    newest = float(node.times[seen[seen < 123][-1]])
    assert float(facts["low_time"].value) == pytest.approx(newest - float(node.times[0]))
    assert window.start is not None
    assert window.end is not None
    assert float(window.value) == pytest.approx(window.end - window.start, abs=90.0)
    assert float(window.value) < 19.6 * 90.0
