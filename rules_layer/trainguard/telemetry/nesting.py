"""Self time of nested intervals, over whole columns."""

import numpy as np

from trainguard.telemetry.snapshots import BoolArray, IntArray


def self_times(partitions: IntArray, starts_us: IntArray, durations_us: IntArray) -> IntArray:
    """Time of each interval in which it is the innermost one of its lane.

    The boundaries of a lane in order of time cut it into pieces; the depth after each is a running sum, and a piece
    belongs to the latest interval that began at its depth. Where intervals overlap without being nested a piece is
    still given to one of them only, so the sum over a lane is the length of its union.

    Parameters
    ----------
    lanes : int64[N]
        Intervals of different lanes (threads) do not nest.
    starts_us, durations_us : int64[N]
        Durations are >= 0.

    Returns
    -------
    int64[N]
    """
    order = np.lexsort((-durations_us, starts_us, partitions))
    partition, start, duration = partitions[order], starts_us[order], durations_us[order]
    ends = start + duration
    alone = (partition[1:] != partition[:-1]) | (ends[:-1] <= start[1:])
    if alone.all():
        return durations_us.copy()
    nested = _threads_that_nest(partition, alone)
    times = duration.copy()
    rows = np.flatnonzero(nested & (duration > 0))
    times[rows] = _innermost(partition[rows], start[rows], ends[rows])
    result = np.empty_like(times)
    result[order] = times
    return result


def _threads_that_nest(partition: IntArray, alone: BoolArray) -> BoolArray:
    """Rows of the lanes in which some interval begins before its predecessor ends; ``partition`` is sorted."""
    number = np.concatenate(([0], np.cumsum(partition[1:] != partition[:-1])))
    crowded = np.bincount(number[1:], weights=~alone, minlength=int(number[-1]) + 1) > 0
    nested: BoolArray = crowded[number]
    return nested


def _innermost(partition: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """As `self_times`, for N intervals of some length, sorted by lane, start and longest first."""
    count = start.size
    times = np.concatenate((start, end))
    opens = np.concatenate((np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)))
    rows = np.concatenate((np.arange(count), np.arange(count)))
    order = np.lexsort((rows, opens, times, np.concatenate((partition, partition))))
    times, opens, rows = times[order], opens[order], rows[order]
    depth = np.cumsum(2 * opens - 1)
    # Sorted by depth, every group begins with an opening, so the latest opening can be carried forward.
    by_depth = np.lexsort((np.arange(depth.size), depth))
    carried = np.maximum.accumulate(np.where(opens[by_depth] == 1, np.arange(by_depth.size), 0))
    owner = np.empty_like(rows)
    owner[by_depth] = rows[by_depth][carried]
    open_pieces = depth[:-1] > 0
    pieces = np.where(open_pieces, np.diff(times), 0)
    result: IntArray = np.bincount(owner[:-1], weights=pieces, minlength=count).astype(np.int64)
    return result
