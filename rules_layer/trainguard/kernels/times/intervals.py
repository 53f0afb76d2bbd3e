"""Stretches of time as sorted, disjoint pairs of whole nanoseconds."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Numbers, Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spans:
    """Sorted, disjoint, not empty stretches, the end not included."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())

    def before(self, times: Ints) -> Ints:
        ends = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, times, side="right")
        whole = ends[place]
        if not len(self.start):
            return whole
        last = np.maximum(place - 1, 0)
        beyond = np.where(place > 0, np.maximum(self.end[last] - times, 0), 0)
        return whole - beyond

    def within(self, start: Ints, end: Ints) -> Ints:
        return self.before(end) - self.before(start)

    def place_of(self, times: Ints) -> Ints:
        """Return for each time the stretch that it lies in; -1 for none."""
        place: Ints = np.searchsorted(self.start, times, side="right").astype(np.int64) - 1
        return np.where(times < self.end[np.maximum(place, 0)], place, -1) if len(self.start) else place

    def holds(self, times: Ints) -> Bools:
        """Return which times lie in them."""
        return self.place_of(times) >= 0


def merged(start: Ints, end: Ints) -> Spans:
    """Return the union of stretches in any order; those without a length are dropped."""
    kept = end > start
    if not kept.all():
        start, end = start[kept], end[kept]
    if not len(start):
        return Spans(start, end)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start = start[order]
        end = end[order]
        del order
        reach = np.maximum.accumulate(end, out=end)
    else:
        reach = np.maximum.accumulate(end)
    begins = np.flatnonzero(start[1:] > reach[:-1]) + 1
    if len(begins) == len(start) - 1:
        return Spans(start, reach)
    return Spans(start[np.concatenate(([0], begins))], reach[np.concatenate((begins - 1, [len(start) - 1]))])


def clipped(spans: Spans, start: int, end: int) -> Spans:
    first = int(np.searchsorted(spans.end, start, side="right"))
    last = int(np.searchsorted(spans.start, end, side="left"))
    if first >= last or end <= start:
        return Spans(spans.start[:0], spans.end[:0])
    begins, ends = spans.start[first:last], spans.end[first:last]
    if begins[0] < start:
        begins = np.concatenate(([start], begins[1:]))
    if ends[-1] > end:
        ends = np.concatenate((ends[:-1], [end]))
    return Spans(begins, ends)


def union(*parts: Spans) -> Spans:
    some = [part for part in parts if len(part.start)]
    if len(some) == 1 and (some[0].start[1:] > some[0].end[:-1]).all():
        return some[0]
    nothing = np.empty(0, dtype=np.int64)
    return merged(
        np.concatenate([nothing, *(part.start for part in some)]),
        np.concatenate([nothing, *(part.end for part in some)]),
    )


def intersection(one: Spans, other: Spans) -> Spans:
    # For each stretch of the one, those of the other that it meets are a run: together hardly more than there are.
    first = np.searchsorted(other.end, one.start, side="right")
    count = np.maximum(np.searchsorted(other.start, one.end, side="left") - first, 0)
    mine = np.repeat(np.arange(len(count)), count)
    theirs = np.arange(len(mine)) + np.repeat(first - (np.cumsum(count) - count), count)
    return Spans(
        np.maximum(one.start[mine], other.start[theirs]),
        np.minimum(one.end[mine], other.end[theirs]),
    )


def difference(one: Spans, other: Spans) -> Spans:
    if not len(one.start) or not len(other.start):
        return one
    begins = np.concatenate(([min(one.start[0], other.start[0])], other.end))
    ends = np.concatenate((other.start, [max(one.end[-1], other.end[-1])]))
    between = ends > begins
    return intersection(one, Spans(begins[between], ends[between]))


def gaps(spans: Spans, start: int, end: int) -> Spans:
    return difference(merged(np.array([start]), np.array([end])), spans)


def windows_of(found: Iterable[tuple[T, Hashable, float]], length: float) -> list[list[T]]:
    """Return things with their writers and times, which rise, in windows, oldest first.

    Each joins the first window that began at most ``length`` before it and is behind its writer's last one; where there
    is none, it begins another.
    """
    windows: list[list[T]] = []
    begins: list[float] = []
    last: dict[Hashable, int] = {}
    first = 0
    for each, writer, at in found:
        while first < len(windows) and begins[first] < at - length:
            first += 1
        place = last[writer] = max(first, last.get(writer, -1) + 1)
        if place == len(windows):
            windows.append([])
            begins.append(at)
        windows[place].append(each)
    return windows


def innermost(start: Ints, end: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Return for each time the innermost of nested ranges in order of their start, and each one's parent."""
    parent = np.full(len(start), -1, dtype=np.int64)
    open_ones: list[int] = []
    ends = end.tolist()
    for each, begins in enumerate(start.tolist()):
        while open_ones and ends[open_ones[-1]] <= begins:
            open_ones.pop()
        parent[each] = open_ones[-1] if open_ones else -1
        open_ones.append(each)
    place: Ints = np.searchsorted(start, times, side="right").astype(np.int64) - 1
    while True:
        over = (place >= 0) & (end[np.maximum(place, 0)] <= times)
        if not over.any():
            return place, parent
        place = np.where(over, parent[np.maximum(place, 0)], place)


def innermost_rows(rows: Rows, chosen: Ints, lanes: Numbers, times: Ints) -> Ints:
    """Return the innermost of some rows around each time of a thread; -1 where there is none."""
    found = np.full(len(times), -1, dtype=np.int64)
    for lane in np.unique(rows.lane[chosen]).tolist():
        mine = chosen[rows.lane[chosen] == lane]
        mine = mine[np.lexsort((-rows.end[mine], rows.start[mine]))]
        here = np.flatnonzero(lanes == lane)
        place, _ = innermost(rows.start[mine], rows.end[mine], times[here])
        found[here] = np.where(place >= 0, mine[np.maximum(place, 0)], -1)
    return found


def inside_rows(rows: Rows, chosen: Bools, lanes: Numbers, times: Ints) -> Bools:
    """Return which times of a thread lie in some rows of it."""
    found = np.zeros(len(times), dtype=np.bool_)
    for lane in np.unique(rows.lane[chosen]).tolist():
        mine, here = chosen & (rows.lane == lane), lanes == lane
        found[here] = merged(rows.start[mine], rows.end[mine]).holds(times[here])
    return found
