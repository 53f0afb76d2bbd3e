"""The operators of a rank: which kernels they launched, what these achieve, and what the GPU could do."""

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


@dataclass(frozen=True, slots=True)
class Roofline:
    """The achieved share of what a GPU could do, and the side of the knee."""

    share: float
    bound: Literal["compute", "memory"]


def peaks_entry(gpus: Sequence[Gpu]) -> PeaksEntry | None:
    """Return what the GPU of a trace can do; None where it is unknown, or where there are several sorts."""
    found = _peaks(gpus)
    if found is None:
        return None
    return PeaksEntry(
        gpu=one_line(gpus[0].name),
        tflops={precision.value: value for precision, value in found.tflops.items()},
        memory_gb_per_s=found.memory_gb_per_s,
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
    key = trace.operators.name[operator] * (len(trace.names) + 1) + trace.operator_inputs[operator] + 1
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
                precision=precisions[longest],
                peaks=peaks,
            )
        )
    return found, len(keys) - len(order)


def roofline(spent: Cost, seconds: float, precision: Precision, peaks: Peaks) -> Roofline | None:
    """Return what a cost in so many seconds is by the roofline; None where the table has no peak of the precision."""
    peak = peaks.tflops.get(precision)
    if peak is None or not spent.bytes or not seconds:
        return None
    by_compute, by_memory = spent.flops / (peak * 1e12), spent.bytes / (peaks.memory_gb_per_s * 1e9)
    return Roofline(max(by_compute, by_memory) / seconds, "compute" if by_compute >= by_memory else "memory")


def _peaks(gpus: Sequence[Gpu]) -> Peaks | None:
    return peaks_of(gpus[0]) if len({gpu.name for gpu in gpus}) == 1 else None


def _inputs_text(names: list[str], number: int) -> str:
    return names[number] if number >= 0 else ""


def _entry(
    name: str, recorded: str, *, count: int, kernel_ns: int, precision: Precision, peaks: Peaks | None
) -> OperatorEntry:
    inputs = read_inputs(recorded) if recorded else None
    once = cost(name, inputs) if inputs is not None else None
    spent = None if once is None else Cost(once.flops * count, once.bytes * count)
    roof = None if spent is None or peaks is None else roofline(spent, kernel_ns / 1e9, precision, peaks)
    return OperatorEntry(
        name=one_line(name),
        shapes=one_line(shapes_text(recorded))[:MOST_SHAPES],
        count=count,
        kernel_ns=kernel_ns,
        precision=precision.value,
        flops=None if spent is None else spent.flops,
        bytes=None if spent is None else spent.bytes,
        tflops=None if spent is None or not kernel_ns else round(spent.flops / kernel_ns / 1e3, 4),
        gb_per_s=None if spent is None or not kernel_ns else round(spent.bytes / kernel_ns, 3),
        roofline_share=None if roof is None else round(roof.share, 4),
        bound=None if roof is None else roof.bound,
    )
