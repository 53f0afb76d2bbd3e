"""The mean of a time: the integral over it of samples, each of which stands until the next one."""

import math

import numpy as np

from tests.claims.raw import Floats, Series

_GAP = 2.1
_LEAST_GAP_S = 5.0


def weighted_mean(series: Series, start: float, end: float, interval_s: float) -> float:
    """Return the mean from ``start`` to ``end``, epoch seconds; NaN where no sample stands.

    A sample before ``start`` stands there too. One at ``end`` counts for as long as it stands: a fact's time ends with
    its last sample where no step of time ends there.
    """
    stands = _held(series, interval_s)
    last = (series.times >= end - 1e-3) & (series.times <= end + 1e-3)
    until = np.minimum(series.times + stands, np.where(last, np.inf, end))
    lengths = np.maximum(until - np.maximum(series.times, start), 0.0)
    total = float(lengths.sum())
    return float((series.values * lengths).sum()) / total if total else math.nan


def _held(series: Series, interval_s: float) -> Floats:
    """Return for how many seconds each sample stands: until the next one, or before a gap for the usual distance."""
    distances = np.append(np.diff(series.times), interval_s)
    usual = max(interval_s, float(np.median(distances)))
    held: Floats = np.where(distances > max(_GAP * usual, _LEAST_GAP_S), usual, distances)
    return held
