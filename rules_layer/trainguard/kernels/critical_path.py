"""The critical path of a step: the work that would have to be shorter for the step to be shorter.

It is walked from the end. Work of the GPU follows the row before it on its stream, where it was launched before that
row ended; a row of another stream, where it waited longer than the GPU itself takes; else the host. What a launched row
waits beyond that without a known cause is a gap of the GPU. The classes are
those of HolisticTraceAnalysis, which joins streams by recorded events that most traces do not have.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import BLOCK_UNTIL_READY, Ints, Numbers, WorkKind
from trainguard.kernels.entries import CriticalPathEntry, PathKernel
from trainguard.kernels.times.gpu_times import KERNEL_WAIT_NS, launched_at
from trainguard.kernels.times.metrics import RankMetrics

# Of the GPU in a step; the path of a step with more is not walked.
MOST_ROWS = 100_000

SHOWN = 10
PARTS = ("compute", "communication", "memory", "gpu_gap", "launch", "host", "data_loading", "synchronization")
_OF_KIND: dict[int, str] = {
    WorkKind.COMPUTE: "compute",
    WorkKind.COMMUNICATION: "communication",
    WorkKind.MEMCPY: "memory",
    WorkKind.MEMSET: "memory",
}
_UNKNOWN = -1


def critical_paths(metrics: RankMetrics) -> list[CriticalPathEntry]:
    """Return the paths of a step of median length and of the slowest one; of the window where there are no steps."""
    window = metrics.window
    found: list[tuple[int | None, int, int]] = [(None, window.start, window.end)]
    if len(window.steps):
        start, end = metrics.steps_on_gpu()
        order = np.argsort(end - start, kind="stable")
        chosen = dict.fromkeys((int(order[(len(order) - 1) // 2]), int(order[-1])))
        found = [(int(window.steps.number[at]), int(start[at]), int(end[at])) for at in chosen]
    walks = [(number, _Walk(metrics, start, end)) for number, start, end in found if end > start]
    return [walk.entry(number) for number, walk in walks if 0 < len(walk) <= MOST_ROWS]


class _Walk:
    """A walk over rows of the GPU, in order of their ends; ``before`` is the one before on the stream."""

    def __init__(self, metrics: RankMetrics, low: int, high: int) -> None:
        rows = metrics.trace.gpu
        inside = np.flatnonzero((rows.end > low) & (rows.end <= high))
        self._places = inside[np.argsort(rows.end[inside], kind="stable")]
        self._metrics, self._low, self._high = metrics, low, high
        self._parts: Counter[str] = Counter()
        self._kernels: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def entry(self, number: int | None) -> CriticalPathEntry:
        self._walk()
        names = self._metrics.trace.names
        return CriticalPathEntry(
            step=number,
            total_ns=self._high - self._low,
            parts={part: self._parts[part] for part in (*PARTS, "unknown") if self._parts[part]},
            kernels=[PathKernel(name=names[name], total_ns=time) for name, time in self._kernels.most_common(SHOWN)],
        )

    def _walk(self) -> None:
        self._list_rows()
        ends, (waits_start, waits_end) = self._ends, self._waits()
        at, place = self._high, len(ends) - 1
        on_gpu = ends[-1] == self._high
        for _ in range(2 * len(ends) + len(waits_end) + 2):
            if at <= self._low:
                return
            if on_gpu:
                at = self._add_row(place, at)
                gate = self._gate(place)
                if gate != _UNKNOWN:
                    at = self._add("gpu_gap", ends[gate], at)
                    place = gate
                else:
                    launched = self._launched[place]
                    if launched != _UNKNOWN:
                        at = self._add("gpu_gap", self._sent[place] + KERNEL_WAIT_NS, at)
                    at = self._add("launch", at if launched == _UNKNOWN else max(launched, self._low), at)
                    on_gpu = False
            else:
                released, wait = self._released(waits_start, waits_end, at)
                at = self._add_host(self._low if released == _UNKNOWN else waits_end[wait], at)
                if released != _UNKNOWN:
                    at = self._add("synchronization", ends[released], at)
                    place, on_gpu = released, True
        self._add("unknown", self._low, at)

    def _list_rows(self) -> None:
        trace, window = self._metrics.trace, self._metrics.window
        rows, mine = trace.gpu, self._places
        launch = window.launch[mine]
        starts = rows.start[mine]
        called = trace.launches.start[np.maximum(launch, 0)] if len(trace.launches) else np.zeros_like(launch)
        self._names = rows.name[mine].tolist()
        self._starts: list[int] = starts.tolist()
        self._ends: list[int] = rows.end[mine].tolist()
        self._kinds = trace.gpu.kind[mine].tolist()
        self._launched: list[int] = np.where(launch >= 0, np.minimum(called, starts), _UNKNOWN).tolist()
        sent = launched_at(trace, np.maximum(launch, 0), self._metrics.waiting_calls) if len(trace.launches) else called
        self._sent: list[int] = np.minimum(sent, starts).tolist()
        self._before = _before(rows.lane[mine], trace.gpu.device[mine], starts, rows.end[mine])

    def _waits(self) -> tuple[list[int], list[int]]:
        calls, window = self._metrics.trace.launches, self._metrics.window
        launch = window.launch[self._places]
        threads = np.unique(calls.lane[launch[launch >= 0]])
        # JAX launches on threads of its own; the one that waits is Python's.
        anywhere = self._metrics.trace.numbers_of(lambda name: name == BLOCK_UNTIL_READY)
        mine = self._metrics.waiting_calls & (np.isin(calls.lane, threads) | np.isin(calls.name, anywhere))
        mine &= (calls.end > self._low) & (calls.start < self._high)
        chosen = np.flatnonzero(mine)
        chosen = chosen[np.argsort(calls.end[chosen], kind="stable")]
        return calls.start[chosen].tolist(), calls.end[chosen].tolist()

    def _gate(self, place: int) -> int:
        """Return the row of the GPU that held a row back; -1 where the host did, or nothing is known."""
        launched, start, ends = self._launched[place], self._starts[place], self._ends
        before = self._before[place]
        other = min(bisect_right(ends, start), place) - 1
        if launched == _UNKNOWN:
            return other
        if before >= 0 and ends[before] > launched:
            waited = start - ends[before] >= KERNEL_WAIT_NS and other > before
            return other if waited else before
        waited = start - launched >= KERNEL_WAIT_NS and other >= 0 and ends[other] > launched
        return other if waited else _UNKNOWN

    def _released(self, starts: Sequence[int], ends: Sequence[int], at: int) -> tuple[int, int]:
        """Return the row whose end released the last wait before a time, and the wait; -1 where there is none."""
        for wait in range(bisect_right(ends, at) - 1, -1, -1):
            row = bisect_right(self._ends, ends[wait]) - 1
            if row >= 0 and self._ends[row] > starts[wait]:
                return row, wait
        return _UNKNOWN, _UNKNOWN

    def _add(self, part: str, start: int, end: int) -> int:
        start = max(start, self._low)
        if end > start:
            self._parts[part] += end - start
        return min(start, end)

    def _add_row(self, place: int, end: int) -> int:
        start = max(self._starts[place], self._low)
        self._kernels[self._names[place]] += max(end - start, 0)
        return self._add(_OF_KIND[self._kinds[place]], start, end)

    def _add_host(self, start: int, end: int) -> int:
        start, loader = max(start, self._low), self._metrics.loader
        loading = int(loader.within(np.array([start]), np.array([end]))[0]) if len(loader.start) and end > start else 0
        self._parts["data_loading"] += loading
        self._parts["host"] += max(end - start, 0) - loading
        return min(start, end)


def _before(lane: Numbers, device: Ints, start: Ints, end: Ints) -> list[int]:
    """Return for each row the last one of its stream that ended before it starts; -1 where there is none."""
    found = np.full(len(start), _UNKNOWN, dtype=np.int64)
    order = np.lexsort((lane, device))  # stable: within a stream by the ends
    changes = np.flatnonzero(np.diff(lane[order]) | np.diff(device[order])) + 1
    for mine in np.split(order, changes):
        place = np.searchsorted(end[mine], start[mine], side="right") - 1
        place = np.minimum(place, np.arange(len(mine)) - 1)
        found[mine] = np.where(place >= 0, mine[np.maximum(place, 0)], _UNKNOWN)
    return found.tolist()
