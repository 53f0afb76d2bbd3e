from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.unit.rules.step_batches import (
    DEFAULTS,
    EVAL,
    RULE,
    START_US,
    TRAIN,
    VIEW,
    batches,
    folded,
    judge,
    judged,
    slow_every,
    steady,
)
from trainguard.core.records import Status
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters
from trainguard.rules.step_outlier.rule import LOST_TIME, OUTLIERS
from trainguard.rules.step_outlier.series import MAX_SERIES
from trainguard.rules.step_outlier.text import StepOutlierKind


@pytest.mark.parametrize("count", [1_000, 10_000, 100_000])
@pytest.mark.parametrize(
    "shape",
    ["gaussian", "lognormal", "gamma", "checkpoint-600", "checkpoint-1000"],
)
def test_healthy_job_of_any_length_is_silent(shape: str, count: int) -> None:
    random = np.random.default_rng(count)
    seconds = {
        "gaussian": lambda: random.normal(0.4, 0.012, count),
        "lognormal": lambda: random.lognormal(-1.0, 0.2, count),
        "gamma": lambda: random.gamma(20.0, 0.02, count),
        "checkpoint-600": lambda: slow_every(steady(count), 600, 20.0),
        "checkpoint-1000": lambda: slow_every(steady(count), 1_000, 40.0),
    }[shape]()

    assert judge(batches(seconds)).status is Status.OK


@pytest.mark.parametrize("count", [2_000, 50_000])
def test_one_slow_step_in_60_makes_too_many_outliers(count: int) -> None:
    result = judge(batches(slow_every(steady(count), 60, 4.0)))

    assert result.status is Status.FIRED
    assert result.measured is not None
    assert result.threshold is not None
    assert result.measured > result.threshold
    assert result.measure == OUTLIERS
    assert result.worst == "algo-1/algo-1-905 TRAIN"


def test_one_slow_step_in_20_fires_by_its_time_cost() -> None:
    result = judge(batches(slow_every(steady(3_000), 20, 5.0)))

    assert result.status is Status.FIRED
    assert result.plain_details["algo-1"]["series"][0]["number_of_outliers"] == 0
    assert result.measured == pytest.approx(16.7, abs=0.7)
    assert result.measure == LOST_TIME
    assert result.threshold == 10.0


@pytest.mark.parametrize(("factor", "status"), [(3.0, Status.OK), (3.5, Status.FIRED)])
def test_slow_steps_fire_above_slow_share_only(factor: float, status: Status) -> None:
    # of 20 steps one costs (factor - 1) more than the median: 2 of 22 are 9.1 %, 2.5 of 22.5 are 11.1 %
    assert judge(batches(slow_every(np.full(2_100, 0.4), 20, factor))).status is status


@pytest.mark.parametrize(("outliers", "status"), [(10, Status.OK), (11, Status.FIRED)])
def test_outliers_fire_above_n_outliers_only(outliers: int, status: Status) -> None:
    seconds = steady(1_100)
    seconds[150 : 150 + outliers * 80 : 80] = 1.4

    result = judge(batches(seconds))

    assert result.plain_details["algo-1"]["series"][0]["number_of_outliers"] == outliers
    assert result.status is status


@pytest.mark.parametrize(("count", "status"), [(150, Status.WARMING_UP), (200, Status.WARMING_UP), (201, Status.OK)])
def test_verdict_needs_over_100_steps_after_the_first_100(count: int, status: Status) -> None:
    result = judge(batches(steady(count), size=37), followed=False)

    assert result.status is status
    assert result.data_points == count - 100
    if status is Status.WARMING_UP:
        assert result.patience == f"{count}/200"


def test_first_100_slow_steps_are_left_out() -> None:
    seconds = steady(2_000)
    seconds[:100] = 30.0

    result = judge(batches(seconds, size=33))

    assert result.status is Status.OK
    assert result.plain_details["algo-1"]["series"][0]["step_stats"]["max"] < 0.6


def test_early_ended_stream_has_no_verdict() -> None:
    ended = FrameworkView(node="algo-1", watermark_s=1_700_000_000.0, closed=True)

    result = judge(batches(steady(150)), view=ended, followed=False)

    assert result.status is Status.WARMING_UP
    assert result.kind == StepOutlierKind.TOO_SHORT
    assert result.reason.endswith("the job has ended, too early for a verdict.")


def test_given_no_steps_when_judged_then_it_waits() -> None:
    assert judge().reason == "No training step was seen."
    only_eval = judge(batches(steady(300), mode=EVAL), parameters=StepOutlierParameters(mode="TRAIN"))
    assert only_eval.status is Status.WAITING_FOR_DATA
    assert only_eval.reason == "No training step in mode TRAIN was seen."


@pytest.mark.parametrize(
    ("mode", "judged"),
    [
        (None, {TRAIN, EVAL}),
        ("None", {TRAIN, EVAL}),
        ("TRAIN", {TRAIN}),
        ("eval", {EVAL}),
        (EVAL, {EVAL}),
        ("custom_step", {"custom_step"}),
    ],
)
def test_only_the_selected_mode_is_judged(mode: str | None, judged: set[str]) -> None:
    parameters = StepOutlierParameters(mode=mode)
    streams = [batches(steady(400), mode=name) for name in (TRAIN, EVAL, "custom_step")]

    result = judge(*streams, parameters=parameters)

    assert {item["mode"] for item in result.plain_details["algo-1"]["series"]} == judged


def test_two_modes_of_different_pace_cause_no_outliers() -> None:
    result = judge(batches(steady(2_000)), batches(steady(300) / 20.0, mode=EVAL))

    assert result.status is Status.OK
    assert result.plain_details["algo-1"]["series_judged"] == 2


def test_one_slow_process_of_two_is_named() -> None:
    slow = batches(slow_every(steady(2_000), 60, 4.0), process="algo-1-907")

    assert judge(batches(steady(2_000)), slow).worst == "algo-1/algo-1-907 TRAIN"


def test_shorter_steps_are_reported_and_do_not_fire() -> None:
    seconds = steady(5_000)
    seconds[200::120] = 0.01

    result = judge(batches(seconds))

    assert result.status is Status.OK
    assert result.plain_details["algo-1"]["series"][0]["short_steps"] == 40


def test_steps_of_equal_length_have_no_outlier() -> None:
    result = judge(batches(np.full(1_000, 0.25)))

    assert result.status is Status.OK
    assert (result.measured, result.plain_details["algo-1"]["series"][0]["stddev"]) == (0.0, 0.0)


def test_steps_of_no_length_cause_no_division_by_zero() -> None:
    assert judge(batches(np.zeros(1_000))).status is Status.OK


def test_deviation_is_exact_for_squares_beyond_64_bits() -> None:
    seconds = np.tile([60_000.0, 80_000.0], 5_000)

    series = folded(batches(seconds)).series[0]
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(series), type=type(series))

    assert series.squares_high > 0
    assert again.deviation_us == 1e10
    assert again.mean_us == 7e10


def test_step_statistics_match_numpy() -> None:
    seconds = np.random.default_rng(5).lognormal(-1.0, 0.2, 5_000)

    details = judge(batches(seconds)).plain_details["algo-1"]["series"][0]

    rest = np.rint(seconds[100:] * 1e6) / 1e6
    assert details["step_stats"]["mean"] == pytest.approx(rest.mean(), rel=1e-12)
    assert details["stddev"] == pytest.approx(rest.std(), rel=1e-9)
    assert (details["step_stats"]["min"], details["step_stats"]["max"]) == (rest.min(), rest.max())
    for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert details["step_stats"][name] == pytest.approx(np.quantile(rest, quantile), rel=0.01)


def test_newest_32_slow_steps_of_all_processes_remain() -> None:
    streams = [batches(slow_every(steady(4_000, seed=seed), 60, 4.0), process=f"algo-1-{seed}") for seed in (901, 902)]

    slow = judge(*streams).plain_details["algo-1"]["slow_steps"]

    assert len(slow) == 32
    assert {item["process"] for item in slow} == {"algo-1-901", "algo-1-902"}
    assert {int(item["step"]) % 60 for item in slow} == {59}
    assert min(int(item["step"]) for item in slow) > 2_800
    assert [item["start"] for item in slow] == sorted(item["start"] for item in slow)
    assert all(item["duration"] > 1.2 for item in slow)


def test_processes_beyond_the_room_are_counted_and_named() -> None:
    names = [f"algo-1-{number:04d}" for number in range(MAX_SERIES + 3)]
    seconds = slow_every(steady(300), 60, 4.0)
    forwards = folded(*(batches(seconds, process=name) for name in names))
    backwards = folded(*(batches(seconds, process=name) for name in reversed(names)))

    result = judged(forwards)
    assert result.reason.endswith("; 3 series were not judged: no room is left.")
    assert result.plain_details["algo-1"]["steps_not_judged"] == 900
    assert msgspec.msgpack.encode(forwards) == msgspec.msgpack.encode(backwards)


def test_state_of_many_varied_processes_stays_under_64_kib() -> None:
    random = np.random.default_rng(2)
    streams = (
        batches(np.exp(random.uniform(-6.0, 6.0, 400)), process=f"algo-1-{number}") for number in range(MAX_SERIES)
    )

    state = folded(*streams)

    assert len(msgspec.msgpack.encode(state)) < 64 * 1_024
    assert all(len(series.durations.bins) <= 64 for series in state.series)


def test_state_of_eight_healthy_processes_is_small() -> None:
    streams = (batches(steady(20_000, seed=number), process=f"algo-1-{number}") for number in range(8))

    assert len(msgspec.msgpack.encode(folded(*streams))) < 3_000


def test_reason_of_a_fire_has_the_numbers_of_the_job() -> None:
    seconds = np.full(1_300, 0.1)
    seconds[105::60] = 0.4

    assert judge(batches(seconds)).reason == (
        "algo-1-905 TRAIN of algo-1: 20 of 1,200 steps took over 298 ms, more than the 10 that are plausible."
    )
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 5_400.0


def test_fire_has_its_affected_and_lost_shares() -> None:
    seconds = np.full(2_100, 0.4)
    seconds[99::20] = 2.0

    result = judge(batches(seconds))

    total = 100 * 2.0 + 1_900 * 0.4
    assert result.affected_share == pytest.approx(100 * 2.0 / total, rel=0.02)
    assert result.wasted_share == pytest.approx(100 * 1.6 / total, rel=0.02)
    # The first 100 steps are left out, the first slow one among them.
    assert result.onset == pytest.approx(START_US / 1e6 + 2.0 + 118 * 0.4, abs=1.0)


def test_given_no_fire_when_reported_then_there_is_no_advice() -> None:
    result = judge(batches(steady(1_000)))

    assert (result.advice, result.affected_share, result.wasted_share) == (None, None, None)


def test_advice_names_the_distance_of_regular_slow_steps() -> None:
    assert (judge(batches(slow_every(np.full(2_000, 0.4), 60, 4.0))).advice or "").endswith("They come every 60 steps.")
    irregular = np.full(2_000, 0.4)
    irregular[np.random.default_rng(3).choice(np.arange(200, 2_000), 40, replace=False)] = 1.6
    advice = judge(batches(irregular)).advice or ""
    assert advice == (
        "No recorded event takes a clearly larger share of the slow steps than of the others. Look in the log of "
        "algo-1-905 TRAIN at what runs at the times of the slow steps."
    )


def test_slow_steps_in_a_row_name_no_distance() -> None:
    seconds = np.full(1_000, 0.4)
    seconds[300:330] = 4.0

    assert "They come" not in (judge(batches(seconds)).advice or "")


def evaluated(*, slow: float, every: int = 12) -> Iterable[StepBatch]:
    """Evaluation steps of one process, one of each few slower by a factor."""
    return batches(slow_every(np.full(500, 0.4), every, slow), mode=EVAL)


def test_slow_steps_of_a_brief_mode_cost_little_overall() -> None:
    training = batches(np.full(20_000, 0.4))

    alone, beside = judge(evaluated(slow=6.0)), judge(training, evaluated(slow=6.0))

    assert alone.status is Status.FIRED
    assert beside.status is Status.OK
    assert beside.plain_details["algo-1"]["series"][0]["mode"] == EVAL
    assert beside.plain_details["algo-1"]["series"][0]["slow_share_percent"] == pytest.approx(
        100.0 * 33 * 2.0 / (19_900 * 0.4 + 367 * 0.4 + 33 * 2.4), rel=0.02
    )


def test_cost_of_one_slow_mode_is_a_share_of_the_whole_process() -> None:
    result = judge(batches(np.full(1_700, 0.4)), evaluated(slow=12.0))

    steps_s = 1_600 * 0.4 + 367 * 0.4 + 33 * 4.8
    assert result.worst == "algo-1/algo-1-905 EVAL"
    assert result.wasted_share == pytest.approx(33 * 4.4 / steps_s, rel=0.02)
    assert result.affected_share == pytest.approx(33 * 4.8 / steps_s, rel=0.02)
    assert result.reason.endswith(" of the time in steps (slow_share 10 %).")


def test_time_of_another_process_does_not_dilute_slow_steps() -> None:
    slow = list(batches(slow_every(np.full(2_100, 0.4), 20, 5.0)))

    assert judge(slow, batches(np.full(20_000, 0.4), process="algo-1-906")).wasted_share == judge(slow).wasted_share


def test_cost_of_slow_steps_is_a_share_of_all_paid_time() -> None:
    seconds = slow_every(np.full(2_100, 0.4), 20, 5.0)
    first_step_at = VIEW.watermark_s - 4_000.0 if VIEW.watermark_s is not None else None
    paused = replace(VIEW, first_step_at=first_step_at)

    result = judge(batches(seconds), view=paused)

    assert result.wasted_share == pytest.approx(100 * 1.6 / 4_000.0, rel=0.02)
    assert judge(batches(seconds), view=replace(VIEW, first_step_at=VIEW.watermark_s)).wasted_share == pytest.approx(
        100 * 1.6 / (100 * 2.0 + 1_900 * 0.4), rel=0.02
    )


@pytest.mark.parametrize("size", [30, 600])
def test_reported_outliers_took_at_least_the_reported_time(size: int) -> None:
    seconds = slow_every(np.random.default_rng(3).lognormal(-1.0, 0.4, 5_000), 60, 4.0)
    facts = {fact.name: fact.value for fact in judge(batches(seconds, size=size)).facts}
    counted = np.rint(1e6 * seconds)[100:]
    limit = counted.mean() + DEFAULTS.stddev * counted.std()

    above_us = round(1e6 * float(facts["outlier_above"]))
    assert limit < above_us <= 1.03 * limit
    assert facts["slow_steps"] == int((counted >= above_us).sum()) > 0
