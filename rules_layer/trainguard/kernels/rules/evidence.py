"""What findings rest on: stretches with the host's work under them, and rows of the GPU."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainguard.core.text import one_line
from trainguard.kernels.columns import Bools, Ints, Rows, Trace
from trainguard.kernels.intervals import Spans
from trainguard.kernels.kernel_table import KernelLine
from trainguard.kernels.rules.finding import SHOWN, Evidence, Judged


def longest(judged: Judged, what: str, found: Spans) -> list[Evidence]:
    """Return the longest stretches under one name."""
    return [judged.stretch(what, start, end) for start, end in _ordered(found)]


def longest_gaps(judged: Judged, found: Spans) -> list[Evidence]:
    """Return the longest gaps, with what the host did in each."""
    evidence = []
    for start, end in _ordered(found):
        host = work_under(judged.trace, start, end)
        said = f"GPU idle, host {host}" if host else "GPU idle, host in nothing that was recorded"
        evidence.append(judged.stretch(said, start, end))
    return evidence


def _ordered(found: Spans) -> list[tuple[int, int]]:
    order = np.argsort(found.start - found.end, kind="stable")[:SHOWN]
    return [(int(found.start[place]), int(found.end[place])) for place in order]


def by_name(judged: Judged, mask: Bools) -> list[Evidence]:
    """Return the GPU's rows of a mask, those of a name together, with their bandwidth."""
    gpu = judged.trace.gpu
    found = []
    for name in np.unique(gpu.rows.name[mask]):
        mine = mask & (gpu.rows.name == name)
        size = int(np.maximum(gpu.size[mine], 0).sum())
        lasted = int((gpu.rows.end[mine] - gpu.rows.start[mine]).sum())
        rate = f", {size:,} bytes, {size / lasted:.2f} GB/s" if size and lasted else ""
        found.append(judged.runs(judged.trace.names[int(name)] + rate, np.flatnonzero(mine)))
    return sorted(found, key=lambda each: -each.duration_ns)[:SHOWN]


def rows_of(lines: Sequence[KernelLine]) -> Ints:
    """Return the GPU's rows of a table's lines."""
    return np.concatenate([np.empty(0, dtype=np.int64), *(line.rows for line in lines)])


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
