"""Durations to the document's numbers: moments of the distribution, and a histogram."""

import math

import numpy as np

from trainguard.kernels.columns import Ints
from trainguard.kernels.entries import Durations, Histogram

MOST_BINS = 50
_EXACT = 1 << 62


def exact_sum(values: Ints) -> int:
    """Return the sum of numbers that are not negative, beyond 64 bits, too."""
    if len(values) and int(values.max()) * len(values) >= _EXACT:
        return sum(values.tolist())
    return int(values.sum())


def durations(values: Ints) -> Durations | None:
    if not len(values):
        return None
    total = exact_sum(values)
    median, p95, p99 = np.percentile(values, (50, 95, 99))
    return Durations(
        count=len(values),
        total_ns=total,
        mean_ns=round(total / len(values)),
        min_ns=int(values.min()),
        median_ns=round(float(median)),
        p95_ns=round(float(p95)),
        p99_ns=round(float(p99)),
        max_ns=int(values.max()),
        histogram=histogram(values),
    )


def histogram(values: Ints) -> Histogram:
    """Return the histogram of at least one duration; bins are whole nanoseconds wide."""
    least, spread = int(values.min()), int(values.max() - values.min())
    width = max(-(-spread // _bins(values, spread)), 1)
    count = max(-(-spread // width), 1)
    place = np.minimum((values - least) // width, count - 1)
    return Histogram(
        edges_ns=[least + width * each for each in range(count + 1)],
        counts=np.bincount(place, minlength=count).tolist(),
    )


def _bins(values: Ints, spread: int) -> int:
    low, high = np.percentile(values, (25, 75))
    count = len(values)
    wanted = spread * math.cbrt(count) / (2 * float(high - low)) if high > low else math.log2(count) + 1
    return min(max(math.ceil(wanted), 1), MOST_BINS)
