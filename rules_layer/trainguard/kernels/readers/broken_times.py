"""Rows of a GPU whose times cannot be: a reader drops them, so that their launches show that work is missing."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import Bools, GpuRows, Ints, Rows

# So long before its launch no work begins; clocks of host and GPU differ by less.
EARLY_NS = 100_000_000

# So far from the middle of a trace no work of it lies.
_FAR_NS = 24 * 3600 * 1_000_000_000

_ROUNDED_NS = 1_000
_NO_STREAM = ("", "None", "-1")


def broken_times(rows: GpuRows, launches: Rows, names: Sequence[str], tally: Counter[str]) -> Bools:
    """Return which rows have a time that is none, or last beyond the next row of their stream; both are counted.

    ``unplaced_rows`` counts those of them without a launch: nothing says when they ran.
    """
    known, launched = _launched(rows, launches)
    broken = _without_time(rows, launches, launched)
    tally["lost_times"] += int(broken.sum())
    kept = np.flatnonzero(~broken)
    beyond = kept[_beyond_next(rows, kept, names)]
    tally["overflowing_times"] += len(beyond)
    broken[beyond] = True
    tally["unplaced_rows"] += int((broken & ~known).sum())
    return broken


def timed_rows(start: Ints, end: Ints) -> Bools:
    """Return which rows of the host have a time: not those at 0 of no length, where others are later."""
    if not len(start) or np.median(start) <= EARLY_NS:
        return np.ones(len(start), dtype=np.bool_)
    found: Bools = (start > 0) | (end > start)
    return found


def _launched(rows: GpuRows, launches: Rows) -> tuple[Bools, Ints]:
    """Return which rows have a launch, and when the first call of their correlation starts."""
    mine = np.flatnonzero(launches.correlation >= 0)
    order = mine[np.lexsort((launches.start[mine], launches.correlation[mine]))]
    numbers = launches.correlation[order]
    place = np.minimum(np.searchsorted(numbers, rows.correlation, side="left"), max(len(numbers) - 1, 0))
    if not len(numbers):
        return np.zeros(len(rows), dtype=np.bool_), rows.start
    known = (rows.correlation >= 0) & (numbers[place] == rows.correlation)
    return known, np.where(known, launches.start[order[place]], rows.start)


def _without_time(rows: GpuRows, launches: Rows, launched: Ints) -> Bools:
    early = launched - rows.start > EARLY_NS
    if early.sum() * 2 > len(rows):
        early[:] = False  # not single rows are wrong then: the clocks differ
    found: Bools = early | ((rows.start <= 0) & (rows.end == rows.start))
    if len(launches) and launches.start.min() > EARLY_NS:
        found |= rows.start <= 0
    if len(rows):
        found |= np.abs(rows.start.astype(np.float64) - float(np.median(rows.start))) > _FAR_NS
    return found


def _beyond_next(rows: GpuRows, kept: Ints, names: Sequence[str]) -> Bools:
    """Return which of some rows end after the next row of their stream has ended: a stream runs one after another.

    The nodes of one graph may run side by side, and the end of a kernel overlaps the next one's start where it is
    launched early.
    """
    found = np.zeros(len(kept), dtype=np.bool_)
    order = np.lexsort((rows.start[kept], rows.lane[kept], rows.device[kept]))
    mine = kept[order]
    one, other = mine[:-1], mine[1:]
    same = (rows.lane[one] == rows.lane[other]) & (rows.device[one] == rows.device[other])
    same &= (rows.correlation[one] != rows.correlation[other]) | (rows.correlation[one] < 0)
    nowhere = [place for place, name in enumerate(names) if name in _NO_STREAM]
    same &= ~np.isin(rows.lane[one], np.array(nowhere, dtype=np.int64))
    found[order[:-1]] = same & (rows.end[one] > rows.end[other] + _ROUNDED_NS)
    return found
