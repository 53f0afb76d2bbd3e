"""Tells a change of a level from the noise of repeats, by a moderated t (Smyth 2004, doi 10.2202/1544-6115.1027).

The variance between repeats has a prior; so a few baselines do not make it zero by chance. All numbers are in the
direction of worse: more is worse.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from trainguard.gate.levels import Floats, RunLevels
from trainguard.gate.runs import Prior

_SMALL = 1e-14
_MOST_TERMS = 500
_HALVINGS = 80
_LARGEST = 1e6

# Chances to call an unchanged run a regression, and to pass one that is worse by the tolerance.
FALSE_ALARM, MISSED = 0.005, 0.02

# A change below this part of the tolerance is no regression, however sure it is.
MATERIAL = 0.6

# Further runs beyond are no help.
MOST_FURTHER = 100

# Runs to add, of candidate and of baseline.
Further = tuple[int, int]


@lru_cache(maxsize=4_096)
def t_quantile(probability: float, freedom: float) -> float:
    """Return the value that t with ``freedom`` > 0 exceeds with 1 - ``probability``, of 0.5 to less than 1."""
    low, high = 0.0, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        cumulated = 1.0 - 0.5 * _incomplete_beta(freedom / (freedom + middle * middle), freedom / 2.0, 0.5)
        low, high = (middle, high) if cumulated < probability else (low, middle)
    return (low + high) / 2.0


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


class Answer(StrEnum):
    PASSED = "pass"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``change`` and its bounds ``low`` and ``high``; ``between`` and ``within`` are standard deviations of a level.

    ``between`` is estimated with the prior, ``seen`` from the runs alone, None of one a side.
    """

    answer: Answer
    change: float
    low: float
    high: float
    between: float
    seen: float | None
    within: float


@dataclass(frozen=True, slots=True)
class _Noise:
    """Of a run's level: ``spread`` with ``freedom``; ``excess`` is further variance by the candidate's own scatter."""

    spread: float
    freedom: float
    excess: float

    def error(self, candidates: int, baselines: int) -> float:
        return math.sqrt(self.spread**2 * (1.0 / candidates + 1.0 / baselines) + self.excess / candidates)


def judged(found: RunLevels, prior: Prior, tolerance: float, *, sign: float) -> Judgement:
    """Judge levels: ``sign`` is -1 where more is better; ``tolerance`` > 0 is in the unit of levels."""
    candidate, baseline = found.levels[: found.candidates] * sign, found.levels[found.candidates :] * sign
    change = float(candidate.mean() - baseline.mean())
    noise, seen = _noise(found, candidate, baseline, prior)
    error = noise.error(len(candidate), len(baseline))
    low = change - t_quantile(1.0 - FALSE_ALARM, noise.freedom) * error
    high = change + t_quantile(1.0 - MISSED, noise.freedom) * error
    within = float(np.sqrt(np.mean(found.within**2)))
    return Judgement(_answer(change, low, high, tolerance), change, low, high, noise.spread, seen, within)


def _answer(change: float, low: float, high: float, tolerance: float) -> Answer:
    if change >= MATERIAL * tolerance and low > 0.0:
        return Answer.REGRESSION
    return Answer.PASSED if high < tolerance else Answer.INCONCLUSIVE


def _noise(found: RunLevels, candidate: Floats, baseline: Floats, prior: Prior) -> tuple[_Noise, float | None]:
    squares = sum(float(np.sum((each - each.mean()) ** 2)) for each in (candidate, baseline))
    repeats = len(candidate) + len(baseline) - 2
    freedom = prior.weight + repeats
    variance = (prior.weight * prior.spread**2 + squares) / freedom
    own = found.within[: found.candidates] ** 2
    usual = float(np.mean(found.within[found.candidates :] ** 2))
    spread = math.sqrt(max(variance, usual))
    seen = math.sqrt(squares / repeats) if repeats else None
    return _Noise(spread, freedom, max(float(own.mean()) - usual, 0.0)), seen


def further_runs(found: RunLevels, prior: Prior, tolerance: float, *, sign: float) -> Further | None:
    """Return the fewest further runs that decide, if they are as far apart and as noisy as these; None of too many."""
    candidate, baseline = found.levels[: found.candidates] * sign, found.levels[found.candidates :] * sign
    change = float(candidate.mean() - baseline.mean())
    noise, _ = _noise(found, candidate, baseline, prior)
    for more in range(1, MOST_FURTHER + 1):
        freedom = noise.freedom + more
        splits = [(own, more - own) for own in range(more + 1)]
        errors = {(own, of): noise.error(len(candidate) + own, len(baseline) + of) for own, of in splits}
        least = min(errors, key=lambda each: errors[each])
        low = change - t_quantile(1.0 - FALSE_ALARM, freedom) * errors[least]
        high = change + t_quantile(1.0 - MISSED, freedom) * errors[least]
        if _answer(change, low, high, tolerance) is not Answer.INCONCLUSIVE:
            return least
    return None
