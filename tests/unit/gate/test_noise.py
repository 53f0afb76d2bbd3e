"""A change is a regression, none, or not known, by the noise between runs and what is known of it beforehand."""

import math

import numpy as np
import pytest

from trainguard.gate.levels import RunLevels, levels_of
from trainguard.gate.noise import Answer, further_runs, judged, t_quantile
from trainguard.gate.runs import KINDS, Metric, Points, metric_of

KIND = KINDS[Metric.STEP_TIME]
LIMIT = math.log1p(KIND.tolerance)


@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [(0.99, 1.0, 31.8205), (0.975, 2.0, 4.3027), (0.99, 5.0, 3.3649), (0.98, 6.0, 2.6122), (0.99, 1e6, 2.3263)],
)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: float, value: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, rel=1e-4)


def levels(candidate: float, *baselines: float, within: float = 0.0) -> RunLevels:
    values = np.array([candidate, *baselines])
    return RunLevels(values, np.full(len(values), within), 1, 10, 10, 0, in_order=False)


QUIET = (0.0, 0.001, -0.001, 0.0005, -0.0005)
LOUD = (0.0, 0.03, -0.03, 0.015, -0.015)


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (levels(0.0, *QUIET), Answer.PASSED),
        (levels(-0.3, *QUIET), Answer.PASSED),
        (levels(0.02, *QUIET), Answer.REGRESSION),
        (levels(0.01, *QUIET), Answer.PASSED),
        (levels(0.02, *LOUD), Answer.INCONCLUSIVE),
        (levels(0.0, *LOUD), Answer.INCONCLUSIVE),
        (levels(0.2, *LOUD), Answer.REGRESSION),
        (levels(0.0, 0.0), Answer.PASSED),
        (levels(0.015, 0.0), Answer.INCONCLUSIVE),
        (levels(0.05, 0.0), Answer.REGRESSION),
        (levels(0.02, *QUIET, within=0.03), Answer.INCONCLUSIVE),
    ],
)
def test_answer_by_change_and_noise(found: RunLevels, answer: Answer) -> None:
    result = judged(found, KIND.prior, LIMIT, sign=1.0)
    assert result.answer is answer
    assert result.low <= result.change <= result.high
    mirrored = RunLevels(-found.levels, found.within, 1, 10, 10, 0, in_order=False)
    assert judged(mirrored, KIND.prior, LIMIT, sign=-1.0).answer is answer


def test_further_runs_decide_a_group_that_goes_on_alike() -> None:
    more = further_runs(levels(0.015, 0.0), KIND.prior, LIMIT, sign=1.0)
    assert more is not None
    assert 1 <= sum(more) <= 4
    loud = further_runs(levels(0.02, *LOUD), KIND.prior, LIMIT, sign=1.0)
    assert loud is not None
    assert sum(loud) > 10
    assert loud[0] > 0
    assert further_runs(levels(0.0199, *(10 * each for each in LOUD)), KIND.prior, LIMIT, sign=1.0) is None


def points(values: object, first: int = 0, every: int = 1) -> Points:
    numbers = np.asarray(values, np.float64)
    return Points(first + every * np.arange(len(numbers)), numbers)


def test_steps_that_are_slow_in_all_runs_are_no_noise() -> None:
    shape = np.array([9.0, 3.0, 1.0, 12.0, 1.0, 12.0, 1.0, 12.0])
    found = levels_of([points(shape * 1.02), *(points(shape[:length]) for length in (8, 6, 7))], 1)
    assert found is not None
    assert found.levels[0] - found.levels[1:] == pytest.approx(np.full(3, math.log(1.02)))
    assert found.within == pytest.approx(np.zeros(4), abs=1e-9)


def test_runs_that_count_otherwise_are_compared_in_order() -> None:
    found = levels_of([points([2.0, 1.0, 1.0, 1.0], first=1_000), points([2.0, 1.0, 1.0, 1.0])], 1)
    assert found is not None
    assert found.in_order
    assert found.levels[0] == pytest.approx(found.levels[1])


@pytest.mark.parametrize("values", [[], [math.nan, math.nan], [0.0, -1.0]])
def test_runs_without_a_value_are_not_compared(values: list[float]) -> None:
    assert levels_of([points(values), points([1.0, 1.0])], 1) is None
    assert levels_of([points([1.0, 1.0]), points(values)], 1) is None


def test_many_steps_become_windows_that_a_pause_does_not_move() -> None:
    drawn = np.random.default_rng(5)
    runs = [1.0 + 0.05 * drawn.standard_normal(3_000) for _ in range(3)]
    runs[0][::50] = 40.0
    found = levels_of([points(run) for run in runs], 1)
    assert found is not None
    assert found.windows == 128
    assert found.levels[0] - found.levels[1:].mean() == pytest.approx(0.0, abs=0.004)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("step_time_s", (Metric.STEP_TIME, 1.0)),
        ("step_time", (Metric.STEP_TIME, 1.0)),
        ("elapsed time per iteration (ms)", (Metric.STEP_TIME, 0.001)),
        ("train_step_timing in s", (Metric.STEP_TIME, 1.0)),
        ("step_ms", (Metric.STEP_TIME, 0.001)),
        ("ms/step", (Metric.STEP_TIME, 0.001)),
        ("step time [µs]", (Metric.STEP_TIME, 1e-6)),
        ("tok/s", (Metric.THROUGHPUT, 1.0)),
        ("time_step", None),
        ("throughput", (Metric.THROUGHPUT, 1.0)),
        ("train/tokens_per_second", (Metric.THROUGHPUT, 1.0)),
        ("perf/samples/s", (Metric.THROUGHPUT, 1.0)),
        ("train_samples_per_second", (Metric.THROUGHPUT, 1.0)),
        ("max_memory_allocated", (Metric.MEMORY, 1.0)),
        ("peak_mem_gb", (Metric.MEMORY, 1.0)),
        ("train/loss", (Metric.LOSS, 1.0)),
        ("loss", (Metric.LOSS, 1.0)),
        ("goodput", (Metric.GOODPUT, 1.0)),
        ("eval_loss", None),
        ("eval_samples_per_second", None),
        ("host_memory_percent", None),
        ("step", None),
        ("learning_rate", None),
    ],
)
def test_what_a_name_measures(name: str, found: object) -> None:
    assert metric_of(name) == found
