"""Student's t distribution, as the standard library and NumPy lack it."""

import math
from functools import lru_cache

_SMALL = 1e-14
_MOST_TERMS = 500
_HALVINGS = 80
_LARGEST = 1e6


@lru_cache(maxsize=4_096)
def t_quantile(probability: float, freedom: float) -> float:
    """Return the value that t with ``freedom`` > 0 exceeds with 1 - ``probability``, of 0.5 to less than 1."""
    low, high = 0.0, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _cumulated(middle, freedom) < probability else (low, middle)
    return (low + high) / 2.0


def _cumulated(value: float, freedom: float) -> float:
    return 1.0 - 0.5 * _incomplete_beta(freedom / (freedom + value * value), freedom / 2.0, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by the continued fraction of Abramowitz and Stegun 26.5.8."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)), from front to back as Lentz does."""
    value = c = 1.0
    d = 0.0
    for term in range(1, _MOST_TERMS):
        m, is_odd = divmod(term, 2)
        top = -(a + m) * (a + b + m) if is_odd else m * (b - m)
        top *= x / ((a + term - 1.0) * (a + term))
        d = 1.0 / _not_zero(1.0 + top * d)
        c = _not_zero(1.0 + top / c)
        value *= c * d
        if abs(c * d - 1.0) < _SMALL:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
