"""When a side began to stay behind the busiest, and when it ceased to: from sums of three minutes each.

Ten-minute blocks say whether it stays behind. Their edges say when to within twenty minutes; the stretch that fits the
three-minute means best, all in it behind and all outside not, says it to within three.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.telemetry.snapshots import FloatArray

FINE_S = 180.0
FINE_BLOCKS = 27
"""Eighty-one minutes: the window, and what was before it."""

CEASED_BLOCKS = 2
CEASED_POINTS = 10
"""In so many stretches, of so many points together, it is not behind any more: it has ceased."""

CEASED_SURE = 4.0
SILENT_PERCENT = 1.0
"""A side whose means stay below it does nothing."""

SILENT_BLOCKS = 5
"""So many of them, a quarter of an hour, are no pause."""


@dataclass(frozen=True, slots=True)
class FineMeans:
    """Means of N sides, percent, over stretches of three minutes that begin at ``starts``, epoch seconds.

    ``points`` and ``means`` are float64[K, N]; a mean is NaN without points.
    """

    starts: FloatArray
    points: FloatArray
    means: FloatArray

    @classmethod
    def of(cls, numbers: Sequence[int], points: FloatArray, sums: FloatArray) -> "FineMeans":
        """Take points and sums, float64[K, N], of the stretches with these numbers since the epoch."""
        means = np.divide(sums, points, out=np.full(points.shape, np.nan), where=points > 0.0)
        return cls(FINE_S * np.array(numbers, dtype=np.float64), points, means)

    def stretch(self, low: int, others: Sequence[int], least: float, variance: float) -> "Stretch | None":
        """Return when a side was behind the mean of others, by ``least`` percentage points or more; None if never.

        ``variance`` is that of one side's points, percent squared.
        """
        rest = self.means[:, list(others)]
        counted = ~np.isnan(rest)
        total = np.where(counted, rest, 0.0).sum(axis=1)
        gaps = np.divide(total, counted.sum(axis=1), out=np.full(total.shape, np.nan), where=counted.any(axis=1))
        gaps = gaps - self.means[:, low]
        seen = ~np.isnan(gaps)
        gaps, weights, starts = gaps[seen], self.points[seen, low], self.starts[seen]
        best = _best_box(gaps, weights)
        if best is None:
            return None
        first, last = best
        level = float(np.average(gaps[first:last], weights=weights[first:last]))
        if level < least:
            return None
        before, after = weights[:first], weights[last:]
        left = float(np.average(gaps[:first], weights=before)) if first else level
        right = float(np.average(gaps[last:], weights=after)) if after.size else level
        over = (
            after.size >= CEASED_BLOCKS
            and after.sum() >= CEASED_POINTS
            and right < least
            and level - right >= CEASED_SURE * np.sqrt(variance * (2.0 / weights[first:last].sum() + 2.0 / after.sum()))
        )
        return Stretch(
            begin=float(starts[first]) if first and left < least else None,
            end=float(starts[last]) if over else None,
        )

    def seen_until(self, side: int, at: float) -> float:
        """Return up to when a side had points before ``at``, epoch seconds: ``at`` itself without a pause there."""
        before = self.starts[(self.starts < at) & (self.points[:, side] > 0.0)]
        return min(float(before[-1]) + FINE_S, at) if before.size else at

    def is_silent(self, side: int, begin: float, end: float | None) -> bool:
        """Tell whether a side did nothing from ``begin`` to ``end``, epoch seconds; the edges are not looked at."""
        inner = self.starts >= begin + FINE_S
        if end is not None:
            inner &= self.starts + 2.0 * FINE_S <= end
        means = self.means[inner, side]
        means = means[~np.isnan(means)]
        return means.size >= SILENT_BLOCKS and bool((means < SILENT_PERCENT).all())


@dataclass(frozen=True, slots=True)
class Stretch:
    """When a side was behind, epoch seconds: ``begin`` None where that is before what is known, ``end`` where it is."""

    begin: float | None
    end: float | None


def _best_box(gaps: FloatArray, weights: FloatArray) -> tuple[int, int] | None:
    """Return the stretch, from and up to an index, whose mean differs most clearly from all outside, and is above it.

    All of it where there is no outside that is clearly lower.
    """
    if not weights.sum():
        return None
    sums = np.concatenate([[0.0], np.cumsum(gaps * weights)])
    counts = np.concatenate([[0.0], np.cumsum(weights)])
    inside = sums[np.newaxis, :] - sums[:, np.newaxis]
    points = counts[np.newaxis, :] - counts[:, np.newaxis]
    outside, others = sums[-1] - inside, counts[-1] - points
    with np.errstate(divide="ignore", invalid="ignore"):  # a mean of no points is none, and above nothing
        above = inside / points - outside / others
    fit = np.where((points > 0.0) & (above > 0.0), above**2 * points * others, 0.0)
    if not fit.any():
        return 0, gaps.size
    first, last = np.unravel_index(int(np.argmax(fit)), fit.shape)
    return int(first), int(last)
