from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainguard.rules.sample_statistics import poisson_quantile


def direct_quantile(probability: float, expected: float) -> int:
    """Sum the distribution from below with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        mean, wanted = Decimal(expected), Decimal(probability)
        mass = (-mean).exp()
        total, count = mass, 0
        while total < wanted:
            count += 1
            mass *= mean / count
            total += mass
        return count


@given(probability=st.sampled_from([0.5, 0.9, 0.999, 0.999999]), expected=st.floats(0.0, 2_000.0))
@example(probability=0.999, expected=0.2)
@example(probability=0.999, expected=200.0)
def test_quantile_of_a_mean_equals_a_direct_sum(probability: float, expected: float) -> None:
    assert poisson_quantile(probability, expected) == direct_quantile(probability, expected)


@pytest.mark.parametrize("expected", [10_000.0, 54_321.5])
def test_quantile_of_a_large_mean_equals_a_direct_sum(expected: float) -> None:
    assert poisson_quantile(0.999, expected) == direct_quantile(0.999, expected)


@given(expected=st.floats(0.0, 1e6), more=st.floats(0.0, 1e3))
def test_quantile_of_a_larger_mean_is_no_smaller(expected: float, more: float) -> None:
    assert poisson_quantile(0.999, expected) <= poisson_quantile(0.999, expected + more)
