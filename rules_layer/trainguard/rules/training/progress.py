"""How far a run has come: the fall of a loss, the gain of a score, and their levels at the end."""

from statistics import fmean

from trainguard.rules.training.series import Series, level, smoothed
from trainguard.rules.training.trend import z_score

NO_TREND = 1.96
"""Standard deviations: Mann and Kendall's test at 5 % on two sides."""
TAIL = 0.25


def tail(series: Series) -> float:
    """Return the mean of the last quarter."""
    return level(series.means, TAIL, end=True)


def fall(loss: Series) -> float:
    """Return by which share of its size at the start a loss fell until the last quarter; below 0 for a rise."""
    start = loss.means[0]
    return (start - tail(loss)) / abs(start) if start else 0.0


def unit(score: Series) -> float:
    """Return the range of a score: 100 of one in per cent, else 1."""
    return 100.0 if score.most > 1.5 else 1.0


def gain(score: Series) -> float:
    """Return by which share of its range a score rose above its start at most, but for single values."""
    best = max(smoothed(score.means))
    last = fmean(score.means[-max(1, len(score.means) // 4) :])
    return (max(best if z_score(score.whole) > NO_TREND else last, last) - score.means[0]) / unit(score)
