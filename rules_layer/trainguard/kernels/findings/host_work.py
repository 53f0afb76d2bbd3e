"""What the host did: under a stretch of time, and around a call."""

import numpy as np

from trainguard.kernels.columns import Ints, Rows, Trace
from trainguard.plain_text import one_line

LOOKED_AT = 8
_STEP = "ProfilerStep"
COVERED = 0.5
"""An operator that covers so much of a stretch explains it; the innermost one explains it best."""


def work_under(trace: Trace, start: int, end: int) -> str:
    """Return what the host did most of a stretch: the innermost of what covers half; empty where unknown."""
    best, covered = "", 0
    innermost: int | None = None
    for rows in (trace.operators, trace.annotations, trace.launches):
        overlap = np.minimum(rows.end, end) - np.maximum(rows.start, start)
        for place in _candidates(rows, overlap, COVERED * (end - start)).tolist():
            name, lasted = trace.names[int(rows.name[place])], int(rows.end[place] - rows.start[place])
            if name.startswith(_STEP):
                continue
            inside = overlap[place] >= COVERED * (end - start)
            if inside and (innermost is None or lasted < innermost):
                best, innermost = name, lasted
            elif innermost is None and overlap[place] > covered:
                best, covered = name, int(overlap[place])
    return one_line(best)


def caller_of(trace: Trace, call: int) -> str:
    """Return the innermost operator of the same thread around a call; empty where there is none."""
    operators, launches = trace.operators, trace.launches
    around = (operators.lane == launches.lane[call]) & (operators.start <= launches.start[call])
    found = np.flatnonzero(around & (operators.end >= launches.end[call]))
    if not len(found):
        return ""
    return one_line(trace.names[int(operators.name[found[np.argmax(operators.start[found])]])])


def _candidates(rows: Rows, overlap: Ints, enough: float) -> Ints:
    """Return the rows that could explain a stretch: all that cover enough of it, and those that cover most."""
    some = np.flatnonzero(overlap > 0)
    wide = some[overlap[some] >= enough]
    shortest = wide[np.argsort((rows.end - rows.start)[wide], kind="stable")[:LOOKED_AT]]
    return np.concatenate((shortest, some[np.argsort(-overlap[some], kind="stable")[:LOOKED_AT]]))
