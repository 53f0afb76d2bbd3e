"""How much of a step each finding explains by itself: no nanosecond is counted at two findings.

What each finding could win at most overlaps with what others could: a GPU that waits for data is idle, too, and one
that runs small kernels. So findings take their stretches of the GPU's time in turn, causes before symptoms, and each
gets what no finding before it has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from trainguard.kernels.columns import Ints
from trainguard.kernels.findings.computation import in_fp32, outside_tensor_cores, underfilled_rows
from trainguard.kernels.findings.finding import FAMILY, Judged, KernelFinding
from trainguard.kernels.findings.gpu_time import long_gaps
from trainguard.kernels.findings.parallelism import parallel_spans
from trainguard.kernels.findings.steps_and_trace import slow_steps
from trainguard.kernels.findings.transfers import pageable_rows
from trainguard.kernels.gpu_times import GpuTime
from trainguard.kernels.idle_causes import IdleCauses
from trainguard.kernels.intervals import Spans, clipped, difference, intersection, merged, union

HALF = 0.5
"""Kernels that compute do not go away: on tensor cores, in a lower precision or in larger ones they still run."""

IDLE_CAUSES = frozenset(
    FAMILY + name for name in ("LoaderBound", "WrongParallel", "SyncStall", "LaunchBound", "SmallKernelStorm")
)
"""Rules that say why a GPU is idle; others say that it is."""

_OUTLIER = FAMILY + "TraceStepOutlier"


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU of a rank that is judged."""

    judged: Judged
    time: GpuTime
    causes: IdleCauses

    @property
    def communication_alone(self) -> Spans:
        """When it communicates and does not compute."""
        return difference(self.time.communication, self.time.compute)

    @property
    def copies_alone(self) -> Spans:
        """When it only copies or sets memory."""
        return difference(self.time.memory, union(self.time.compute, self.time.communication))

    def runs(self, rows: Ints) -> Spans:
        """Return when rows run on it."""
        columns, window = self.judged.trace.gpu, self.judged.window
        mine = rows[columns.device[rows] == self.time.number]
        return clipped(merged(columns.rows.start[mine], columns.rows.end[mine]), window.start, window.end)


def explained(judged: Judged, findings: Sequence[KernelFinding]) -> list[KernelFinding]:
    """Return findings, whose gains are ceilings, with what each of them can win of what it explains by itself.

    A finding of low confidence takes only what no sure one explains.
    """
    unsure = {finding.id for finding in findings if finding.confidence == "low"}
    order = sorted((each.id for each in findings), key=lambda rule: (rule in unsure, _PLACES.get(rule, len(_PLACES))))
    totals = _totals(judged, order)
    return [
        replace(each, gain=min(each.gain, judged.gain(totals.get(each.id, 0.0)), key=lambda gain: gain.ns_per_step))
        for each in findings
    ]


def _totals(judged: Judged, order: Sequence[str]) -> dict[str, float]:
    """Return nanoseconds of the window by rule, which take them in order: the mean over the GPUs that count."""
    totals: dict[str, float] = {}
    counted = [gpu for gpu in judged.metrics.gpus if gpu.counted]
    for gpu, causes in zip(counted, judged.metrics.causes, strict=True):
        one = _Gpu(judged, gpu, causes)
        taken = Spans(gpu.busy.start[:0], gpu.busy.end[:0])
        for rule in order:
            if rule in _STRETCHES:
                own = difference(_STRETCHES[rule](one), taken)
                taken = union(taken, own)
                totals[rule] = totals.get(rule, 0.0) + own.total * _WEIGHTS.get(rule, 1.0) / len(counted)
        if _OUTLIER in order:
            totals[_OUTLIER] = totals.get(_OUTLIER, 0.0) + _of_slow_steps(judged, taken) / len(counted)
    return totals


def _of_slow_steps(judged: Judged, taken: Spans) -> float:
    """Return by how much slow steps exceed the median beyond what other findings have of them."""
    slow, median = slow_steps(judged)
    steps = judged.window.steps
    start, end = steps.start[slow], steps.end[slow]
    return float(np.maximum(end - start - median - taken.within(start, end), 0.0).sum())


_STRETCHES: Mapping[str, Callable[[_Gpu], Spans]] = {
    FAMILY + name: stretches
    for name, stretches in {
        "LoaderBound": lambda gpu: gpu.causes.loader,
        "WrongParallel": lambda gpu: intersection(gpu.causes.idle, parallel_spans(gpu.judged)),
        "SyncStall": lambda gpu: intersection(gpu.causes.host, gpu.judged.metrics.sync_reach),
        "LaunchBound": lambda gpu: gpu.causes.host,
        "SmallKernelStorm": lambda gpu: gpu.causes.host,
        "ExposedCommunication": lambda gpu: gpu.communication_alone,
        "PageableCopy": lambda gpu: intersection(gpu.copies_alone, gpu.runs(pageable_rows(gpu.judged))),
        "MemcpyBound": lambda gpu: gpu.copies_alone,
        "LowPrecisionUnused": lambda gpu: gpu.runs(in_fp32(gpu.judged)),
        "TensorCoresIdle": lambda gpu: gpu.runs(outside_tensor_cores(gpu.judged)),
        "SmUnderfilled": lambda gpu: gpu.runs(underfilled_rows(gpu.judged)),
        "GpuGap": lambda gpu: intersection(gpu.causes.idle, long_gaps(gpu.judged)),
        "GpuBusyLow": lambda gpu: gpu.causes.idle,
    }.items()
}
"""When the GPU's time is what a rule fires for, by rule: causes before symptoms."""

_PLACES = {rule: place for place, rule in enumerate(_STRETCHES)}
_WEIGHTS = {FAMILY + name: HALF for name in ("TensorCoresIdle", "LowPrecisionUnused", "SmUnderfilled")}
