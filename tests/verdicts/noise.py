"""Noise that looks like a machine's: values near in time are alike, and no two cycles are equally long."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Generator = np.random.Generator


def drifting(at_s: Floats, knot_s: float, rng: Generator) -> Floats:
    """Return noise of standard deviation near 1 that changes over ``knot_s`` seconds; ``at_s`` float64[T], rising."""
    if at_s.size == 0:
        return np.zeros(0)
    first, last = at_s[0] // knot_s, at_s[-1] // knot_s + 1
    knots = np.arange(first, last + 1)
    return np.interp(at_s / knot_s, knots, 1.2 * rng.standard_normal(knots.size))


def computing(at_s: Floats, *, wait: float, cycle_s: float, rng: Generator) -> npt.NDArray[np.bool_]:
    """Return for each time whether the GPUs compute: they wait first in each cycle, then compute."""
    if wait <= 0.0 or at_s.size == 0:
        return np.ones(at_s.size, dtype=np.bool_)
    span = at_s[-1] - at_s[0]
    count = int(1.3 * span / cycle_s) + 20
    lengths = cycle_s * np.exp(0.15 * rng.standard_normal(count))
    shares = np.clip(wait * (1.0 + 0.15 * rng.standard_normal(count)), 0.0, 0.98)
    starts = at_s[0] + np.concatenate([[0.0], np.cumsum(lengths)])
    cycle = np.clip(np.searchsorted(starts, at_s, side="right") - 1, 0, count - 1)
    into: Any = (at_s - starts[cycle]) / lengths[cycle]
    return np.asarray(into >= shares[cycle])


def trailing_means(values: Floats, base_s: float, at_s: Floats, over_s: float) -> Floats:
    """Return the means of ``values`` float64[N, G], one every ``base_s``, over the time before each of ``at_s``."""
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    end = np.clip(np.round(at_s / base_s).astype(int), 1, len(values))
    begin = np.clip(end - max(1, round(over_s / base_s)), 0, end - 1)
    means: Floats = (sums[end] - sums[begin]) / (end - begin)[:, None]
    return means
