"""What the rules over one rank's kernel trace should say: each fact, and whether the rule's condition holds."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from tests.claims.kernel_files import COPY, HOST, KERNEL, SET, Event
from tests.claims.kernel_memory import LEAST_FREE, LEAST_GROWTH, LEAST_HELD, PASS, allocations, known
from tests.claims.kernel_operators import LEAST, NAMES, REACHED_OF_ALL, fact, found_of
from tests.claims.kernel_trace import STARTS_NS, Gpu, KernelTrace
from tests.claims.raw import Flags

LONG_NS = 500_000_000
SIGMAS, MAD_TO_SIGMA, OVER = 5.0, 1.4826, 0.1
# So much of a GPU's memory may be reserved.
FULL = 0.9

DATA_PARALLEL, DISTRIBUTED = "DataParallel.forward", "DistributedDataParallel.forward"
# Begin the names of collectives on the host: the library's.
LIBRARIES = ("gloo:", "mpi:", "nccl:", "ucc:")

# Parts of the names of the products that `random_kernels` writes: of FP64, FP32, and of BF16 on tensor cores.
FP64, FP32, BF16 = "dgemm", "sgemm", "bf16"

AMPERE, VOLTA, KEPLER = (8, 0), (7, 0), (3, 5)

Truth: TypeAlias = float | str
Recompute: TypeAlias = Callable[[KernelTrace], Truth]


def gap_limit(trace: KernelTrace) -> float:
    """Return from how many nanoseconds on a gap is long."""
    return min(float(LONG_NS), 0.1 * float(np.median(trace.gpu_lengths)))


def long_gaps(trace: KernelTrace) -> list[tuple[int, int]]:
    """Return the long stretches without work of any GPU, and without its launch."""
    limit = gap_limit(trace)
    return [(start, end) for start, end in trace.gaps if end - start >= LONG_NS or end - start > limit]


def loader_idle(trace: KernelTrace) -> float:
    """Return how long a GPU is idle for data, nanoseconds."""
    return trace.mean(lambda gpu: gpu.waits_for_data)


def host_idle(trace: KernelTrace) -> float:
    """Return how long a GPU is idle for the host, nanoseconds."""
    return trace.mean(lambda gpu: gpu.waits_for_host)


def busy(trace: KernelTrace) -> float:
    """Return how long a GPU is busy, nanoseconds."""
    return trace.mean(lambda gpu: gpu.busy)


def _host_share(trace: KernelTrace) -> float:
    idle = trace.window - loader_idle(trace) - busy(trace)
    return host_idle(trace) / idle if idle else 0.0


def late_gaps(trace: KernelTrace) -> list[tuple[int, int]]:
    """Return short gaps before a launch, but those that begin while the host waits for the GPU or for data.

    The time that the work takes to start behind its launch is a part of its gap.
    """
    idle = [end for _, end in trace.stretches(~trace.busy)]
    late = [
        (start, min(until + STARTS_NS, idle[bisect_left(idle, until)])) for start, until in trace.gaps if until > start
    ]
    parts, limit = trace.during(late) & ~trace.loading, gap_limit(trace)
    after = trace.after_waits
    return [
        (start, end)
        for start, end in trace.stretches(parts)
        if end - start <= limit and not after[np.searchsorted(trace.edges, start)]
    ]


def _late_share(trace: KernelTrace) -> float:
    return sum(end - start for start, end in late_gaps(trace)) / trace.window


def _launches_late(trace: KernelTrace) -> bool:
    idle = trace.window - loader_idle(trace) - busy(trace)
    return _late_share(trace) >= max(0.1, 0.5 * idle / trace.window)


def is_launch_bound(trace: KernelTrace) -> bool:
    """Tell whether no queue forms in a busy time that is low: kernels start right behind their launch."""
    return _host_share(trace) >= 0.5 and _beside_loader(trace, 0.7) and _launch_delay(trace) < 10.0


def _launch_delay(trace: KernelTrace) -> float:
    return float(np.median([max(event.start - call.end, 0) for event, call in trace.started])) / 1e3


def _queued(trace: KernelTrace) -> float:
    """Return how many launches wait on average: a call waits from its start until the work that it started begins."""
    pairs = [(event, trace.launch_of(event)) for event in trace.work]
    lasted = [
        max(min(event.start, trace.end) - max(call.start, trace.start), 0) for event, call in pairs if call is not None
    ]
    return sum(lasted) / trace.window


def _short_share(trace: KernelTrace) -> float:
    return float(np.mean([event.lasts < call.lasts for event, call in trace.started]))


def _waiting(trace: KernelTrace) -> float:
    return trace.share(trace.of(trace.waits))


def idle_after(trace: KernelTrace) -> float:
    """Return how long a GPU is idle for the host while that waits, or right after, nanoseconds."""
    return trace.mean(lambda gpu: trace.after_waits & gpu.waits_for_host)


def _overlap(trace: KernelTrace) -> float:
    sending = trace.mean(lambda gpu: gpu.sending)
    return trace.mean(lambda gpu: gpu.sending & gpu.computing) / sending if sending else 1.0


def pageable(trace: KernelTrace) -> list[Event]:
    """Return the asynchronous copies from or to pageable memory."""
    copies = [each for each in trace.work if each.category == COPY and "Pageable" in each.name]
    calls = [(each, trace.launch_of(each)) for each in copies]
    return [each for each, call in calls if call is not None and call.name.endswith("Async")]


def total(events: Iterable[Event]) -> int:
    """Return how long events take together, nanoseconds."""
    return sum(event.lasts for event in events)


def copies(trace: KernelTrace) -> list[Event]:
    """Return what copies or sets memory."""
    return [each for each in trace.work if each.category in {COPY, SET}]


def pageable_of(trace: KernelTrace) -> int:
    """Return how long copies from or to pageable memory take, whoever waits for them, nanoseconds."""
    return total(each for each in copies(trace) if "Pageable" in each.name)


def computing(trace: KernelTrace, chosen: Callable[[Event], bool] = lambda _: True) -> list[Event]:
    """Return the kernels that compute, those that are chosen."""
    return [event for event in trace.kernels if event.computes and chosen(event)]


def _of_computing(trace: KernelTrace, chosen: Callable[[Event], bool]) -> float:
    every = total(computing(trace))
    return total(computing(trace, chosen)) / every if every else math.nan


def in_fp32(event: Event) -> bool:
    """Tell whether a kernel is one of FP32, which may use tensor cores and does not."""
    return FP32 in event.name


def in_fp64(event: Event) -> bool:
    """Tell whether a kernel is one of FP64, which does not use tensor cores either."""
    return FP64 in event.name


def is_wide(event: Event) -> bool:
    """Tell whether a kernel is one of FP32 or FP64."""
    return in_fp32(event) or in_fp64(event)


def too_wide(trace: KernelTrace) -> Callable[[Event], bool]:
    """Return which kernels are in a wider type than they need: most in FP32, else some in FP64, else in either."""
    kinds: tuple[tuple[Callable[[Event], bool], float], ...] = ((in_fp32, 0.5), (in_fp64, 0.1), (is_wide, 0.1))
    return next((kind for kind, most in kinds if _of_computing(trace, kind) > most), is_wide)


def is_underfilled(event: Event) -> bool:
    """Tell whether a kernel has less than a block a multiprocessor."""
    return event.blocks < 1.0


def step_limit(trace: KernelTrace) -> float:
    """Return above how many nanoseconds a step is slow."""
    median = float(np.median(trace.gpu_lengths))
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(trace.gpu_lengths - median)))
    return max(median + SIGMAS * sigma, (1.0 + OVER) * median)


def calls_named(trace: KernelTrace, *beginnings: str) -> Flags:
    """Return when an event of the host runs whose name begins so."""
    return trace.of([event for event in trace.host if event.name.startswith(beginnings)])


def _kernel_times(trace: KernelTrace) -> dict[int, int]:
    """Return how long each GPU with work runs kernels, nanoseconds."""
    return {
        gpu.number: trace.length(trace.of([event for event in gpu.work if event.category == KERNEL]))
        for gpu in trace.gpus
    }


def libraries(trace: KernelTrace) -> set[str]:
    """Return which libraries a rank's collectives are of, as its process group and its calls say it."""
    names = {event.name for event in trace.recording.events if event.category == HOST}
    called = {begin[:-1] for begin in LIBRARIES for name in names if name.startswith(begin)}
    return called | {trace.recording.backend} - {""}


def is_data_parallel(trace: KernelTrace) -> bool:
    """Tell whether one process drives several GPUs."""
    return bool(calls_named(trace, DATA_PARALLEL).any()) and len(trace.gpus) > 1


def without_nccl(trace: KernelTrace) -> bool:
    """Tell whether gradients are sent by another library than a GPU's."""
    known = libraries(trace)
    is_distributed = bool(calls_named(trace, DISTRIBUTED).any()) and trace.capability >= KEPLER
    on_gpus = any(event.sends for event in trace.recorded) or any("ccl" in each for each in known)
    return is_distributed and bool(known) and not on_gpus


def _reserved(trace: KernelTrace) -> dict[int, float]:
    cards = trace.recording.cards
    return {gpu: size / cards[gpu].memory for gpu, size in trace.recording.reserved.items()}


def kernels_per_step(trace: KernelTrace) -> float:
    """Return how many kernels a step has on a GPU."""
    return len(trace.kernels) / len(trace.steps) / len(trace.counted)


# What a fact should say about the trace of a rank.
FACTS: dict[str, Recompute] = {
    "busy_share": lambda trace: busy(trace) / trace.window,
    "gpus": lambda trace: float(len(trace.counted)),
    "least_busy_share": lambda trace: min(trace.share(gpu.busy) for gpu in trace.counted),
    "longest_gap": lambda trace: max(end - start for start, end in long_gaps(trace)) / 1e6,
    "gaps": lambda trace: float(len(long_gaps(trace))),
    "loader_share": lambda trace: trace.share(trace.loading & ~trace.busy),
    "launch_delay": _launch_delay,
    "short_gaps_share": _late_share,
    "gaps_before_launches": lambda trace: float(len(late_gaps(trace))),
    "queued_launches": _queued,
    "host_share": _host_share,
    "waits_for_data_share": lambda trace: loader_idle(trace) / trace.window,
    "kernels_per_step": kernels_per_step,
    "short_share": _short_share,
    "waiting_share": _waiting,
    "idle_share": lambda trace: idle_after(trace) / trace.window,
    "after_wait": lambda _: 1.0,
    "exposed_share": lambda trace: trace.mean_share(lambda gpu: gpu.sends_alone),
    "overlap_share": _overlap,
    "copy_share": lambda trace: trace.mean_share(lambda gpu: gpu.copies_alone),
    "pageable_copy_share": lambda trace: pageable_of(trace) / total(copies(trace)),
    "pageable_share": lambda trace: total(pageable(trace)) / len(trace.counted) / trace.window,
    "tensor_core_share": lambda trace: _on_tensor_cores(trace) / _eligible(trace),
    "fp32_share": lambda trace: _of_computing(trace, in_fp32),
    "fp64_share": lambda trace: _of_computing(trace, in_fp64),
    "full_precision_share": lambda trace: _of_computing(trace, is_wide),
    "underfilled_share": lambda trace: _of_computing(trace, is_underfilled),
    "slowest_step": lambda trace: float(trace.gpu_lengths.max()) / 1e6,
    "median_step": lambda trace: float(np.median(trace.gpu_lengths)) / 1e6,
    "slow_steps": lambda trace: float((trace.gpu_lengths > step_limit(trace)).sum()),
    "steps": lambda trace: float(len(trace.steps)),
    "reserved_share": lambda trace: max(_reserved(trace).values()),
    "most_busy_share": lambda trace: max(_kernel_times(trace).values()) / trace.window,
    "library": lambda trace: ", ".join(sorted(libraries(trace))),
    "collective_share": lambda trace: trace.share(calls_named(trace, *LIBRARIES)),
    "growth_per_step": lambda trace: float(known(trace).growth),
    "steps_left": lambda trace: float((known(trace).limit - known(trace).at_steps[-1]) // known(trace).growth),
    "place": lambda _: PASS,
    "unused_share": lambda trace: known(trace).free_share,
    "held_share": lambda trace: known(trace).buffer / known(trace).peak[0],
    "held": lambda trace: float(known(trace).buffer),
    "held_kind": lambda _: "workspace",
}

# What a fact should say where another rule has one of the same name.
OF_RULE: dict[tuple[str, str], Recompute] = {
    ("GpuMemoryGrows", "steps"): lambda trace: float(len(known(trace).at_steps) - 1),
    ("GpuMemoryFragmented", "reserved_share"): lambda trace: known(trace).peak[1] / known(trace).limit,
    **{("SlowOperators", name): fact(name) for name in NAMES},
    ("WrongParallel", "gpus"): lambda trace: float(len(trace.gpus)),
    ("WrongParallel", "least_busy_share"): lambda trace: min(_kernel_times(trace).values()) / trace.window,
    ("WrongParallel", "idle_share"): lambda trace: trace.share(calls_named(trace, *LIBRARIES) & ~trace.busy),
}

# Whether a fact is of the GPU that it names.
DEVICES: dict[tuple[str, str], Callable[[KernelTrace, int], bool]] = {
    ("GpuMemoryGrows", "growth_per_step"): lambda _, gpu: gpu == 0,
    ("GpuMemoryFragmented", "unused_share"): lambda _, gpu: gpu == 0,
    ("GpuMemoryHeld", "held_share"): lambda _, gpu: gpu == 0,
    ("GpuBusyLow", "least_busy_share"): lambda trace, gpu: gpu in _least_busy(trace),
    ("GpuMemoryFull", "reserved_share"): lambda trace, gpu: _reserved(trace).get(gpu) == max(_reserved(trace).values()),
}

# What a fact's threshold should be, as the rule's table says it.
THRESHOLDS: dict[str, Recompute] = {
    "busy_share": lambda trace: 0.5 if busy(trace) < 0.5 * trace.window else 0.7,
    "longest_gap": lambda trace: gap_limit(trace) / 1e6,
    "slowest_step": lambda trace: step_limit(trace) / 1e6,
    "loader_share": lambda _: 0.05,
    "launch_delay": lambda _: 10.0,
    "short_gaps_share": lambda _: 0.1,
    "host_share": lambda _: 0.5,
    "kernels_per_step": lambda _: 300.0,
    "short_share": lambda _: 0.5,
    "waiting_share": lambda _: 0.1,
    "exposed_share": lambda _: 0.1,
    "overlap_share": lambda _: 0.5,
    "copy_share": lambda _: 0.1,
    "pageable_copy_share": lambda _: 0.5,
    "pageable_share": lambda _: 0.01,
    "tensor_core_share": lambda _: 0.5,
    "fp32_share": lambda _: 0.5,
    "fp64_share": lambda _: 0.1,
    "full_precision_share": lambda _: 0.1,
    "saved_share": lambda _: LEAST,
    **dict.fromkeys(("math_share", "layout_share", "starved_share", "experts_share"), lambda _: LEAST),
    "reached_share": lambda _: REACHED_OF_ALL,
    "underfilled_share": lambda _: 0.2,
    "reserved_share": lambda _: FULL,
    "growth_per_step": lambda _: float(LEAST_GROWTH),
    "unused_share": lambda _: LEAST_FREE,
    "held_share": lambda _: LEAST_HELD,
}


def _least_busy(trace: KernelTrace) -> set[int]:
    times: dict[int, int] = {gpu.number: trace.length(gpu.busy) for gpu in trace.counted}
    return {number for number, time in times.items() if time == min(times.values())}


def _exposes(trace: KernelTrace) -> bool:
    sending = trace.mean_share(lambda gpu: gpu.sending)
    return trace.mean_share(lambda gpu: gpu.sends_alone) >= 0.1 or (sending >= 0.1 and _overlap(trace) < 0.5)


def _on_tensor_cores(trace: KernelTrace) -> int:
    return total(computing(trace, lambda event: BF16 in event.name))


def _eligible(trace: KernelTrace) -> int:
    return _on_tensor_cores(trace) + total(computing(trace, is_wide))


def _tensor_cores_idle(trace: KernelTrace) -> bool:
    eligible, every = _eligible(trace), total(computing(trace))
    few = _on_tensor_cores(trace) < 0.5 * eligible
    return trace.capability >= VOLTA and every > 0 and eligible >= 0.1 * every and few


def _beside_loader(trace: KernelTrace, share: float) -> bool:
    return busy(trace) < share * (trace.window - loader_idle(trace))


# When a rule has a finding on a rank, as its table says it.
CONDITIONS: dict[str, Callable[[KernelTrace], bool]] = {
    "GpuBusyLow": lambda trace: busy(trace) < 0.7 * trace.window,
    "GpuGap": lambda trace: bool(long_gaps(trace)),
    "LoaderBound": lambda trace: trace.share(trace.loading & ~trace.busy) > 0.05,
    "LaunchBound": lambda trace: is_launch_bound(trace) or _launches_late(trace),
    "SyncStall": lambda trace: _waiting(trace) >= 0.1 and idle_after(trace) >= 0.05 * trace.window,
    "ExposedCommunication": _exposes,
    "MemcpyBound": lambda trace: trace.mean_share(lambda gpu: gpu.copies_alone) >= 0.1,
    "PageableCopy": lambda trace: total(pageable(trace)) / len(trace.counted) >= 0.01 * trace.window,
    "WrongParallel": lambda trace: is_data_parallel(trace) or without_nccl(trace),
    "TensorCoresIdle": _tensor_cores_idle,
    "LowPrecisionUnused": lambda trace: (
        trace.capability >= AMPERE and bool(computing(trace)) and _of_computing(trace, is_wide) > 0.1
    ),
    "SmUnderfilled": lambda trace: _of_computing(trace, is_underfilled) >= 0.2,
    "SlowOperators": lambda trace: found_of(trace) is not None,
    "TraceStepOutlier": lambda trace: len(trace.steps) >= 10 and bool((trace.gpu_lengths > step_limit(trace)).any()),
    "GpuMemoryFull": lambda trace: any(share > FULL for share in _reserved(trace).values()),
    "GpuMemoryRanOut": lambda _: False,
    "GpuMemoryFragmented": lambda trace: (held := allocations(trace)) is not None and held.in_parts,
    "GpuMemoryGrows": lambda trace: (held := allocations(trace)) is not None and held.grows,
    "GpuMemoryHeld": lambda trace: (held := allocations(trace)) is not None and held.is_held,
    "SmallKernelStorm": lambda trace: (
        kernels_per_step(trace) >= 300.0 and _short_share(trace) >= 0.5 and _beside_loader(trace, 0.9)
    ),
}

OF_MEMORY = frozenset(rule for rule in CONDITIONS if rule.startswith("GpuMemory"))
# Rules that are not sure of what only the first and the last step have.
NEEDS_MORE_STEPS = frozenset(CONDITIONS) - {"TraceStepOutlier"} - OF_MEMORY


def gpu_gaps(trace: KernelTrace, gpu: Gpu) -> Flags:
    """Return when a GPU is idle in a long gap of all of them."""
    return trace.during(long_gaps(trace)) & ~gpu.busy
