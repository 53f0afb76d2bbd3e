"""Lines of evidence that several rules give."""

from collections.abc import Sequence

import numpy as np

from trainguard.kernels.columns import Bools, Ints
from trainguard.kernels.host_work import work_under
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
