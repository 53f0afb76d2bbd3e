"""What chance alone makes plausible: the normal tail and the Poisson quantile, from the standard library."""

import math

NEGLIGIBLE_MEAN = 1e-7
"""Below it even P(X > 0) is under 1e-6; the masses far above such a mean would underflow."""


def normal_tail(deviations: float) -> float:
    """Probability that a normal value lies more than ``deviations`` standard deviations above its mean, 1 - Phi."""
    return math.erfc(deviations / math.sqrt(2.0)) / 2.0


def poisson_quantile(probability: float, expected: float) -> int:
    """Smallest k with P(X <= k) >= ``probability`` for a Poisson X whose mean is ``expected``.

    Sums the upper tail downwards from a point 8 standard deviations and 12 counts above the mean, where it is far
    below 1e-9: only small positive numbers are added, so the result is stable for means up to 10^6 and more, in about
    8 sqrt(mean) additions.

    Raises ValueError for a probability outside [0.5, 1 - 1e-6] and for a mean that is negative or not finite.
    """
    if not 0.5 <= probability <= 1.0 - 1e-6:
        raise ValueError(f"probability is {probability!r}, expected a number from 0.5 to 1 - 1e-6")
    if not 0.0 <= expected < math.inf:
        raise ValueError(f"expected is {expected!r}, expected a finite mean of at least 0")
    if expected < NEGLIGIBLE_MEAN:
        return 0
    count = math.ceil(expected + 8.0 * math.sqrt(expected) + 12.0)
    mass = math.exp(count * math.log(expected) - expected - math.lgamma(count + 1.0))
    tail = mass
    while tail <= 1.0 - probability:  # at 0 it is 1
        mass *= count / expected
        tail += mass
        count -= 1
    return count
