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


def beginning(series: Series, digits: int = 6) -> str:
    """Return the first level in words: a recorded value, or of a long series about what its first values are."""
    start = f"{series.means[0]:.{digits}g}"
    if series.size == 1:
        return f"{start} at the start (step {series.begins})"
    return f"about {start} over the first {series.size:,} values (steps {series.begins} to {series.steps[0]})"


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
