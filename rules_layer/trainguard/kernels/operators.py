"""The operators of a rank: their kernels, and what these achieve."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from trainguard.core.text import one_line
from trainguard.kernels.columns import Ints, Trace, WorkKind
from trainguard.kernels.costs import UNKNOWN, Cost, Inputs, read_inputs, shapes_text
from trainguard.kernels.device_entries import PeaksEntry
from trainguard.kernels.entries import OperatorEntry
from trainguard.kernels.formulas.registry import Recalled
from trainguard.kernels.peaks import peaks_entry
from trainguard.kernels.times.metrics import RankMetrics
from trainguard.kernels.work import KernelLine, distinct

_ACCUMULATES = "torch::autograd::AccumulateGrad"
_OPTIMIZES = "Optimizer.step#"
# Elements of a block of PyTorch's kernels over lists (``MultiTensorApply.cuh``); a tensor's last block has less.
CHUNK = 65_536

LEAST_FULL, ROUNDED = 0.5, 1.001


def gradient_elements(metrics: RankMetrics) -> int:
    """Return the elements of the gradients of a step of the optimizer, as the engine records them; 0 if unknown."""
    trace, window, operators = metrics.trace, metrics.window, metrics.trace.operators
    named = trace.numbers_of(lambda name: name == _ACCUMULATES)
    within = (operators.start >= window.start) & (operators.start < window.end)
    places, counts = np.unique(trace.operator_inputs[np.isin(operators.name, named) & within], return_counts=True)
    marks = trace.annotations
    steps = trace.numbers_of(lambda name: name.startswith(_OPTIMIZES))
    steps_within = (marks.start >= window.start) & (marks.start < window.end) & np.isin(marks.name, steps)
    total = 0
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        inputs = read_inputs(trace.names[place]) if place >= 0 else None
        if inputs is None or not inputs.shapes:
            return 0
        total += count * prod(inputs.shapes[0])
    number = int(steps_within.sum())
    return total // number if number and total % number == 0 else 0


def fills(metrics: RankMetrics, rows: Ints, count: int, elements: int) -> bool:
    """Return whether so many elements fill the blocks of a call's kernels over lists, and no more than these hold."""
    gpus = metrics.trace.gpus
    blocks = float(metrics.trace.gpu.blocks_per_sm[rows].sum()) * (gpus[0].sms if gpus else 0) / count
    return elements > 0 and LEAST_FULL * blocks * CHUNK <= elements <= ROUNDED * blocks * CHUNK


MOST_SHAPES = 2_000
# Bytes of an element by a kernel's precision: of lists of tensors a trace does not record the type.
BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


# Tensors up to so many times the cache may come from it by half or more.
CACHED = 2

_LESS_ARITHMETIC = re.compile(r"winograd|fft", re.IGNORECASE)

_Unrated = Literal["cache", "algorithm", "not_moved", "bounds"]
# ``roofline_share``, ``bound`` and ``unrated`` of an `OperatorEntry`.
Rating = tuple[float | None, Literal["compute", "memory"] | None, _Unrated | None]

_UNKNOWN: Rating = (None, None, None)


@dataclass(frozen=True, slots=True)
class Called:
    """All calls of an operator with the same inputs, None unless recorded, and the GPU's rows that they launched."""

    entry: OperatorEntry
    rows: Ints
    inputs: Inputs | None


def operators_of(metrics: RankMetrics, kernels: Sequence[KernelLine]) -> list[Called]:
    """Return the operators that launched kernels that compute, most time first."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind == WorkKind.COMPUTE) & (metrics.operator >= 0))
    if not len(chosen):
        return []
    operator = metrics.operator[chosen]
    lasted = trace.gpu.end[chosen] - trace.gpu.start[chosen]
    name = trace.operators.name[operator].astype(np.int64)
    key = name * (len(trace.names) + 1) + trace.operator_inputs[operator] + 1
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    groups = np.split(order, first[1:])
    precisions = {line.name: line.precision for line in kernels}
    peaks = peaks_entry(trace.gpus)
    times = [int(lasted[mine].sum()) for mine in groups]
    parameters, recalled = gradient_elements(metrics), Recalled.of(trace)
    found = []
    for place in sorted(range(len(keys)), key=lambda each: (-times[each], each)):
        mine = groups[place]
        names, which = np.unique(trace.gpu.name[chosen[mine]], return_inverse=True)
        longest = trace.names[int(names[np.bincount(which, weights=lasted[mine]).argmax()])]
        caller = int(operator[mine[0]])
        count = distinct(operator[mine])
        precision, recorded = precisions[longest], _recorded(trace, caller)
        elements = parameters if fills(metrics, chosen[mine], count, parameters) else UNKNOWN
        inputs = read_inputs(recorded, BYTES_OF.get(precision, UNKNOWN), elements) if recorded else None
        operator_name = trace.names[int(trace.operators.name[caller])]
        once = None if inputs is None else recalled.cost(operator_name, inputs)
        share, bound, unrated = _UNKNOWN
        if once is not None and peaks is not None:
            less = any(_LESS_ARITHMETIC.search(trace.names[name]) is not None for name in names.tolist())
            share, bound, unrated = roofline(once, count, times[place] / 1e9, precision, peaks, less=less)
        entry = OperatorEntry(
            name=one_line(operator_name),
            shapes=one_line(shapes_text(recorded))[:MOST_SHAPES],
            count=count,
            kernel_ns=times[place],
            precision=precision,
            roofline_share=share,
            bound=bound,
            unrated=unrated,
            **_costs(once, count, times[place]),
        )
        found.append(Called(entry, chosen[mine], inputs))
    return found


def least_seconds(entry: OperatorEntry, peaks: PeaksEntry) -> tuple[float, float] | None:
    """Return the seconds that arithmetic and memory need at least for all calls; None where that or a peak is unknown.

    An operator of fewer operations than bytes needs no peak: memory bounds it in any precision.
    """
    if entry.flops is None or entry.most_flops is not None or not entry.bytes or not entry.kernel_ns:
        return None
    peak = peaks.tflops.get(entry.precision)
    if peak is None and entry.flops > entry.bytes:
        return None
    return 0.0 if peak is None else entry.flops / (peak * 1e12), entry.bytes / (peaks.memory_gb_per_s * 1e9)


def roofline(
    once: Cost, calls: int, seconds: float, precision: str, peaks: PeaksEntry, *, less: bool = False
) -> Rating:
    """Return the rating of calls of one cost in so many seconds.

    There is no share where the cost is not the GPU's work: a cache may have served the tensors, the algorithm computes
    less than the formula (``less``), memory cannot move so much, as with inputs that `expand` repeats, or it is bounds.
    """
    peak = peaks.tflops.get(precision)
    if peak is None or not once.bytes or not seconds:
        return _UNKNOWN
    if once.most_flops is not None:
        return None, None, "bounds"
    by_compute = once.flops * calls / (peak * 1e12)
    by_memory = once.bytes * calls / (peaks.memory_gb_per_s * 1e9)
    share = max(by_compute, by_memory) / seconds
    if by_compute >= by_memory:
        return (None, "compute", "algorithm") if less else (round(share, 4), "compute", None)
    if once.held <= CACHED * peaks.cache_mb * 1e6:
        return None, "memory", "cache"
    return (None, "memory", "not_moved") if share > 1 else (round(share, 4), "memory", None)


def _recorded(trace: Trace, operator: int) -> str:
    """Return the inputs of an operator's row; empty where none are recorded."""
    place = int(trace.operator_inputs[operator])
    return trace.names[place] if place >= 0 else ""


def _costs(once: Cost | None, count: int, kernel_ns: int) -> dict[str, Any]:
    flops, moved = (None, None) if once is None else (once.flops * count, once.bytes * count)
    return {
        "flops": flops,
        "bytes": moved,
        "held_bytes": 0 if once is None else once.held,
        "most_flops": None if once is None or once.most_flops is None else once.most_flops * count,
        "tflops": None if flops is None or not kernel_ns else round(flops / kernel_ns / 1e3, 4),
        "gb_per_s": None if moved is None or not kernel_ns else round(moved / kernel_ns, 3),
    }
