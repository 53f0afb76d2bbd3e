"""When a job reaches its last step, from when it reached the others: pauses and restarts count, the warm-up does not.

``python -m tests.verdicts.planning`` shows the errors on runs of MLPerf Training 5.0 at half of their time.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from trainguard.planning.document import FinishForecast, Lacking, Range

# A step, and when it was done, epoch seconds.
Point = tuple[float, int]

# What is done before this part of the covered steps is start-up, compilation and the first batches.
_WARM_UP = 0.1
_STRETCHES = 6
FEWEST_POINTS = 3
# Half of an interval of 80 % by the deviation of the paces of stretches, and at least, as parts of the time left.
# Stretches that follow each other are alike, so their mean is no surer than one. Fitted to the runs of MLPerf
# Training, and to small ones on a busy machine (tests/verdicts/recorded_runs), whose paces change most.
_DEVIATIONS, _LEAST = 1.3, 0.01
# Of paces that are too few to have a deviation.
OF_FEW = 0.05


def forecast_finish(points: Iterable[Point], total: int, limit_at: float | None = None) -> FinishForecast | Lacking:
    """Forecast the end of ``total`` steps; points may come in any order, and steps may be done again.

    The pace is the mean of that since the warm-up and that of the later half.
    """
    reached = _reached(points, total)
    if len(reached) < FEWEST_POINTS:
        return Lacking.TOO_FEW_STEPS
    warm = _after_warm_up(reached)
    (begin, first), (at, done) = warm[0], warm[-1]
    later = max(point for point in warm[:-1] if point[1] <= (first + done) / 2.0)
    pace = ((at - begin) / (done - first) + (at - later[0]) / (done - later[1])) / 2.0
    left_s = (total - done) * pace
    half_s = left_s * math.hypot(_LEAST, _DEVIATIONS * _deviation(warm))
    end = Range(at + left_s, max(at + left_s - half_s, at), at + left_s + half_s)
    return FinishForecast(done=done, total=total, at=at, end=end, limit_at=limit_at)


def _reached(points: Iterable[Point], total: int) -> list[Point]:
    """Return when each further step was reached for the first time, in order."""
    reached: list[Point] = []
    for at, step in sorted(points):
        if math.isfinite(at) and step <= total and (not reached or (step > reached[-1][1] and at > reached[-1][0])):
            reached.append((at, step))
    return reached


def _after_warm_up(reached: Sequence[Point]) -> Sequence[Point]:
    """Leave the first part of the covered steps out where two points remain."""
    begin = reached[0][1] + _WARM_UP * (reached[-1][1] - reached[0][1])
    first = next(place for place, (_, step) in enumerate(reached) if step >= begin)
    return reached[min(first, len(reached) - 2) :]


def _deviation(points: Sequence[Point]) -> float:
    """Return the deviation of the paces of stretches of about as many steps each, by their mean."""
    length = (points[-1][1] - points[0][1]) / _STRETCHES
    edges = [points[0]]
    for point in points[1:]:
        if point[1] - edges[-1][1] >= length:
            edges.append(point)
    paces = [(later - at) / (step - before) for (at, before), (later, step) in pairwise(edges)]
    return stdev(paces) / fmean(paces) if len(paces) > 1 else OF_FEW
