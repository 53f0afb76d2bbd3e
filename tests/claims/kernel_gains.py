"""Recomputes what each finding on a rank can win: no moment of a GPU counts at two, causes come before symptoms."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tests.claims import kernel_facts
from tests.claims.kernel_facts import (
    CONDITIONS,
    NEEDS_MORE_STEPS,
    computing,
    gpu_gaps,
    is_underfilled,
    is_wide,
    too_wide,
    total,
)
from tests.claims.kernel_files import KERNEL, Event, Recording
from tests.claims.kernel_memory import SURE_STEPS, known
from tests.claims.kernel_operators import found_of
from tests.claims.kernel_trace import Gpu, KernelTrace
from tests.claims.raw import Flags

FEW_STEPS = 3


def _wrong_parallel(trace: KernelTrace, gpu: Gpu) -> Flags:
    if kernel_facts.calls_named(trace, kernel_facts.DATA_PARALLEL).any():
        return ~gpu.busy
    return ~gpu.busy & kernel_facts.calls_named(trace, *kernel_facts.LIBRARIES)


def slow_kernels(trace: KernelTrace) -> list[Event]:
    """Return the kernels of operators that the rule shows, of the first three sorts."""
    found = found_of(trace)
    return [] if found is None else found.kernels


def _of_kernels(chosen: Callable[..., bool]) -> Callable[[KernelTrace, Gpu], Flags]:
    return lambda trace, gpu: trace.of([each for each in gpu.work if each.computes and chosen(each)])


def _starting(trace: KernelTrace) -> Flags:
    return trace.during(kernel_facts.late_gaps(trace))


# What a rule explains of a GPU's time, causes before symptoms; other rules explain nothing of it.
ORDER: dict[str, Callable[[KernelTrace, Gpu], Flags]] = {
    "LoaderBound": lambda _, gpu: gpu.waits_for_data,
    "WrongParallel": _wrong_parallel,
    "SyncStall": lambda trace, gpu: gpu.waits_for_host & trace.after_waits,
    "LaunchBound": lambda trace, gpu: gpu.waits_for_host | (_starting(trace) & ~gpu.busy & ~gpu.waits_for_data),
    "SmallKernelStorm": lambda _, gpu: gpu.waits_for_host,
    "ExposedCommunication": lambda _, gpu: gpu.sends_alone,
    "PageableCopy": lambda trace, gpu: (
        gpu.copies_alone & trace.of([each for each in kernel_facts.pageable(trace) if each.device == gpu.number])
    ),
    "MemcpyBound": lambda _, gpu: gpu.copies_alone,
    "GpuGap": gpu_gaps,
    "GpuBusyLow": lambda _, gpu: ~gpu.busy,
    "LowPrecisionUnused": lambda trace, gpu: _of_kernels(too_wide(trace))(trace, gpu),
    "TensorCoresIdle": _of_kernels(is_wide),
    "SlowOperators": lambda trace, gpu: trace.of([each for each in slow_kernels(trace) if each.device == gpu.number]),
    "SmUnderfilled": _of_kernels(is_underfilled),
}

# Rules over kernels that compute, which still run in another form: half of their time can be won.
HALVES = frozenset({"LowPrecisionUnused", "TensorCoresIdle", "SmUnderfilled"})


def _beside_loader(trace: KernelTrace) -> float:
    return trace.window - kernel_facts.loader_idle(trace) - kernel_facts.busy(trace)


def _half(trace: KernelTrace, chosen: Callable[..., bool]) -> float:
    of_kernels = total(computing(trace, chosen)) / len(trace.counted)
    return 0.5 * min(of_kernels, trace.mean(lambda gpu: gpu.computing))


def _parallel_upper_bound(trace: KernelTrace) -> float:
    if not kernel_facts.is_data_parallel(trace):
        return float(trace.length(kernel_facts.calls_named(trace, *kernel_facts.LIBRARIES) & ~trace.busy))
    kernels = [trace.of([each for each in gpu.work if each.category == KERNEL]) for gpu in trace.gpus]
    return max(trace.window - float(np.mean([trace.length(each) for each in kernels])), 0.0)


def _slow_steps(trace: KernelTrace) -> list[tuple[int, int]]:
    limit = kernel_facts.step_limit(trace)
    return [(start, end) for start, end in trace.gpu_steps if end - start > limit]


def _beyond_median(trace: KernelTrace, taken: Flags | None = None) -> float:
    """Return by how much slow steps are longer than the median, beyond what others have taken of them."""
    median, beyond = float(np.median(trace.gpu_lengths)), 0.0
    for start, end in _slow_steps(trace):
        others = 0 if taken is None else trace.length(taken & trace.during([(start, end)]))
        beyond += max(end - start - median - others, 0.0)
    return beyond


def _launches(trace: KernelTrace) -> float:
    if kernel_facts.is_launch_bound(trace):
        return kernel_facts.host_idle(trace)
    return float(sum(end - start for start, end in kernel_facts.late_gaps(trace)))


# What a finding could win where it were the only one, nanoseconds of the window.
UPPER_BOUNDS: dict[str, Callable[[KernelTrace], float]] = {
    "LoaderBound": lambda trace: float(trace.length(trace.loading & ~trace.busy)),
    "WrongParallel": _parallel_upper_bound,
    "SyncStall": kernel_facts.idle_after,
    "LaunchBound": _launches,
    "SmallKernelStorm": _beside_loader,
    "ExposedCommunication": lambda trace: trace.mean(lambda gpu: gpu.sends_alone),
    "PageableCopy": lambda trace: total(kernel_facts.pageable(trace)) / len(trace.counted),
    "MemcpyBound": lambda trace: trace.mean(lambda gpu: gpu.copies_alone),
    "GpuGap": lambda trace: float(sum(end - start for start, end in kernel_facts.long_gaps(trace))),
    "GpuBusyLow": lambda trace: trace.window - kernel_facts.busy(trace),
    "LowPrecisionUnused": lambda trace: _half(trace, too_wide(trace)),
    "TensorCoresIdle": lambda trace: _half(trace, is_wide),
    "SlowOperators": lambda trace: 0.0 if (found := found_of(trace)) is None else found.saved,
    "SmUnderfilled": lambda trace: _half(trace, is_underfilled),
    "TraceStepOutlier": _beyond_median,
    **dict.fromkeys(kernel_facts.OF_MEMORY, lambda _: 0.0),
}


@dataclass(frozen=True)
class Rank:
    """A rank: its trace, and the same without its first and last step, where there are steps enough."""

    recording: Recording

    @cached_property
    def trace(self) -> KernelTrace:
        """The whole of it."""
        return KernelTrace(self.recording)

    @cached_property
    def name(self) -> str:
        """How findings call it."""
        return self.recording.file if self.recording.rank is None else f"rank {self.recording.rank}"

    @cached_property
    def firing(self) -> dict[str, bool]:
        """The rules that fire on it, and whether they are sure."""
        found = [rule for rule, condition in CONDITIONS.items() if condition(self.trace)]
        if len(self.trace.steps) < FEW_STEPS:
            return dict.fromkeys(found, False)
        within = KernelTrace(self.recording, inner=True)
        sure = {rule: rule not in NEEDS_MORE_STEPS or CONDITIONS[rule](within) for rule in found}
        if "GpuMemoryGrows" in sure:
            sure["GpuMemoryGrows"] = len(known(self.trace).at_steps) > SURE_STEPS
        return sure

    @cached_property
    def gains(self) -> dict[str, float]:
        """What each rule that fires can win of what no other one explains, nanoseconds of the window."""
        trace = self.trace
        order = sorted((rule for rule in ORDER if rule in self.firing), key=lambda rule: not self.firing[rule])
        totals = dict.fromkeys(self.firing, 0.0)
        for gpu in trace.counted:
            taken = np.zeros(trace.lengths.size, dtype=np.bool_)
            for rule in order:
                own = ORDER[rule](trace, gpu) & ~taken
                taken |= own
                share = 0.5 if rule in HALVES else 1.0
                totals[rule] += share * trace.length(own) / len(trace.counted)
            if "TraceStepOutlier" in totals:
                totals["TraceStepOutlier"] += _beyond_median(trace, taken) / len(trace.counted)
        return {rule: min(won, UPPER_BOUNDS[rule](trace)) for rule, won in totals.items()}
