"""Joins the many thin bins of a stored histogram into as many as a chart can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_COLUMNS = 56
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram: N + 1 edges of N bins, and how many are in each."""

    edges: Sequence[float]
    counts: Sequence[int]


def join_bins(lower: Sequence[float], upper: Sequence[float], counts: Sequence[int]) -> Bins:
    """Return columns of equal ratio, each over as many stored bins as the others; empty ones are included.

    Parameters
    ----------
    lower, upper : sequence of float
        Smallest and largest value of each bin in use, ascending and positive; stored bins have about one ratio.
    counts : sequence of int
        How many each bin holds.

    Raises
    ------
    ValueError
        When there is no bin, or the three do not fit each other.
    """
    if not (len(lower) == len(upper) == len(counts) and len(lower)):
        raise ValueError(f"{len(lower)} lower and {len(upper)} upper edges do not fit {len(counts)} counts")
    begin, end = max(lower[0], _LEAST), max(upper[-1], lower[0], _LEAST)
    ratios = sorted(math.log(max(high, _LEAST) / max(low, _LEAST)) for low, high in zip(lower, upper, strict=True))
    span, native = math.log(end / begin), ratios[len(ratios) // 2]
    if span <= 0.0 or native <= 0.0:
        return Bins((begin * 0.995, end * 1.005), (sum(counts),))
    width = native * math.ceil(span / native / MOST_COLUMNS)
    columns = max(math.ceil(span / width - 1e-6), 1)
    joined = [0] * columns
    for low, high, held in zip(lower, upper, counts, strict=True):
        middle = (math.log(max(low, _LEAST)) + math.log(max(high, _LEAST))) / 2.0 - math.log(begin)
        joined[min(max(int(middle / width), 0), columns - 1)] += held
    return Bins([begin * math.exp(width * index) for index in range(columns + 1)], joined)
