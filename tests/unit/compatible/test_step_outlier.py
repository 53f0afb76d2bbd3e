from typing import Any

import numpy as np
import pytest

from tests.unit.compatible.profiles import STEP, Profile, event, origin, phase, report

EVAL = "Step:ModeKeys.EVAL"


def profile(durations: list[float], *, numbers: list[Any] | None = None, minutes: int = 1) -> Profile:
    """Steps of 0.1 s apart in the first minute."""
    given = numbers or [str(number) for number in range(len(durations))]
    steps = [event(STEP, 1, 0.5 + 0.1 * at, of, step_num=given[at], pid=1) for at, of in enumerate(durations)]
    return Profile().minutes(minutes).trace(60 * minutes + 30, [origin(), phase(1, STEP), *steps])


def with_outliers(count: int, *, of: int = 120) -> list[float]:
    return [0.04] * (of - count) + [0.08] * count


@pytest.mark.parametrize(("steps", "shown"), [(100, 0), (101, 1)])
def test_steps_are_described_above_one_hundred_only(steps: int, shown: int) -> None:
    found = report(profile([0.04] * steps), "StepOutlier")

    assert len(found["Details"]["step_details"]) == shown
    assert found["Datapoints"] == steps


@pytest.mark.parametrize(("outliers", "triggered"), [(1, 0), (2, 0), (3, 1)])
def test_outliers_trigger_above_the_parameter_only(outliers: int, triggered: int) -> None:
    found = report(profile(with_outliers(outliers)), "StepOutlier", n_outliers=2)

    assert (found["RuleTriggered"], found["Violations"]) == (triggered, triggered * outliers)
    details = found["Details"]["step_details"]["algo-1-905"]
    assert details["number_of_outliers"] == outliers
    assert details["step_numbers"] == [str(number) for number in range(120 - outliers, 120)]
    assert sum(details["probs"]) == 120 - outliers
    assert len(details["binedges"]) == 101


def test_outliers_of_the_first_window_count_in_each_later_one() -> None:
    found = report(profile(with_outliers(3), minutes=4), "StepOutlier", n_outliers=2)

    assert (found["RuleTriggered"], found["Violations"]) == (4, 12)


def test_identical_steps_have_an_empty_normal_histogram() -> None:
    details = report(profile([0.0] * 101), "StepOutlier")["Details"]["step_details"]["algo-1-905"]

    assert (sum(details["probs"]), details["binedges"][0], details["binedges"][-1]) == (0, 0, 1)


def test_only_the_last_large_enough_of_two_modes_is_shown() -> None:
    steps = [event(STEP, 1, 0.5 + 0.1 * at, 0.04, step_num=str(at)) for at in range(150)]
    steps += [event(EVAL, 2, 16 + 0.1 * at, 0.02, step_num=str(at)) for at in range(120)]
    steps += [event("Step:ModeKeys.PREDICT", 3, 30 + 0.1 * at, 0.02, step_num=str(at)) for at in range(90)]
    found = Profile().minutes(1).trace(80, [origin(), *(phase(at, f"p{at}") for at in (1, 2, 3)), *steps])

    details = report(found, "StepOutlier", mode=EVAL)["Details"]["step_details"]["algo-1-905"]

    assert details["phase"] == EVAL


def test_mode_setting_adds_events_and_excludes_none() -> None:
    events = [event("Forward", 1, 1, 1), event("Backward", 1, 2, 1), event(STEP, 1, 3, 1)]
    found = Profile().minutes(1).trace(80, [origin(), phase(1, "p"), *events])

    assert report(found, "StepOutlier", mode="Forward")["Datapoints"] == 2
    assert report(found, "StepOutlier")["Datapoints"] == 1


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([1, 2], [2]),
        (["1", 2], ["2"]),
        ([1.5, 2], [2.0]),
        ([None, 2], [2]),
        ([2, None], [None]),
    ],
)
def test_mixed_step_number_types_are_shown_as_in_one_array(numbers: list[Any], shown: list[Any]) -> None:
    given = [*([numbers[0]] * 119), numbers[1]]

    details = report(profile(with_outliers(1), numbers=given), "StepOutlier")["Details"]["step_details"]["algo-1-905"]

    assert repr(details["step_numbers"]) == repr(shown)


def test_outlier_correlates_events_that_touch_its_interval() -> None:
    steps = [event(STEP, 1, 0.5 + 0.1 * at, 0.04, step_num=str(at)) for at in range(119)]
    slow = event(STEP, 1, 20, 1.0, step_num="119")
    others = [event("before", 2, 18, 2.0), event("inside", 2, 20.2, 0.5), event("after", 2, 21.1, 1.0)]
    found = Profile().minutes(1).trace(80, [origin(), phase(1, STEP), phase(2, "cpu"), *steps, slow, *others])

    details = report(found, "StepOutlier", n_outliers=0)["Details"]

    assert list(details) == ["step_details", "ratio", "CPU", "CPU_total", "phase", "phase_time"]
    assert details["CPU_total"] == {"before": 2_000_000, "inside": 500_000}
    assert details["phase"] == {STEP: 100}


def test_repeated_step_number_correlates_its_first_interval() -> None:
    steps = [event(STEP, 1, 0.5 + 0.1 * at, 0.04, step_num=str(at)) for at in range(119)]
    slow = [event(STEP, 1, 20, 1.0, step_num="119"), event(EVAL, 3, 40, 1.0, step_num="119")]
    others = [event("first", 2, 20.2, 0.5), event("second", 2, 40.2, 0.5)]
    names = [phase(1, STEP), phase(2, "cpu"), phase(3, EVAL)]
    found = Profile().minutes(1).trace(80, [origin(), *names, *steps, *slow, *others])

    details = report(found, "StepOutlier", n_outliers=0)["Details"]

    assert details["CPU_total"] == {"first": 500_000}


def test_statistics_are_those_of_numpy_over_all_steps() -> None:
    seconds = np.random.default_rng(3).normal(0.04, 0.001, 150).round(6).tolist()

    details = report(profile(seconds), "StepOutlier", stddev=2.5)["Details"]["step_details"]["algo-1-905"]

    assert details["step_stats"]["p99"] == pytest.approx(np.quantile(seconds, 0.99), rel=1e-9)
    assert list(details["step_stats"]) == ["mean", "max", "p99", "p95", "p50", "min"]
    threshold = np.mean(seconds) + 2.5 * np.std(seconds)
    assert details["number_of_outliers"] == sum(of > threshold for of in seconds)
