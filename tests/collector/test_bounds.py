"""A bound of a bench is broken where the whole interval of the median lies above it."""

import pytest

from tests.collector.bounds import of_median


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(3, 0, 2), (6, 0, 5), (8, 0, 7), (9, 1, 7), (40, 13, 26)],
    ids=["too few for an interval", "least", "eight", "nine", "forty"],
)
def test_interval_is_that_of_order_statistics(count: int, low: int, high: int) -> None:
    values = [float((7 * number) % count) for number in range(count)] if count % 7 else list(map(float, range(count)))
    bound = of_median("time", "s", values, low)
    assert (bound.low, bound.high, bound.median) == (low, high, (count - 1) / 2)
    assert not bound.is_broken
    assert of_median("time", "s", values, low - 0.5).is_broken
