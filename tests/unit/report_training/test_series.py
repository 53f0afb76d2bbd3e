"""A series keeps every value's trace in a bounded number of points."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.report.training.digest import MOST_POINTS, ScalarSeries, quantity_of


def test_given_few_values_when_added_then_each_is_a_point() -> None:
    series = ScalarSeries(name="loss", mode="TRAIN", kind="loss")
    for step, value in [(0, 3.0), (5, 2.0), (10, 2.5)]:
        series.add(step, 100.0 + step, value)
    assert (series.steps, series.mean, series.at) == ([0, 5, 10], [3.0, 2.0, 2.5], [100.0, 105.0, 110.0])


def test_single_spike_among_very_many_values_is_visible() -> None:
    series = ScalarSeries(name="loss", mode="TRAIN", kind="loss")
    for step in range(10_000):
        series.add(step, float(step), 1_000.0 if step == 4_321 else 1.0)
    assert len(series.steps) <= MOST_POINTS
    assert sum(series.counts) == 10_000
    (place,) = [index for index, high in enumerate(series.high) if high == 1_000.0]
    assert series.steps[place] <= 4_321 < series.steps[place] + series.width
    assert series.low[place] == 1.0


def test_point_of_a_long_rise_is_the_mean_of_its_values() -> None:
    series = ScalarSeries(name="loss", mode="TRAIN", kind="loss")
    for step in range(3_001):
        series.add(step, float(step), float(step * step))
    assert series.width == 8
    for place, (begin, count) in enumerate(zip(series.steps, series.counts, strict=True)):
        assert series.mean[place] == pytest.approx(sum(step * step for step in range(begin, begin + count)) / count)


def test_non_finite_values_are_counted_and_not_averaged() -> None:
    series = ScalarSeries(name="loss", mode="TRAIN", kind="loss")
    for step in range(MOST_POINTS * 2):
        series.add(step, 0.0, math.nan if step % 2 else 4.0)
    assert series.width == 2
    assert set(series.mean) == {4.0}
    assert set(series.undefined) == {1}


@given(st.lists(st.floats(-1e6, 1e6), max_size=3_000), st.integers(0, 2))
def test_points_hold_the_mean_and_range_of_their_values(values: list[float], repeat: int) -> None:
    values = values * (repeat + 1)
    series = ScalarSeries(name="loss", mode="TRAIN", kind="loss")
    for step, value in enumerate(values):
        series.add(step, float(step), value)
    begin = 0
    for place, count in enumerate(series.counts):
        held = values[begin : begin + count]
        mean = series.mean[place]
        assert (series.steps[place], series.low[place], series.high[place]) == (begin, min(held), max(held))
        assert mean is not None
        assert math.isclose(mean, sum(held) / count, rel_tol=1e-9, abs_tol=1e-6)
        begin += count
    assert begin == len(values)


def test_names_of_data_sets_are_grouped_by_quantity() -> None:
    assert {quantity_of(name) for name in ("train-rmse", "validation-rmse")} == {"rmse"}
    assert {quantity_of(name) for name in ("loss", "val_loss", "eval_loss", "train/loss", "scalar/loss")} == {"loss"}
    assert quantity_of("CrossEntropyLoss_output_0") == "CrossEntropyLoss_output_0"
