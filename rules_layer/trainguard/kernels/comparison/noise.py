"""By how much two means may differ without a cause: the noise floor, from the spread of what they are means of."""

import math
from collections.abc import Sequence

import numpy as np

from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelEntry, TypicalStep
from trainguard.kernels.typical import spread

# Of the time of each profile: with less in kernels, or in shapes, that both have, the work is another one.
LEAST_COMMON = 0.5

_SIGMAS = 2.0
_PRECISE = 1_000_000


# 0.5 of a window with half of the older one's work, and by how much of it that is unsure.
CapturePace = tuple[float, float]


def pace_of(before: RankProfile, after: RankProfile) -> CapturePace | None:
    """Return the median over kernels, weighted with their time; None where too little time is in common ones."""
    old = {each.name: each for each in before.kernels}
    pairs = [(old[each.name], each) for each in after.kernels if each.name in old]
    pairs = [pair for pair in pairs if min(pair[0].count, pair[1].count) >= FEWEST]
    if not pairs or min(_share([a for a, _ in pairs], before), _share([b for _, b in pairs], after)) < LEAST_COMMON:
        return None
    works = np.array([new.count / old.count for old, new in pairs])
    weights = np.array([old.total_ns for old, _ in pairs], dtype=np.float64)
    order = np.argsort(works)
    places = np.searchsorted(np.cumsum(weights[order]), weights.sum() * np.linspace(0.05, 0.95, 19))
    weighted = works[order][np.minimum(places, len(works) - 1)]
    work = float(np.median(weighted))
    runs = max(min(pair[0].count, pair[1].count) for pair in pairs)
    sigma = spread(weighted * _PRECISE) / _PRECISE / work
    return work, max(LEAST, 1.0 / runs, _SIGMAS * sigma)


def _share(kernels: Sequence[KernelEntry], rank: RankProfile) -> float:
    total = sum(each.total_ns for each in rank.kernels)
    return sum(each.total_ns for each in kernels) / total if total else 0.0


# Of the larger mean: two recordings of one program differ by as much, by clocks and temperature.
LEAST = 0.02

# Of the larger mean, where too few steps or runs say nothing of the spread.
UNKNOWN = 0.10

FEWEST = 3
SIGMAS = 3.0
# The standard error of a median, in that of a mean.
_OF_A_MEDIAN = 1.25


def step_noise(before: TypicalStep, after: TypicalStep) -> float:
    """Return the noise of the difference of two typical steps, in nanoseconds."""
    longer = max(before.duration_ns, after.duration_ns)
    if min(before.of, after.of) < FEWEST:
        return UNKNOWN * longer
    errors = _error(before.spread_ns, before.of), _error(after.spread_ns, after.of)
    return max(LEAST * longer, _sigmas(min(before.of, after.of)) * math.hypot(*errors))


def run_noise(before: KernelEntry, after: KernelEntry, steps: tuple[int, int] | None) -> float:
    """Return the noise of the difference of two means of a run: by ``steps``, else by the runs themselves."""
    by_step = steps is not None
    longer = max(mean_run(before, by_step=by_step), mean_run(after, by_step=by_step))
    amounts = steps or (before.count, after.count)
    if min(amounts) < FEWEST:
        return UNKNOWN * longer
    errors = _run_error(before, amounts[0], by_step=by_step), _run_error(after, amounts[1], by_step=by_step)
    return max(LEAST * longer, _sigmas(min(amounts)) * math.hypot(*errors))


def _sigmas(amount: int) -> float:
    """Return how many standard errors are noise: more where few values say how large the error is."""
    return SIGMAS * (1.0 + 4.0 / (amount - 1))


def mean_run(kernel: KernelEntry, *, by_step: bool) -> float:
    """Return the mean of a run: of the typical step, unless that has none."""
    if by_step and kernel.per_step is not None and kernel.per_step.runs:
        return kernel.per_step.time_ns / kernel.per_step.runs
    return kernel.total_ns / kernel.count if kernel.count else 0.0


def _run_error(kernel: KernelEntry, amount: int, *, by_step: bool) -> float:
    if by_step and kernel.per_step is not None and kernel.per_step.runs:
        return _error(kernel.per_step.spread_ns, amount) / kernel.per_step.runs
    return kernel.std_ns / math.sqrt(max(kernel.count, 1))


def _error(spread_ns: int, amount: int) -> float:
    return _OF_A_MEDIAN * spread_ns / math.sqrt(amount)
