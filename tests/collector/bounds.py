"""Bounds of benches: the median of what was measured, with its confidence interval, against what is allowed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95


class Bound(NamedTuple):
    """What was measured, its median with the interval that holds it at `CONFIDENCE`, and what it may be."""

    name: str
    unit: str
    median: float
    low: float
    high: float
    most: float

    @property
    def is_broken(self) -> bool:
        """Whether the whole interval lies above the bound: noise alone breaks none."""
        return self.low > self.most

    def __str__(self) -> str:
        interval = "" if self.low == self.high else f" (95 % interval {self.low:.2f} to {self.high:.2f})"
        verdict = "BROKEN: at most" if self.is_broken else "at most"
        return f"{self.name}: {self.median:.2f} {self.unit}{interval}, {verdict} {self.most:g}"


def of_median(name: str, unit: str, values: Sequence[float], most: float) -> Bound:
    """Return the bound of the median of independent measurements.

    The interval is that of order statistics: the number of values below the true median is binomial, whatever their
    distribution is. Of fewer than six values it is their range.
    """
    ordered, count = sorted(values), len(values)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    outside, rank = 0.5**count, 0
    while rank < (count - 1) // 2 and 2.0 * outside < 1.0 - CONFIDENCE:
        rank += 1
        outside += math.comb(count, rank) * 0.5**count
    rank = max(rank - 1, 0)
    return Bound(name, unit, middle, ordered[rank], ordered[count - 1 - rank], most)


def of_value(name: str, unit: str, value: float, most: float) -> Bound:
    """Return the bound of one number."""
    return Bound(name, unit, value, value, value, most)
