import math
from collections.abc import Callable

import numpy as np
import pytest

from trainguard.core.units import (
    show_duration,
    show_number,
    show_percent,
    show_step,
)
from trainguard.formats.profile.snapshots import points_in
from trainguard.rules.sample_statistics import (
    Box,
    column_boxes,
    column_quantiles,
    counted_boxes,
    counted_quantiles,
    normal_tail,
    poisson_quantile,
)


@pytest.mark.parametrize(
    ("deviations", "tail"), [(0.0, 0.5), (3.0, 1.349898e-3), (5.0, 2.866516e-7), (10.0, 7.619853e-24)]
)
def test_tail_of_deviations_matches_the_tables(deviations: float, tail: float) -> None:
    assert normal_tail(deviations) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize(
    ("expected", "quantile"), [(0.0, 0), (1e-12, 0), (0.2, 3), (1.0, 5), (2.0, 8), (10.0, 21), (100.0, 132)]
)
def test_poisson_quantile_matches_the_tables(expected: float, quantile: int) -> None:
    assert poisson_quantile(0.999, expected) == quantile


def test_poisson_quantile_of_a_million_is_near_the_normal_one() -> None:
    # Cornish-Fisher: mean + z sd + (z^2 - 1) / 6, z = 3.0902
    assert poisson_quantile(0.999, 1e6) == pytest.approx(1e6 + 3.0902323 * 1e3 + 1.43, abs=1.0)


@pytest.mark.parametrize(("probability", "expected"), [(0.2, 1.0), (1.0, 1.0), (0.999, -1.0), (0.999, math.inf)])
def test_invalid_probability_or_mean_is_refused(probability: float, expected: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        poisson_quantile(probability, expected)


def test_quantiles_of_columns_with_missing_samples_match_numpy() -> None:
    values = np.random.default_rng(1).integers(0, 101, (333, 5)).astype(np.float64)
    values[::3, 1] = np.nan
    values[:, 4] = np.nan

    quantiles = column_quantiles(values, (0.05, 0.5, 0.95))

    assert np.allclose(quantiles[:, :4], np.nanquantile(values[:, :4], (0.05, 0.5, 0.95), axis=0), rtol=1e-12)
    assert np.isnan(quantiles[:, 4]).all()
    assert np.isnan(column_quantiles(values[:0], (0.5,))).all()


def test_quantiles_of_counts_match_numpy_on_the_samples() -> None:
    samples = np.random.default_rng(2).integers(0, 101, (3, 250))
    counts = np.array([np.bincount(row, minlength=101) for row in samples])
    levels = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)

    quantiles = counted_quantiles(np.vstack([counts, np.zeros((1, 101), dtype=np.int64)]), levels)

    assert np.allclose(quantiles[:, :3], np.quantile(samples, levels, axis=1), rtol=1e-12)
    assert np.isnan(quantiles[:, 3]).all()


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (show_number, 30.999999, "31"),
        (show_number, 30.94, "30.9"),
        (show_number, 30.96, "31"),
        (show_number, 1_004, "1,004"),
        (show_number, 12_345.67, "12,345.7"),
        (show_percent, 99.96, "100 %"),
        (show_duration, 250.0, "250 s"),
        (show_duration, 299.0, "299 s"),
        (show_duration, 300.0, "5 min"),
        (show_duration, 502.0, "8.4 min"),
        (show_duration, 7_194.0, "119.9 min"),
        (show_duration, 7_200.0, "2 h"),
        (show_duration, 60_000.0, "16.7 h"),
        (show_step, 999_900.0, "999.9 ms"),
        (show_step, 1_000_000.0, "1 s"),
        (show_step, 9_999e6, "9999 s"),
        (show_step, 1e10, "10,000 s"),
        (show_step, 412_345.0, "412.3 ms"),
        (show_step, 1_204_000.0, "1.204 s"),
        (show_step, 7e10, "70,000 s"),
    ],
)
def test_given_a_number_when_shown_then_it_reads_well(show: Callable[[float], str], value: float, text: str) -> None:
    assert show(value) == text


def test_interval_drift_does_not_add_a_point_to_seconds() -> None:
    assert points_in(1_000.0, 0.4999) == 2_000
    assert points_in(250.0, 0.5) == 500
    assert points_in(1.0, 60.0) == 1
    assert points_in(90.0, 60.0) == 2
    assert points_in(149.0, 60.0) == 2


def test_quantiles_of_one_or_two_samples_lie_between_them() -> None:
    values = np.array([[np.nan, 10.0], [30.0, 20.0], [np.nan, np.nan]])
    counts = np.zeros((2, 101), dtype=np.int64)
    counts[0, 30] = counts[1, 10] = counts[1, 20] = 1

    assert column_quantiles(values, (0.0, 0.25, 1.0)).tolist() == [[30.0, 10.0], [30.0, 12.5], [30.0, 20.0]]
    assert counted_quantiles(counts, (0.0, 0.25, 1.0)).tolist() == [[30.0, 10.0], [30.0, 12.5], [30.0, 20.0]]


def test_whiskers_end_with_the_samples() -> None:
    wide = np.concatenate([[0.0], np.repeat([40.0, 48.0, 52.0, 60.0], 25), [100.0]])
    narrow = np.concatenate([[np.nan], np.repeat([40.0, 48.0, 52.0, 60.0], 25), [60.0]])
    of_columns = column_boxes(np.column_stack([wide, narrow, np.full(102, np.nan)]))
    counts = np.array([np.bincount(each[~np.isnan(each)].astype(int), minlength=101) for each in (wide, narrow)])

    assert of_columns == (Box(0.0, 42.0, 50.0, 58.0, 60.0, 100.0), Box(40.0, 48.0, 52.0, 60.0, 60.0, 60.0), None)
    assert counted_boxes(counts) == of_columns[:2]
    assert [(each.lower, each.upper) for each in of_columns if each] == [(18.0, 82.0), (40.0, 60.0)]
