from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.rules.sample_statistics import mann_kendall_z, theil_sen_slope

levels = st.lists(st.integers(0, 1_000), min_size=2, max_size=24)


def z(*values: float) -> float:
    return float(mann_kendall_z(np.array([values]))[0])


def slope(*values: float) -> float:
    return float(theil_sen_slope(np.array([values]))[0])


def test_z_of_a_strictly_rising_series_is_that_of_the_textbook() -> None:
    # n = 12: S = 66, variance 12 * 11 * 29 / 18 = 212.667, Z = 65 / 14.583
    assert z(*range(12)) == pytest.approx(4.4572156, rel=1e-6)
    assert z(*range(12, 0, -1)) == pytest.approx(-4.4572156, rel=1e-6)


def test_variance_is_corrected_for_each_group_of_ties() -> None:
    # n = 6, groups of 2 and 3: S = 11, variance (6*5*17 - 2*1*9 - 3*2*11) / 18 = 426 / 18
    assert z(1, 1, 2, 2, 2, 3) == pytest.approx(10.0 / np.sqrt(426.0 / 18.0), rel=1e-12)


@pytest.mark.parametrize("values", [(5, 5, 5, 5), (1, 2, 2, 1)])
def test_z_of_a_series_without_direction_is_0(values: tuple[float, ...]) -> None:
    assert z(*values) == 0.0


def test_several_series_are_tested_separately() -> None:
    series = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [7.0, 7.0, 7.0, 7.0]])
    assert np.sign(mann_kendall_z(series)).tolist() == [1.0, -1.0, 0.0]
    assert theil_sen_slope(series).tolist() == [1.0, -1.0, 0.0]


def test_slope_is_robust_against_one_wild_value() -> None:
    assert slope(0, 2, 4, 6, 999, 10, 12, 14) == pytest.approx(2.0)


@given(values=levels, start=st.integers(-500, 500), step=st.integers(0, 50))
def test_added_slope_increases_the_median_slope_by_itself(values: list[int], start: int, step: int) -> None:
    tilted = [value + start + step * index for index, value in enumerate(values)]
    assert slope(*tilted) == pytest.approx(slope(*values) + step, abs=1e-9)


@given(values=levels)
def test_z_keeps_its_size_under_reversal_and_scaling(values: list[int]) -> None:
    assert z(*reversed(values)) == pytest.approx(-z(*values))
    assert z(*(3 * value + 7 for value in values)) == pytest.approx(z(*values))


@given(values=st.lists(st.integers(0, 3), min_size=3, max_size=6))
def test_spread_over_all_orders_of_ties_is_the_corrected_one(
    values: list[int],
) -> None:
    orders = np.array(list(permutations(values)), dtype=np.float64)
    score = sum(np.sign(orders[:, j] - orders[:, i]) for i, j in combinations(range(len(values)), 2))
    spread = float(np.std(score))

    expected = (score - np.sign(score)) / spread if spread else np.zeros(len(orders))

    assert np.allclose(mann_kendall_z(orders), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("values", "median"),
    [((0, 6), 6.0), ((0, 1, 6), 3.0), ((0, 1, 2, 12), 2.5), ((0, 3, 1, 9, 4), 1.25), ((9, 0, 0, 0, 0, 0), 0.0)],
)
def test_slope_is_the_median_over_all_pairs(values: tuple[int, ...], median: float) -> None:
    pairs = [(later - earlier) / (b - a) for (a, earlier), (b, later) in combinations(enumerate(values), 2)]
    assert slope(*values) == pytest.approx(np.median(pairs))
    assert np.median(pairs) == pytest.approx(median)
