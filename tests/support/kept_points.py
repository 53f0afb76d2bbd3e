"""Kept points by a plain reading of their definition, over a whole series at once."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray
from trainguard.rules.rule_inputs import IdleTime


@dataclass(frozen=True)
class KeptPoints:
    """What a series of snapshots is sorted into.

    ``rows`` are the kept ones; ``start`` is the first row of work, None during start-up; ``working`` that of work which
    may be the end of start-up, ``waiting`` its rows; ``idle_since`` is the start of the open idle run.
    """

    rows: list[int]
    start: int | None
    working: int | None
    idle_since: float | None
    idle_time: IdleTime
    waiting: list[int]


def kept_points(  # noqa: C901 -- the definition in one piece
    times: FloatArray, active: BoolArray, seen: BoolArray, interval_s: float
) -> KeptPoints:
    """Sort snapshots at ``times`` (float64[T]), of which some have GPU samples (``seen``) and some are ``active``."""
    moments = times.tolist()
    runs = _runs(times, active, np.flatnonzero(seen), max(60.0, 3.0 * interval_s))
    kept: list[int] = []
    waiting: list[int] = []
    begun, count, start = None, 0, None
    idle_since, samples, paused, by_chance = None, 0, 0, 0
    idle = 0  # of the kept and waiting rows: a run is of active rows alone, or of idle ones
    breaks = []
    for run, (is_active, rows, until) in enumerate(runs):
        last = run == len(runs) - 1
        idle_since = None
        if is_active:
            waiting += rows
            if start is None:
                begun, count = rows[0] if begun is None else begun, count + len(rows)
                if count >= 3 and count * interval_s >= 60.0:
                    start, samples = begun, idle
        elif begun is not None:
            length_s = (moments[rows[-1]] if until is None else until) - moments[rows[0]]
            before = kept if start is not None else waiting
            share = (idle + 1) / (len(before) + 2)
            chance = 3 <= len(rows) <= 60 and share ** len(rows) > 0.001
            long = len(rows) >= 3 and length_s > 60.0
            pause = long and not chance
            if start is None and pause:
                waiting, begun, idle = [], None, 0
            elif until is not None:
                waiting += [] if pause else rows
                idle += 0 if pause else len(rows)
                if start is not None:
                    samples, paused = samples + len(rows), paused + pause * len(rows)
                    by_chance += (long and chance) * len(rows)
                    is_break = length_s >= 10.0 and len(rows) >= 3 and not chance
                    breaks += [(moments[rows[0]], length_s)] if is_break else []
            elif last:
                idle_since = moments[rows[0]]
        if start is not None:
            kept.extend(waiting)
            waiting = []
    idle_time = IdleTime(
        int(samples), int(paused), int(by_chance), sum(length for _, length in breaks), tuple(breaks[-8:])
    )
    return KeptPoints(kept, start, begun if start is None else None, idle_since, idle_time, waiting)


def _runs(
    times: FloatArray, active: BoolArray, rows: np.typing.NDArray[np.int64], longest_s: float
) -> list[tuple[bool, list[int], float | None]]:
    """Return the runs of active and of idle rows; of one that the next ends without a gap, the time of that."""
    if not rows.size:
        return []
    gaps = np.diff(times[rows]) > longest_s
    changes = np.flatnonzero(gaps | np.diff(active[rows]))
    begins = np.concatenate([[0], changes + 1])
    is_active = active[rows[begins]].tolist()
    ends = [None if gap else until for gap, until in zip(gaps[changes], times[rows[begins[1:]]].tolist(), strict=True)]
    edges, numbers = [*begins.tolist(), len(rows)], rows.tolist()
    pieces = [numbers[begin:end] for begin, end in pairwise(edges)]
    return list(zip(is_active, pieces, [*ends, None], strict=True))
