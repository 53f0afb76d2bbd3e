"""Work of a GPU that was launched and is not in the trace: how much, and which idle time it may fill."""

import re
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Bools, Ints, Trace
from trainguard.kernels.times.intervals import Spans, merged

# A larger share of lost work makes every finding unsure, and the trace one that is not whole.
MOST_LOST = 0.001

# So many of the launches may still run when a recording ends: they are the last ones of their threads.
MOST_IN_FLIGHT = 0.01

# Calls that have a row of the GPU in a whole trace; one that sets no byte has none, so setting memory says nothing.
_STARTS_WORK = re.compile(r"Launch(?!HostFunc)|Memcpy", re.IGNORECASE)

_BEGIN_CAPTURE, _END_CAPTURE = "StreamBeginCapture", "StreamEndCapture"


@dataclass(frozen=True, slots=True)
class Lost:
    """Lost work of a window.

    at: When its launches start, rising.
    unplaced: Rows without a time, and without a launch that says when they ran.
    launches: Calls that start work, with those that lost it.
    in_flight: How many of ``at`` are behind the last launch of their thread that has its work.
    rows: Work of GPUs in the window.
    """

    at: Ints
    unplaced: int
    launches: int
    in_flight: int
    rows: int

    @property
    def count(self) -> int:
        return len(self.at) + self.unplaced

    @property
    def matters(self) -> bool:
        every = max(self.launches, self.rows) + self.unplaced
        running = self.in_flight if self.in_flight <= MOST_IN_FLIGHT * every else 0
        return self.count - running > MOST_LOST * every

    def stretches(self, launched: Ints, started: Ints, end: int) -> Spans:
        """Return when lost work may run: from its launch to the next start of work that was launched later.

        ``launched`` and ``started`` are of a GPU's rows with a launch; ``end`` is that of the window.
        """
        order = np.argsort(launched, kind="stable")
        first = np.append(np.minimum.accumulate(started[order][::-1])[::-1], end)
        until = first[np.searchsorted(launched[order], self.at, side="right")]
        return merged(self.at, np.maximum(until, self.at))


def find_lost(trace: Trace, start: int, end: int) -> Lost:
    """Return the lost work of the window between two times."""
    calls = trace.launches
    wanted = starting_work(trace) & (calls.start >= start) & (calls.start < end)
    done = worked(trace)
    without = np.flatnonzero(wanted & ~done)
    mine = without[~_is_nothing(trace, without, done)]
    return Lost(
        at=np.sort(calls.start[mine]),
        unplaced=trace.tally.get("unplaced_rows", 0),
        launches=int(wanted.sum()),
        in_flight=_in_flight(trace, mine, done),
        rows=int(((trace.gpu.end > start) & (trace.gpu.start < end)).sum()),
    )


def starting_work(trace: Trace) -> Bools:
    """Return which calls have a row of the GPU in a whole trace."""
    calls = trace.launches
    found: Bools = np.isin(calls.name, trace.numbers_of(_STARTS_WORK.search)) & (calls.correlation >= 0)
    return found


def worked(trace: Trace) -> Bools:
    # Both rise nearly, and have too wide a range for a table of all numbers.
    numbers = np.sort(trace.gpu.correlation[trace.gpu.correlation >= 0])
    wanted = trace.launches.correlation
    if not len(numbers):
        return np.zeros(len(wanted), dtype=np.bool_)
    found: Bools = numbers[np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)] == wanted
    return found


def _is_nothing(trace: Trace, mine: Ints, done: Bools) -> Bools:
    """Return which of some calls lost nothing: they contain the call that did the work, or were captured in a graph."""
    calls, found = trace.launches, np.zeros(len(mine), dtype=np.bool_)
    if not len(mine):
        return found
    doing = np.flatnonzero(done)
    for lane in np.unique(calls.lane[mine]).tolist():
        on_lane = np.flatnonzero(calls.lane[mine] == lane)
        start, end = calls.start[mine[on_lane]], calls.end[mine[on_lane]]
        inside = np.sort(calls.start[doing[calls.lane[doing] == lane]])
        found[on_lane] = np.searchsorted(inside, end, side="left") > np.searchsorted(inside, start, side="right")
        found[on_lane] |= _captures(trace, lane).holds(start)
    return found


def _in_flight(trace: Trace, mine: Ints, done: Bools) -> int:
    calls, found = trace.launches, 0
    for lane in np.unique(calls.lane[mine]).tolist():
        last = calls.start[done & (calls.lane == lane)].max(initial=np.iinfo(np.int64).min)
        found += int((calls.start[mine[calls.lane[mine] == lane]] > last).sum())
    return found


def _captures(trace: Trace, lane: int) -> Spans:
    """Return when a thread records a graph of what it launches; one that does not end lasts to the last call."""
    calls = trace.launches

    def named(word: str) -> Ints:
        mine = trace.numbers_of(lambda name: name.endswith(word) or f"{word}_" in name)
        return np.sort(calls.start[(calls.lane == lane) & np.isin(calls.name, mine)])

    begins, ends = named(_BEGIN_CAPTURE), named(_END_CAPTURE)
    last = int(calls.end.max())
    until = np.append(ends, last)[np.searchsorted(ends, begins, side="left")]
    return merged(begins, until)
