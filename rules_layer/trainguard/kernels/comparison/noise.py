"""By how much two means may differ without a cause: the noise floor, from the spread of what they are means of."""

import math

from trainguard.kernels.entries import KernelEntry, TypicalStep

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
