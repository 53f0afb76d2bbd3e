"""A trace to its timeline, and the timelines of several ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from trainguard.kernels.columns import Floats, Ints, Trace
from trainguard.kernels.document import RankProfile
from trainguard.kernels.timeline.rows import AllRows, LaneKey, RowTable, Sort, chosen_rows
from trainguard.kernels.times.window import TraceWindow, find_window

MOST_ROWS = 100_000
MOST_LANES = 64
LEAST_ROWS = 4 * MOST_LANES
DEEPEST = 24

# Rows of traces in whole microseconds overlap by up to that without running at once.
OVERLAP_NS = 1_000


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the trace that are not in its timeline, or not row by row.

    ``outside`` the window; ``lane_rows`` on the ``lanes`` with the least time; ``joined`` into ``joins`` rectangles
    with others; ``deep`` below the deepest level.
    """

    outside: int
    lanes: int
    lane_rows: int
    joined: int
    joins: int
    deep: int


class TimelineHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a timeline says beside its rows.

    start_unix_ns, lead_ns: The window's start since the epoch, if the clock has that; how long before it the first
        launch of its work is.
    lanes: GPUs' streams first, then threads.
    detail: Stretches from the window's start in which each row of the trace is a row.
    """

    trace: str
    start_unix_ns: int
    lead_ns: int
    window_ns: int
    lanes: list[LaneKey]
    names: list[str]
    detail: list[tuple[int, int]]
    left_out: LeftOut


class Timeline(TimelineHead, frozen=True, kw_only=True):
    """The bounded timeline of a trace.

    rows: By lane, an index into ``lanes``, then by start; times from the window's start.
    level, launch, size: int64[N]: how many rows of its lane a row is inside of or beside; the row of its launch; bytes;
        -1 where unknown.
    """

    rows: RowTable
    level: Ints
    launch: Ints
    size: Ints


def timeline_of(trace: Trace, most: int = MOST_ROWS) -> Timeline:
    """Return the timeline of a trace: at most ``most`` rows, or 256 where that is more, on at most 64 lanes."""
    window = find_window(trace)
    found = AllRows(trace)
    lead = _lead(trace, window)
    first = window.start - lead
    number, time = _sums(found, first, window.end)
    kept: list[int] = []
    for side in ("gpu", "host"):
        used = [lane for lane, key in enumerate(found.lanes) if key.side == side and number[lane]]
        kept += sorted(used, key=lambda lane: -time[lane])[: MOST_LANES // 2]
    kept.sort(key=lambda lane: _place_of(found.lanes[lane]))
    new = np.full(len(found.lanes), -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))

    def chunks() -> Iterator[RowTable]:
        for rows in found.chunks():
            moved = new[rows.lane]
            yield replace(rows, lane=moved).where((rows.end >= first) & (rows.start <= window.end) & (moved >= 0))

    drawn = int(number[kept].sum())
    table, detail = chosen_rows(chunks, drawn, len(kept), window, max(most, LEAST_ROWS))
    table = table.where(np.lexsort((-table.end, table.start, table.lane)))
    level = levels(table)
    shown = level < DEEPEST
    deep = int(table.count[~shown].sum())
    table, level = table.where(shown), level[shown]
    several = table.count > 1
    inside = int(number.sum())
    return Timeline(
        trace=trace.name,
        start_unix_ns=window.start + trace.base_ns,
        lead_ns=lead,
        window_ns=window.length,
        lanes=[found.lanes[lane] for lane in kept],
        rows=replace(table, start=table.start - window.start, end=table.end - window.start),
        level=level,
        launch=_launches(table, window),
        size=_sizes(table, trace),
        names=trace.names,
        detail=[(start - window.start, end - window.start) for start, end in detail],
        left_out=LeftOut(
            outside=len(found) - inside,
            lanes=int((number > 0).sum()) - len(kept),
            lane_rows=inside - drawn,
            joined=int(table.count[several].sum()),
            joins=int(several.sum()),
            deep=deep,
        ),
    )


def _sums(found: AllRows, first: int, last: int) -> tuple[Ints, Floats]:
    number = np.zeros(len(found.lanes), dtype=np.int64)
    time = np.zeros(len(found.lanes), dtype=np.float64)
    for rows in found.chunks():
        inside = rows.where((rows.end >= first) & (rows.start <= last))
        number += np.bincount(inside.lane, minlength=len(number))
        time += np.bincount(inside.lane, weights=inside.end - inside.start, minlength=len(number))
    return number, time


def _lead(trace: Trace, window: TraceWindow) -> int:
    """Return how long before the window the launches of its GPU work begin; at most as long as the window is."""
    rows = trace.gpu
    launches = window.launch[(rows.end > window.start) & (rows.start < window.end) & (window.launch >= 0)]
    if not len(launches):
        return 0
    first = int(trace.launches.start[launches].min())
    return min(max(window.start - first, 0), window.length)


def levels(rows: RowTable) -> Ints:
    """Return the level of each row, at most `DEEPEST`: the first one where the row before has ended."""
    found = np.empty(len(rows), dtype=np.int64)
    ends: list[int] = []
    last = -1
    columns = zip(rows.lane.tolist(), rows.start.tolist(), rows.end.tolist(), strict=True)
    for place, (lane, start, end) in enumerate(columns):
        if lane != last:
            last, ends = lane, []
        level = 0
        for level, before in enumerate(ends):  # noqa: B007 -- where the loop ends is the level
            if before <= start or (before <= start + OVERLAP_NS and before <= end):
                break
        else:
            level = len(ends)
            if level < DEEPEST:
                ends.append(end)
        if level < DEEPEST:
            ends[level] = end
        found[place] = level
    return found


def _place_of(key: LaneKey) -> tuple[bool, int, int, int, str]:
    """Return the place of a lane: GPUs by number, streams by number, what a stream did before its waits."""
    number = int(key.name) if key.name.isascii() and key.name.isdigit() else 1 << 62
    return (key.side == "host", key.device, number, ("work", "annotations", "waits").index(key.holds), key.name)


def _launches(rows: RowTable, window: TraceWindow) -> Ints:
    found = np.full(len(rows), -1, dtype=np.int64)
    on_gpu = np.flatnonzero((rows.sort <= Sort.MEMSET) & (rows.source >= 0))
    calls = np.flatnonzero((rows.sort == Sort.LAUNCH) & (rows.source >= 0))
    if len(calls):
        place = np.full(int(rows.source[calls].max()) + 2, -1, dtype=np.int64)
        place[rows.source[calls]] = calls
        launch = window.launch[rows.source[on_gpu]]
        known = (launch >= 0) & (launch < len(place))
        found[on_gpu[known]] = place[launch[known]]
    return found


def _sizes(rows: RowTable, trace: Trace) -> Ints:
    found = np.full(len(rows), -1, dtype=np.int64)
    copies = np.flatnonzero((rows.sort >= Sort.MEMCPY) & (rows.sort <= Sort.MEMSET) & (rows.source >= 0))
    found[copies] = trace.gpu.size[rows.source[copies]]
    return found


MOST_RANKS = 8


class DrawnRanks:
    """Collects the timelines of the first of ``ranks`` ranks, which share the rows that a page may hold."""

    def __init__(self, ranks: int) -> None:
        self._most_rows = MOST_ROWS // min(max(ranks, 1), MOST_RANKS)
        self._drawn: list[tuple[RankProfile, Timeline]] = []

    def add(self, profile: RankProfile, trace: Trace) -> None:
        """Add a rank; those beyond the most that are drawn are left out."""
        if len(self._drawn) < MOST_RANKS:
            self._drawn.append((profile, timeline_of(trace, self._most_rows)))

    def in_order(self) -> Sequence[tuple[RankProfile, Timeline]]:
        return sorted(self._drawn, key=lambda each: (each[0].rank is None, each[0].rank or 0, each[0].trace))
