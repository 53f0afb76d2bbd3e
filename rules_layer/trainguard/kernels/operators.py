"""The operators of a rank: their kernels, what these achieve, and the peaks of the GPU by the makers' data sheets."""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace

from trainguard.core.text import one_line
from trainguard.kernels.columns import Gpu, Kind
from trainguard.kernels.costs import UNKNOWN, Cost, read_inputs, shapes_text
from trainguard.kernels.entries import OperatorEntry, PeaksEntry
from trainguard.kernels.formulas.registry import cost
from trainguard.kernels.kernel_names import Precision
from trainguard.kernels.metrics import RankMetrics
from trainguard.kernels.work import KernelLine

AS_OF = "2026-11-23"

_GIB = 1 << 30


def _row(memory: float, cache: float, **tflops: float) -> PeaksEntry:
    known = {Precision(name).value: value for name, value in tflops.items()}
    return PeaksEntry(gpu="", tflops=known, memory_gb_per_s=memory, cache_mb=cache, as_of=AS_OF)


_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "fp8": 1670.5, "int8": 1670.5}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9}
_ADA_L40S = {"fp64": 1.4, "fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0, "fp8": 733.0, "int8": 733.0}
_TABLE: tuple[tuple[str, int, PeaksEntry], ...] = (
    # A pattern of the name, the least memory in GiB, and the peaks. The first line that fits is taken.
    (r"\bB300\b", 0, _row(8000, 126, fp64=1.25, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500)),
    (r"\bGB200\b", 0, _row(8000, 126, fp64=40, fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, int8=5000)),
    (r"\bB200\b", 0, _row(8000, 126, fp64=37, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500, int8=4500)),
    (r"\bH200 NVL\b", 0, _row(4800, 50, **_HOPPER_NVL)),
    (r"\bH200\b", 0, _row(4800, 50, **_HOPPER)),
    (r"\bH100 NVL\b", 0, _row(3900, 50, **_HOPPER_NVL)),
    (r"\bH100 PCIe\b", 0, _row(2000, 50, fp64=51, fp32=51, tf32=378, bf16=756, fp16=756, fp8=1513, int8=1513)),
    (r"\bH100\b", 0, _row(3350, 50, **_HOPPER)),
    (r"\bA100.*PCIe", 60, _row(1935, 40, **_AMPERE)),
    (r"\bA100\b", 60, _row(2039, 40, **_AMPERE)),
    (r"\bA100\b", 0, _row(1555, 40, **_AMPERE)),
    (r"\bA10G\b", 0, _row(600, 6, fp64=0.5, fp32=35, tf32=35, bf16=70, fp16=70, int8=140)),
    (r"\bL40S\b", 0, _row(864, 96, **_ADA_L40S)),
    (r"\bL40\b", 0, _row(864, 96, fp64=1.4, fp32=90.5, tf32=90.5, bf16=181, fp16=181, fp8=362, int8=362)),
    (r"\bL4\b", 0, _row(300, 48, fp64=0.5, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242, int8=242)),
    (r"\bT4\b", 0, _row(320, 4, fp64=0.25, fp32=8.1, fp16=65, int8=130)),
    (r"\bV100.*PCIE", 0, _row(900, 6, fp64=7, fp32=14, fp16=112)),
    (r"\bV100\b", 0, _row(900, 6, fp64=7.8, fp32=15.7, fp16=125)),
    (r"\bP100.*PCIE", 0, _row(732, 4, fp64=4.7, fp32=9.3, fp16=18.7)),
    (r"\bP100\b", 0, _row(732, 4, fp64=5.3, fp32=10.6, fp16=21.2)),
    (r"\bMI325X\b", 0, _row(6000, 256, **_CDNA3)),
    (r"\bMI300X\b", 0, _row(5300, 256, **_CDNA3)),
    # A device of these is one of the two dies: half of the data sheet.
    (r"\bMI250X\b", 0, _row(1638, 8, fp64=47.9, fp32=47.9, bf16=191.5, fp16=191.5, int8=191.5)),
    (r"\bMI250\b", 0, _row(1638, 8, fp64=45.3, fp32=45.3, bf16=181, fp16=181, int8=181)),
)


def peaks_of(gpu: Gpu) -> PeaksEntry | None:
    for pattern, least_gib, found in _TABLE:
        if re.search(pattern, gpu.name, re.IGNORECASE) and gpu.memory >= least_gib * _GIB:
            return replace(found, gpu=one_line(gpu.name))
    return None


MOST_SHAPES = 2_000
_BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of an element by a kernel's precision: of lists of tensors a trace does not record the type."""


CACHED = 2
"""Tensors up to so many times the cache may come from it by half or more."""

_LESS_ARITHMETIC = re.compile(r"winograd|fft", re.IGNORECASE)

Rating = tuple[float | None, Literal["compute", "memory"] | None, Literal["cache", "algorithm", "not_moved"] | None]
"""``roofline_share``, ``bound`` and ``unrated`` of an `OperatorEntry`."""

_UNKNOWN: Rating = (None, None, None)


def peaks_entry(gpus: Sequence[Gpu]) -> PeaksEntry | None:
    """Return what the GPU of a trace can do; None where it is unknown, or where there are several sorts."""
    return peaks_of(gpus[0]) if len({gpu.name for gpu in gpus}) == 1 else None


def operators_of(metrics: RankMetrics, kernels: Sequence[KernelLine], most: int) -> tuple[list[OperatorEntry], int]:
    """Return the operators that launched kernels that compute, most time first, and how many more there are."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind == Kind.COMPUTE) & (metrics.operator >= 0))
    if not len(chosen):
        return [], 0
    operator = metrics.operator[chosen]
    lasted = trace.gpu.end[chosen] - trace.gpu.start[chosen]
    name = trace.operators.name[operator].astype(np.int64)
    key = name * (len(trace.names) + 1) + trace.operator_inputs[operator] + 1
    keys, first, group = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(group, weights=lasted).astype(np.int64)
    order = np.lexsort((keys, -time))[:most]
    precisions = {line.name: line.precision for line in kernels}
    peaks = peaks_entry(trace.gpus)
    found = []
    for place in order.tolist():
        mine = group == place
        names, which = np.unique(trace.gpu.name[chosen[mine]], return_inverse=True)
        longest = trace.names[int(names[np.bincount(which, weights=lasted[mine]).argmax()])]
        caller = int(operator[first[place]])
        found.append(
            _entry(
                trace.names[int(trace.operators.name[caller])],
                trace.names[inputs] if (inputs := int(trace.operator_inputs[caller])) >= 0 else "",
                count=len(np.unique(operator[mine])),
                kernel_ns=int(time[place]),
                precision=precisions[longest],
                less=any(_LESS_ARITHMETIC.search(trace.names[name]) is not None for name in names.tolist()),
                peaks=peaks,
            )
        )
    return found, len(keys) - len(order)


def roofline(
    once: Cost, calls: int, seconds: float, precision: str, peaks: PeaksEntry, *, less: bool = False
) -> Rating:
    """Return the rating of calls of one cost in so many seconds.

    There is no share where the cost is not the GPU's work: a cache may have served the tensors, the algorithm computes
    less than the formula (``less``), or memory cannot move so much, as with inputs that `expand` repeats.
    """
    peak = peaks.tflops.get(precision)
    if peak is None or not once.bytes or not seconds:
        return _UNKNOWN
    by_compute = once.flops * calls / (peak * 1e12)
    by_memory = once.bytes * calls / (peaks.memory_gb_per_s * 1e9)
    share = max(by_compute, by_memory) / seconds
    if by_compute >= by_memory:
        return (None, "compute", "algorithm") if less else (round(share, 4), "compute", None)
    if once.held <= CACHED * peaks.cache_mb * 1e6:
        return None, "memory", "cache"
    return (None, "memory", "not_moved") if share > 1 else (round(share, 4), "memory", None)


def _entry(
    name: str, recorded: str, *, count: int, kernel_ns: int, precision: str, less: bool, peaks: PeaksEntry | None
) -> OperatorEntry:
    inputs = read_inputs(recorded, _BYTES_OF.get(precision, UNKNOWN)) if recorded else None
    once = cost(name, inputs) if inputs is not None else None
    flops, moved = (None, None) if once is None else (once.flops * count, once.bytes * count)
    share, bound, unrated = _UNKNOWN
    if once is not None and peaks is not None:
        share, bound, unrated = roofline(once, count, kernel_ns / 1e9, precision, peaks, less=less)
    return OperatorEntry(
        name=one_line(name),
        shapes=one_line(shapes_text(recorded))[:MOST_SHAPES],
        count=count,
        kernel_ns=kernel_ns,
        precision=precision,
        flops=flops,
        bytes=moved,
        tflops=None if flops is None or not kernel_ns else round(flops / kernel_ns / 1e3, 4),
        gb_per_s=None if moved is None or not kernel_ns else round(moved / kernel_ns, 3),
        roofline_share=share,
        bound=bound,
        unrated=unrated,
    )
