"""Recomputes which phase of a framework's events takes more of the time in minutes with bottlenecks."""

import math
from collections import defaultdict

import numpy as np

from tests.claims.bottleneck import WINDOW_MINUTES, waits_of
from tests.claims.context import Context, Expected, Fact, Range, Recompute
from tests.claims.raw import Event

_MINUTE_S = 60.0
_WITHIN = 0.2
"""Percentage points: times are kept in whole microseconds, and the smallest phases of a minute not at all."""


def _time_by_minute(events: list[Event], phase: str) -> dict[int, float]:
    """Return the seconds of a phase in each minute, what overlaps on one thread once."""
    by_thread: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in events:
        if each.phase == phase:
            by_thread[each.thread].append((each.start, each.end))
    found: dict[int, float] = defaultdict(float)
    for spans in by_thread.values():
        reached = -math.inf
        for start, end in sorted(spans):
            begin, reached = max(start, reached), max(end, reached)
            while begin < end:
                minute = int(begin // _MINUTE_S)
                until = min(end, _MINUTE_S * (minute + 1))
                found[minute] += until - begin
                begin = until
    return found


def _minutes_with_events(events: list[Event]) -> set[int]:
    return {
        minute
        for each in events
        for minute in range(int(each.start // _MINUTE_S), int((each.end - 1e-6) // _MINUTE_S) + 1)
    }


def _share(*, hit: bool) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        named, share = context.first("grown_phase"), context.first("share_of_samples")
        if named is None or share is None:
            return math.nan
        waits = waits_of(context, share)
        processes = [events for (node, _), events in context.raw.job.events.items() if node == context.node(share).name]
        newest = int(max(waits.minutes[waits.judged]))
        newest_event = max(max(_minutes_with_events(events)) for events in processes)
        total = available = 0.0
        tables = [(_time_by_minute(events, str(named["value"])), _minutes_with_events(events)) for events in processes]
        for minute in np.unique(waits.minutes[waits.judged]).astype(int).tolist():
            if minute <= max(newest, newest_event) - WINDOW_MINUTES:
                continue
            rows = waits.judged & (waits.minutes == minute)
            if (2 * int((waits.hits & rows).sum()) >= int(rows.sum())) != hit:
                continue
            total += sum(times.get(minute, 0.0) for times, _ in tables)
            available += _MINUTE_S * sum(minute in present for _, present in tables)
        percent = 100.0 * total / available if available else math.nan
        return Range(percent - _WITHIN, percent + _WITHIN)

    return recompute


def _phase(context: Context, fact: Fact) -> Expected:
    phases = {each.phase for events in context.raw.job.events.values() for each in events}
    return str(fact["value"]) if fact["value"] in phases else "no event is of this phase"


FACTS: dict[str, Recompute] = {
    "grown_phase": _phase,
    "phase_time_with": _share(hit=True),
    "phase_time_without": _share(hit=False),
}
