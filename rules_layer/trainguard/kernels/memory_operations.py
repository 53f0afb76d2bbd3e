"""The copies and settings of memory of a rank by kind, with their bandwidth."""

import re

import numpy as np

from trainguard.kernels.columns import Kind
from trainguard.kernels.document import MemoryEntry
from trainguard.kernels.durations import exact_sum
from trainguard.kernels.metrics import RankMetrics

_COPY = re.compile(r"Mem(?:cpy|ory) (HtoD|DtoH|DtoD|PtoP|HtoH)\b(?: \((\w+) -> (\w+)\))?")
_AMD_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)")


def memory_operations(metrics: RankMetrics) -> list[MemoryEntry]:
    """Return the operations on memory in the window by name, most time first."""
    gpu = metrics.trace.gpu
    chosen = np.flatnonzero(metrics.in_window & (gpu.kind >= Kind.MEMCPY))
    found = []
    for name in np.unique(gpu.rows.name[chosen]).tolist():
        mine = chosen[gpu.rows.name[chosen] == name]
        lasted, sizes = gpu.rows.end[mine] - gpu.rows.start[mine], gpu.size[mine]
        timed = (sizes >= 0) & (lasted > 0)
        text = metrics.trace.names[name]
        direction, host = kind_of(text)
        found.append(
            MemoryEntry(
                name=text,
                count=len(mine),
                total_ns=exact_sum(lasted),
                bytes=sum(sizes.tolist()) if (sizes >= 0).all() else None,
                direction=direction,
                host_memory="pageable" if host == "Pageable" else "pinned" if host == "Pinned" else None,
                min_ns=int(lasted.min()),
                max_ns=int(lasted.max()),
                gb_per_s=round(exact_sum(sizes[timed]) / exact_sum(lasted[timed]), 3) if timed.any() else None,
            )
        )
    return sorted(found, key=lambda each: (-each.total_ns, each.name))


def kind_of(name: str) -> tuple[str, str]:
    """Return the direction of an operation on memory, and what the host's side is, as far as its name says it."""
    if name.startswith("Memset"):
        return "memset", ""
    if match := _COPY.match(name):
        sides = {"HtoD": match[2], "DtoH": match[3]}
        return match[1], sides.get(match[1]) or ""
    if match := _AMD_COPY.match(name):
        return f"{match[1][0]}to{match[2][0]}", ""
    return "other", ""
