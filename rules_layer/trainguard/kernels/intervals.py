"""Stretches of time as sorted, disjoint pairs of whole nanoseconds, and what can be computed from them."""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Ints


@dataclass(frozen=True, slots=True)
class Spans:
    """Sorted, disjoint, not empty stretches, the end not included."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        """Their length."""
        return int((self.end - self.start).sum())

    def before(self, times: Ints) -> Ints:
        """Return how much of them lies before each time."""
        ends = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, times, side="right")
        whole = ends[place]
        if not len(self.start):
            return whole
        last = np.maximum(place - 1, 0)
        beyond = np.where(place > 0, np.maximum(self.end[last] - times, 0), 0)
        return whole - beyond

    def within(self, start: Ints, end: Ints) -> Ints:
        """Return how much of them lies in each of other stretches."""
        return self.before(end) - self.before(start)


def merged(start: Ints, end: Ints) -> Spans:
    """Return the union of stretches in any order; those without a length are dropped."""
    kept = end > start
    start, end = start[kept], end[kept]
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    begins = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(begins)[1:] - 1, [len(start) - 1]))
    return Spans(start[begins], reach[last])


def clipped(spans: Spans, start: int, end: int) -> Spans:
    """Return the part that lies in a window."""
    return merged(np.maximum(spans.start, start), np.minimum(spans.end, end))


def union(*parts: Spans) -> Spans:
    """Return what lies in any of them."""
    return merged(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))


def intersection(one: Spans, other: Spans) -> Spans:
    """Return what lies in both."""
    return _segments(one, other, wanted=True)


def difference(one: Spans, other: Spans) -> Spans:
    """Return what lies in the first and not in the second."""
    return _segments(one, other, wanted=False)


def gaps(spans: Spans, start: int, end: int) -> Spans:
    """Return what a window has beside them."""
    return difference(merged(np.array([start]), np.array([end])), spans)


def _segments(one: Spans, other: Spans, *, wanted: bool) -> Spans:
    points = np.unique(np.concatenate((one.start, one.end, other.start, other.end)))
    if len(points) < 2:
        return Spans(points[:0], points[:0])
    begin, end = points[:-1], points[1:]
    kept = _holds(one, begin) & (_holds(other, begin) == wanted)
    return merged(begin[kept], end[kept])


def _holds(spans: Spans, times: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not len(spans.start):
        return np.zeros(len(times), dtype=np.bool_)
    place = np.searchsorted(spans.start, times, side="right") - 1
    held: np.ndarray[tuple[int], np.dtype[np.bool_]] = (place >= 0) & (times < spans.end[np.maximum(place, 0)])
    return held
