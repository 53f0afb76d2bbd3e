"""Rows of a bucket table as the values that a report shows, over the part of the axis that has any."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray
from trainguard.timeline.buckets import BucketTable
from trainguard.timeline.digest import HUNDREDTHS
from trainguard.timeline.series import Band, TimeAxis, Values
from trainguard.timeline.steps import MICROSECONDS

_PERCENT_DECIMALS = 1
_SECOND_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Shown:
    """The part of an axis that is shown: buckets from ``first`` on, before ``stop``."""

    first: int
    stop: int

    def of(self, matrix: IntArray) -> IntArray:
        """Cut the last dimension."""
        return matrix[..., self.first : self.stop]

    def axis(self, whole: TimeAxis) -> TimeAxis:
        """Return this part of an axis as one of its own."""
        start = whole.start + self.first * whole.bucket_s
        return TimeAxis(start=start, bucket_s=whole.bucket_s, buckets=self.stop - self.first)


def percents(table: BucketTable, row: int, shown: Shown, *, low: bool, high: bool) -> Band:
    """Return a series of percents, to a tenth."""
    present = shown.of(table.counts[row]) > 0

    def told(column: IntArray) -> Values:
        return _values(shown.of(column[row]) / HUNDREDTHS, present, _PERCENT_DECIMALS)

    mean = _values(_means(table, row, shown) / HUNDREDTHS, present, _PERCENT_DECIMALS)
    return Band(mean=mean, low=told(table.lows) if low else None, high=told(table.highs) if high else None)


def seconds(table: BucketTable, row: int, shown: Shown) -> tuple[Values, Values, Values]:
    """Return mean, lowest and highest of a series of microseconds, in seconds."""
    present = shown.of(table.counts[row]) > 0
    columns: tuple[Any, ...] = (_means(table, row, shown), shown.of(table.lows[row]), shown.of(table.highs[row]))
    mean, low, high = (_values(column / MICROSECONDS, present, _SECOND_DECIMALS) for column in columns)
    return mean, low, high


def rate_of_all(table: BucketTable, shown: Shown) -> Band | None:
    """Return the sum over the series of their mean in each bucket, to a whole number; None without a series."""
    if not table.keys:
        return None
    present = (shown.of(table.counts) > 0).any(axis=0)
    total = np.sum([_means(table, row, shown) for row in range(len(table.keys))], axis=0)
    return Band(mean=_listed(np.rint(total).astype(np.int64), present))


def mean_of_rows(table: BucketTable, rows: Sequence[int], shown: Shown, gpus: int = 1) -> Band:
    """Return the mean of all values of some series in each bucket, of hundredths, to a tenth."""
    del gpus
    counts, totals = (shown.of(column[list(rows)]).sum(axis=0) for column in (table.counts, table.totals))
    return Band(mean=_values(totals / np.maximum(counts, 1) / HUNDREDTHS, counts > 0, _PERCENT_DECIMALS))


def rate_of_rows(table: BucketTable, rows: Sequence[int], shown: Shown, gpus: int = 1) -> Band:
    """Return the sum of some series' means in each bucket, a share for each of ``gpus``, to a whole number."""
    present = (shown.of(table.counts[list(rows)]) > 0).any(axis=0)
    total = np.sum([_means(table, row, shown) for row in rows], axis=0) / gpus
    return Band(mean=_listed(np.rint(total).astype(np.int64), present))


def used_buckets(tables: Sequence[BucketTable]) -> tuple[int, int] | None:
    """Return the first and the last bucket in which a table has a value; None when there is none."""
    used = np.flatnonzero(np.any([table.counts.any(axis=0) for table in tables], axis=0))
    return (int(used[0]), int(used[-1])) if used.size else None


def overall_means(table: BucketTable, rows: Sequence[int]) -> FloatArray:
    """Return the mean of all values of each series: float64[len(rows)]."""
    means: FloatArray = table.totals[list(rows)].sum(axis=1) / np.maximum(table.counts[list(rows)].sum(axis=1), 1)
    return means


def one_or_none(table: BucketTable, make: Callable[[int], Band]) -> Band | None:
    """Return what ``make`` makes of the table's only series; None when there is none."""
    return make(0) if table.keys else None


def _means(table: BucketTable, row: int, shown: Shown) -> FloatArray:
    means: FloatArray = shown.of(table.totals[row]) / np.maximum(shown.of(table.counts[row]), 1)
    return means


def _values(values: FloatArray, present: Any, decimals: int) -> Values:
    return _listed(np.round(values, decimals), present)


def _listed(values: Any, present: Any) -> Values:
    listed = values.astype(object)
    listed[~present] = None
    entries: Values = listed.tolist()
    return entries
