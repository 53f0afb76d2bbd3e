"""Which framework events were under way at bottlenecks and during outlier steps.

Kept defects: each query adds an event's full duration; operators include their children; the labels of ``ratio`` are
swapped.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.framework_stream import FrameworkWindow
from trainguard.managed.framework_time import FrameworkTime, Kinds


class Correlation:
    """Time of the events that queries selected, over the whole job.

    ``Details`` show what the last query wrote, so queries only reserve the keys that they would write first, and
    ``write`` fills them in.
    """

    def __init__(self) -> None:
        self._time = FrameworkTime()
        self._kinds = Kinds()
        self._asked = False

    def at_points(self, window: FrameworkWindow, points_us: FloatArray, details: dict[str, Any]) -> None:
        """Query for the events with start < t < end, at each t of ``points_us`` (float64[Q]) in turn."""
        self._ask(window, points_us, points_us, details, strict=True)

    def over_intervals(
        self, window: FrameworkWindow, begins_us: FloatArray, ends_us: FloatArray, details: dict[str, Any]
    ) -> None:
        """Query for the events with end >= b and start <= e, for each interval [b, e] (float64[Q]) in turn."""
        self._ask(window, begins_us, ends_us, details, strict=False)

    def write(self, details: dict[str, Any]) -> None:
        """Fill in what the last query of the job left in ``Details``."""
        if self._asked:
            shares = self._time.shares(labels_swapped=True)
            details.update({key: shares[key] for key in self._time.report_keys()})

    def _ask(
        self, window: FrameworkWindow, begins: FloatArray, ends: FloatArray, details: dict[str, Any], *, strict: bool
    ) -> None:
        if not begins.size:
            return
        self._asked = True
        first, times = _matches(window, begins, ends, strict=strict)
        kinds = self._kinds.of(window)
        rows = np.flatnonzero(times)
        rows = rows[np.argsort(first[rows], kind="stable")]
        for part in _keys_change(kinds[rows], first[rows]):
            self._time.add(window, kinds, rows[part], times[rows[part]])
            for key in self._time.report_keys():
                details.setdefault(key, {})


def _matches(
    window: FrameworkWindow, begins: FloatArray, ends: FloatArray, *, strict: bool
) -> tuple[IntArray, IntArray]:
    """Return, for each event, the first query that selects it and how many do (0 where none does).

    Queries come in runs that ascend; within one, those that select an event are neighbours.
    """
    first = np.full(len(window), len(begins))
    times = np.zeros(len(window), dtype=np.int64)
    breaks = np.flatnonzero((np.diff(begins) < 0) | (np.diff(ends) < 0)) + 1
    for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(begins)], strict=True):
        low = np.searchsorted(ends[start:stop], window.starts, side="right" if strict else "left")
        high = np.searchsorted(begins[start:stop], window.ends, side="left" if strict else "right")
        matched = np.maximum(high - low, 0)
        first = np.where((matched > 0) & (times == 0), start + low, first)
        times += matched
    return first, times


def _keys_change(kinds: IntArray, first: IntArray) -> list[slice]:
    """Cut rows after the first query and after those that meet a kind first: they order the keys of ``Details``."""
    _, met = np.unique(kinds, return_index=True)
    queries = {0, *first[met].tolist()}
    cuts = np.unique(np.searchsorted(first, sorted(queries), side="right")).tolist()
    edges = [0, *cuts, len(kinds)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
