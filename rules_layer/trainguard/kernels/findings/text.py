"""The words of findings on kernel profiles: one table from what was found, and its facts, to sentences."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from trainguard.finding import Fact
from trainguard.kernels.words import counted, times

SHARE, MILLISECONDS, MICROSECONDS = "share", "ms", "us"

FAULTS = "faults"
"""The fact that says how many kinds of faults a trace has."""


class KernelKind(StrEnum):
    """What rules over kernel profiles find."""

    GPU_BUSY_LOW = "gpu_busy_low"
    GPU_GAP = "gpu_gap"
    LOADER_BOUND = "loader_bound"
    LAUNCH_BOUND = "launch_bound"
    SMALL_KERNEL_STORM = "small_kernel_storm"
    SYNC_STALL = "sync_stall"
    EXPOSED_COMMUNICATION = "exposed_communication"
    MEMCPY_BOUND = "memcpy_bound"
    PAGEABLE_COPY = "pageable_copy"
    DATA_PARALLEL = "data_parallel"
    WITHOUT_NCCL = "without_nccl"
    TENSOR_CORES_IDLE = "tensor_cores_idle"
    LOW_PRECISION_UNUSED = "low_precision_unused"
    SM_UNDERFILLED = "sm_underfilled"
    SLOW_STEPS = "slow_steps"
    GPU_MEMORY_FULL = "gpu_memory_full"
    QUEUE_FULL = "queue_full"
    TRACE_QUALITY = "trace_quality"
    LATE_RANK = "late_rank"
    SLOW_RANK = "slow_rank"


class Facts:
    """Facts by name, as a sentence needs them: numbers, or numbers as people read them."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.all = facts
        self._by_name = {fact.name: fact for fact in reversed(facts)}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Fact:
        return self._by_name[name]

    def number(self, name: str) -> float:
        """Return a fact's number."""
        return float(self._by_name[name].value)

    def count(self, name: str) -> int:
        """Return a fact's number of things."""
        return int(self._by_name[name].value)

    def text(self, name: str) -> str:
        """Return a fact's text."""
        return str(self._by_name[name].value)

    def percent(self, name: str) -> str:
        """Return a fact's share for people."""
        return f"{100 * self.number(name):.1f} %"


def portion(name: str, value: float, threshold: float | None = None, device: str | None = None) -> Fact:
    """Return a share, from 0 to 1, as a fact."""
    return Fact(name=name, value=round(value, 4), unit=SHARE, threshold=threshold, device=device)


def said(kind: KernelKind, *facts: Fact) -> dict[str, Any]:
    """Return what a finding says by its facts: those of its fields that have words."""
    summary, recommendation = words(kind, facts)
    return {"kind": kind, "facts": list(facts), "summary": summary, "recommendation": recommendation}


def words(kind: str, facts: Sequence[Fact]) -> tuple[str, str]:
    """Return what was found and what to do about it, in sentences."""
    known = Facts(facts)
    summary = _SUMMARIES[KernelKind(kind)](known)
    return summary, " ".join(_texts(known, "remedy")) or _ADVICE[KernelKind(kind)]


def _texts(facts: Facts, name: str) -> list[str]:
    return [str(fact.value) for fact in facts.all if fact.name == name]


def _busy(facts: Facts) -> str:
    who = "The GPU is" if facts.count("gpus") == 1 else f"The {facts.count('gpus'):,} GPUs are on average"
    each = ""
    if "least_busy_share" in facts:
        device = (facts["least_busy_share"].device or "").removeprefix("gpu")
        each = f", GPU {device} {facts.percent('least_busy_share')}"
    return f"{who} busy {facts.percent('busy_share')} of the time{each}."


def _gap(facts: Facts) -> str:
    longest = f"up to {facts.number('longest_gap'):,.1f} ms"
    return f"The GPU is idle at a stretch {times(facts.count('gaps'))}, {longest}."


def _launches(facts: Facts) -> str:
    beside = " beside the wait for data" if "waits_for_data_share" in facts else ""
    return (
        f"The GPU waits for launches: kernels start {facts.number('launch_delay'):.1f} us after their launch at the "
        f"median, {facts.number('queued_launches'):.1f} launches wait on average, and the host causes "
        f"{facts.percent('host_share')} of the idle time{beside}."
    )


def _storm(facts: Facts) -> str:
    each = "" if facts.count("gpus") == 1 else " on each GPU"
    kernels = f"{facts.number('kernels_per_step'):,.0f} kernels a step{each}"
    return f"{kernels}; {facts.percent('short_share')} of the launching calls take longer than their work."


def _sync(facts: Facts) -> str:
    return (
        f"The host waits {facts.percent('waiting_share')} of the time for the GPU, which is idle "
        f"{facts.percent('idle_share')} of the time in or within {facts.number('after_wait'):g} ms after these calls."
    )


def _exposed(facts: Facts) -> str:
    return (
        f"{facts.percent('exposed_share')} of the time the GPU communicates and does not compute; "
        f"{facts.percent('overlap_share')} of the communication overlaps with computation."
    )


def _data_parallel(facts: Facts) -> str:
    return (
        f"DataParallel runs on {facts.count('gpus')} GPUs: one process launches for all of them, and copies the model "
        f"to each of them in each step. Their kernels take from {facts.percent('least_busy_share')} to "
        f"{facts.percent('most_busy_share')} of the time."
    )


def _without_nccl(facts: Facts) -> str:
    return (
        f"DistributedDataParallel sends gradients by {facts.text('library')} and not by NCCL. Collectives run on the "
        f"host {facts.percent('collective_share')} of the time, and the GPU is idle meanwhile "
        f"{facts.percent('idle_share')} of the time."
    )


def _slow_steps(facts: Facts) -> str:
    steps = f"{facts.count('slow_steps')} of {facts.count('steps')} steps"
    return f"{steps} take over {facts['slowest_step'].threshold:,.1f} ms; median {facts.number('median_step'):,.1f}."


def _memory(facts: Facts) -> str:
    device = (facts["reserved_share"].device or "").removeprefix("gpu")
    return f"{facts.percent('reserved_share')} of the memory of GPU {device} was reserved."


def _quality(facts: Facts) -> str:
    named = _texts(facts, "fault")
    more = facts.count(FAULTS) - len(named)
    return f"The trace shows less than it could: {'; '.join(named)}" + (f"; {more:,} more." if more else ".")


def _late(facts: Facts) -> str:
    cause = "It computes as long as the others, so something else holds it up: its data, its host, a checkpoint"
    slower = facts["compute_ratio"]
    if slower.threshold is not None and facts.number("compute_ratio") >= slower.threshold:
        cause = f"It computes {facts.number('compute_ratio'):.2f} times as long as the others"
    return (
        f"{facts.text('late_rank')} comes last into {facts.text('collective')} in {facts.count('last_steps')} of "
        f"{facts.count('steps')} steps, {facts.percent('lateness_share')} of a step later than the middle one of "
        f"{counted(facts.count('ranks_compared'), 'rank')}. {cause}."
    )


def _slow(facts: Facts) -> str:
    longer = f"computes {facts.number('compute_ratio'):.2f} times as long as"
    return f"{facts.text('slow_rank')} {longer} the median of {counted(facts.count('like_ranks'), 'like rank')}."


def _of_share(name: str, before: str, after: str) -> Callable[[Facts], str]:
    """Return the sentence that has one share between its words."""
    return lambda facts: f"{before}{facts.percent(name)}{after}"


_SUMMARIES: Mapping[KernelKind, Callable[[Facts], str]] = {
    KernelKind.GPU_BUSY_LOW: _busy,
    KernelKind.GPU_GAP: _gap,
    KernelKind.LOADER_BOUND: _of_share("loader_share", "Steps wait ", " of their time for the data loader."),
    KernelKind.LAUNCH_BOUND: _launches,
    KernelKind.SMALL_KERNEL_STORM: _storm,
    KernelKind.SYNC_STALL: _sync,
    KernelKind.EXPOSED_COMMUNICATION: _exposed,
    KernelKind.MEMCPY_BOUND: _of_share("copy_share", "", " of the time the GPU only copies or sets memory."),
    KernelKind.PAGEABLE_COPY: _of_share(
        "pageable_share", "Asynchronous copies from or to pageable memory take ", " of the time."
    ),
    KernelKind.DATA_PARALLEL: _data_parallel,
    KernelKind.WITHOUT_NCCL: _without_nccl,
    KernelKind.TENSOR_CORES_IDLE: _of_share(
        "tensor_core_share", "", " of the time of matrix, convolution and attention kernels is on tensor cores."
    ),
    KernelKind.LOW_PRECISION_UNUSED: _of_share("fp32_share", "", " of the time of kernels that compute is in FP32."),
    KernelKind.SM_UNDERFILLED: _of_share(
        "underfilled_share", "", " of the computing time is in kernels with less than one block per multiprocessor."
    ),
    KernelKind.SLOW_STEPS: _slow_steps,
    KernelKind.GPU_MEMORY_FULL: _memory,
    KernelKind.QUEUE_FULL: lambda facts: (
        f"{facts.percent('full_queue_share')} of the time {facts.count('queued_launches'):,} launches wait for the GPU."
    ),
    KernelKind.TRACE_QUALITY: _quality,
    KernelKind.LATE_RANK: _late,
    KernelKind.SLOW_RANK: _slow,
}

_ADVICE: Mapping[KernelKind, str] = {
    KernelKind.GPU_BUSY_LOW: "Find what the GPU waits for in the other findings; then try a larger batch.",
    KernelKind.GPU_GAP: "Look at what the host does in these gaps: checkpoints, logging, evaluation, data loading.",
    KernelKind.LOADER_BOUND: "Raise the DataLoader's num_workers and prefetch_factor, set pin_memory=True, decode "
    "less.",
    KernelKind.LAUNCH_BOUND: "Launch less: CUDA graphs, torch.compile, a fused or foreach optimizer, fewer Python "
    "operators.",
    KernelKind.SMALL_KERNEL_STORM: "Fuse small kernels: torch.compile, foreach optimizers, CUDA graphs, channels_last.",
    KernelKind.SYNC_STALL: "Remove .item(), .cpu() and print of tensors from the step, copy with non_blocking=True.",
    KernelKind.EXPOSED_COMMUNICATION: "Overlap it: bucket size, prefetch, gradient accumulation; or send less: "
    "hierarchical or compressed collectives. A kernel that waits for a late rank looks the same: compare the ranks.",
    KernelKind.MEMCPY_BOUND: "Keep data on the GPU, join small copies, pin host memory and copy with "
    "non_blocking=True.",
    KernelKind.PAGEABLE_COPY: "Set pin_memory=True in the DataLoader, and copy with non_blocking=True.",
    KernelKind.DATA_PARALLEL: "Use DistributedDataParallel with one process for each GPU.",
    KernelKind.WITHOUT_NCCL: 'Call torch.distributed.init_process_group(backend="nccl"): it moves gradients from GPU '
    "to GPU.",
    KernelKind.TENSOR_CORES_IDLE: "Train in BF16 or FP16 (torch.autocast), allow TF32, make dimensions multiples of 8.",
    KernelKind.LOW_PRECISION_UNUSED: "Use BF16 autocast, and torch.set_float32_matmul_precision('high') for what stays "
    "in FP32.",
    KernelKind.SM_UNDERFILLED: "Give each kernel more work: a larger batch, fused operators.",
    KernelKind.SLOW_STEPS: "Compare these steps with a usual one: checkpoints, logging, loader restarts, other ranks.",
    KernelKind.GPU_MEMORY_FULL: "Leave room before the job runs out of memory: activation checkpointing, a smaller "
    "batch.",
    KernelKind.QUEUE_FULL: "Nothing is wrong: the host is far ahead, so a synchronizing call costs little here.",
    KernelKind.TRACE_QUALITY: "Nothing needs to be done.",
    KernelKind.LATE_RANK: "Balance the data and the layers between the ranks, and look at this rank's node: clocks, "
    "temperature, its data loader, other programs.",
    KernelKind.SLOW_RANK: "Balance the work between the ranks, and look at this rank's GPU: clocks, temperature, other "
    "programs on it.",
}
