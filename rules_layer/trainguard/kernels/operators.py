"""The operators of a rank: which kernels they launched, what these achieve, and what the GPU could do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainguard.kernels.columns import Gpu, Kind
from trainguard.kernels.costs import Cost, cost
from trainguard.kernels.entries import OperatorEntry, PeaksEntry
from trainguard.kernels.inputs import read_inputs, shapes_text
from trainguard.kernels.kernel_names import Precision
from trainguard.kernels.kernel_table import KernelTable
from trainguard.kernels.metrics import RankMetrics
from trainguard.kernels.peaks import AS_OF, Peaks, peaks_of
from trainguard.plain_text import one_line

MOST_SHAPES = 2_000
"""Characters of shapes in an entry; longer ones are cut."""


CACHED = 2
"""Tensors up to so many times the cache may come from it by half or more."""

_LESS_ARITHMETIC = re.compile(r"winograd|fft", re.IGNORECASE)

Unrated = Literal["cache", "algorithm", "not_moved"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The achieved share of what a GPU could do, and the side of the knee; else why there is no share."""

    share: float | None
    bound: Literal["compute", "memory"]
    unrated: Unrated | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """Kernels of an operator: the precision of most of their time, and whether any computes less than its formula."""

    precision: Precision
    less_arithmetic: bool = False


def peaks_entry(gpus: Sequence[Gpu]) -> PeaksEntry | None:
    """Return what the GPU of a trace can do; None where it is unknown, or where there are several sorts."""
    found = _peaks(gpus)
    if found is None:
        return None
    return PeaksEntry(
        gpu=one_line(gpus[0].name),
        tflops={precision.value: value for precision, value in found.tflops.items()},
        memory_gb_per_s=found.memory_gb_per_s,
        cache_mb=found.cache_mb,
        as_of=AS_OF,
    )


def operators_of(metrics: RankMetrics, table: KernelTable, most: int) -> tuple[list[OperatorEntry], int]:
    """Return the operators that launched kernels that compute, most time first, and how many more there are."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind == Kind.COMPUTE) & (metrics.operator >= 0))
    if not len(chosen):
        return [], 0
    operator = metrics.operator[chosen]
    lasted = trace.gpu.rows.end[chosen] - trace.gpu.rows.start[chosen]
    name = trace.operators.name[operator].astype(np.int64)
    key = name * (len(trace.names) + 1) + trace.operator_inputs[operator] + 1
    keys, first, group = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(group, weights=lasted).astype(np.int64)
    order = np.lexsort((keys, -time))[:most]
    precisions = {line.name: line.says.precision for line in table.lines}
    peaks = _peaks(trace.gpus)
    found = []
    for place in order.tolist():
        mine = group == place
        names, which = np.unique(trace.gpu.rows.name[chosen[mine]], return_inverse=True)
        longest = trace.names[int(names[np.bincount(which, weights=lasted[mine]).argmax()])]
        caller = int(operator[first[place]])
        found.append(
            _entry(
                trace.names[int(trace.operators.name[caller])],
                _inputs_text(trace.names, int(trace.operator_inputs[caller])),
                count=len(np.unique(operator[mine])),
                kernel_ns=int(time[place]),
                runs=Runs(
                    precisions[longest],
                    any(_LESS_ARITHMETIC.search(trace.names[name]) is not None for name in names.tolist()),
                ),
                peaks=peaks,
            )
        )
    return found, len(keys) - len(order)


def roofline(once: Cost, calls: int, seconds: float, runs: Runs, peaks: Peaks) -> Roofline | None:
    """Return what calls of one cost in so many seconds are by the roofline.

    Returns
    -------
    Roofline or None
        None where the table has no peak of the precision. Without a share where the cost is not what the GPU did: a
        cache may have served the tensors, the algorithm computes less, or memory cannot move so much in this time, as
        with inputs that `expand` repeats.
    """
    peak = peaks.tflops.get(runs.precision)
    if peak is None or not once.bytes or not seconds:
        return None
    by_compute = once.flops * calls / (peak * 1e12)
    by_memory = once.bytes * calls / (peaks.memory_gb_per_s * 1e9)
    share = max(by_compute, by_memory) / seconds
    if by_compute >= by_memory:
        return Roofline(None, "compute", "algorithm") if runs.less_arithmetic else Roofline(share, "compute")
    if once.held <= CACHED * peaks.cache_mb * 1e6:
        return Roofline(None, "memory", "cache")
    return Roofline(None, "memory", "not_moved") if share > 1 else Roofline(share, "memory")


def _peaks(gpus: Sequence[Gpu]) -> Peaks | None:
    return peaks_of(gpus[0]) if len({gpu.name for gpu in gpus}) == 1 else None


def _inputs_text(names: list[str], number: int) -> str:
    return names[number] if number >= 0 else ""


def _entry(name: str, recorded: str, *, count: int, kernel_ns: int, runs: Runs, peaks: Peaks | None) -> OperatorEntry:
    inputs = read_inputs(recorded) if recorded else None
    once = cost(name, inputs) if inputs is not None else None
    flops, moved = (None, None) if once is None else (once.flops * count, once.bytes * count)
    roof = None if once is None or peaks is None else roofline(once, count, kernel_ns / 1e9, runs, peaks)
    return OperatorEntry(
        name=one_line(name),
        shapes=one_line(shapes_text(recorded))[:MOST_SHAPES],
        count=count,
        kernel_ns=kernel_ns,
        precision=runs.precision.value,
        flops=flops,
        bytes=moved,
        tflops=None if flops is None or not kernel_ns else round(flops / kernel_ns / 1e3, 4),
        gb_per_s=None if moved is None or not kernel_ns else round(moved / kernel_ns, 3),
        roofline_share=None if roof is None or roof.share is None else round(roof.share, 4),
        bound=None if roof is None else roof.bound,
        unrated=None if roof is None else roof.unrated,
    )
