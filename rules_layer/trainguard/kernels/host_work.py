"""The host's work under a stretch of time, and around a call."""

from collections.abc import Iterator

import numpy as np

from trainguard.core.text import one_line
from trainguard.kernels.columns import Rows, Trace

LOOKED_AT = 8
_STEP = "ProfilerStep"
COVERED = 0.5
"""An operator that covers so much of a stretch explains it; the innermost one explains it best."""


def work_under(trace: Trace, start: int, end: int) -> str:
    """Name the innermost of what covers half of a stretch on the host, else of what took longest; empty without any."""
    best, covered = "", 0
    innermost: int | None = None
    for rows in (trace.operators, trace.annotations, trace.launches):
        for place, overlap in _candidates(rows, start, end):
            name, lasted = trace.names[int(rows.name[place])], int(rows.end[place] - rows.start[place])
            if name.startswith(_STEP):
                continue
            inside = overlap >= COVERED * (end - start)
            if inside and (innermost is None or lasted < innermost):
                best, innermost = name, lasted
            elif innermost is None and overlap > covered:
                best, covered = name, overlap
    if not best:
        return ""
    return f"{'longest' if innermost is None else 'mostly'} in {one_line(best)}"


def caller_of(trace: Trace, call: int) -> str:
    """Return the innermost operator of the same thread around a call; empty where there is none."""
    operators, launches = trace.operators, trace.launches
    around = (operators.lane == launches.lane[call]) & (operators.start <= launches.start[call])
    found = np.flatnonzero(around & (operators.end >= launches.end[call]))
    if not len(found):
        return ""
    return one_line(trace.names[int(operators.name[found[np.argmax(operators.start[found])]])])


def _candidates(rows: Rows, start: int, end: int) -> Iterator[tuple[int, int]]:
    met = np.flatnonzero((rows.start < end) & (rows.end > start) & (rows.end > rows.start))
    began, ended = rows.start[met], rows.end[met]
    overlap = np.minimum(ended, end) - np.maximum(began, start)
    wide = np.flatnonzero(overlap >= COVERED * (end - start))
    shortest = wide[np.argsort((ended - began)[wide], kind="stable")[:LOOKED_AT]]
    chosen = np.concatenate((shortest, np.argsort(-overlap, kind="stable")[:LOOKED_AT]))
    yield from zip(met[chosen].tolist(), overlap[chosen].tolist(), strict=True)
