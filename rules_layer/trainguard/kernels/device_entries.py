"""Parts of ``kernels.json`` that sum up a rank's GPUs: what each does, how they are launched, where their time goes."""

from typing import Literal

import msgspec


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the trace shows work of.

    name: Empty where the trace does not describe it.
    busy_ns, kernel_ns: Union of all its work; of its kernels alone.
    utilization, kernel_utilization: The same as shares of equal parts of the window.
    sm_efficiency: Time of kernels, each weighted with its blocks per multiprocessor up to 1, by the window.
    occupancy: Estimated share of the warps that fit, weighted with time.
    compute_ns, communication_ns, overlap_ns, exposed_communication_ns, memory_ns, exposed_memory_ns, idle_ns: As those
        of the rank, of this GPU alone.
    counted: Whether the rank's figures, which are means, count this GPU: its work is at least a hundredth of the
        busiest's.
    """

    device: int
    name: str
    busy_ns: int
    kernel_ns: int
    utilization: list[float]
    kernel_utilization: list[float]
    sm_efficiency: float | None
    occupancy: float | None
    compute_ns: int = 0
    communication_ns: int = 0
    overlap_ns: int = 0
    exposed_communication_ns: int = 0
    memory_ns: int = 0
    exposed_memory_ns: int = 0
    idle_ns: int = 0
    counted: bool = True


class ActivityEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of durations, those at once counted each: kernels, copies and settings of memory, synchronization."""

    kernel_ns: int
    memory_ns: int
    synchronization_ns: int


class TemporalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's span, from its first start to its last end in the window, in parts that add up."""

    span_ns: int
    idle_ns: int
    compute_ns: int
    non_compute_ns: int


class LaunchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How kernels are launched.

    kernels: Runs of kernels in the window.
    calls: Calls that launched them.
    unlaunched: Runs without a recorded call.
    short_kernels: Runs that are shorter than their launching call.
    slow_calls, slow_starts: Runs whose call takes over 50 us; that start over 100 us after their call ends.
    """

    kernels: int
    calls: int
    unlaunched: int
    short_kernels: int
    slow_calls: int
    slow_starts: int


class FamilyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's rows of one family and phase; rows at once count each.

    family: As of `KernelEntry`; ``copy`` has copies and settings of memory, too.
    collective: The sort of a collective, such as ``all_reduce``; empty of what is none or is not known.
    phase: What launched it: ``forward``, ``backward`` or ``optimizer``; ``unknown`` where the trace does not say it.
    flops: Arithmetic of matrix products, convolutions and attention, as far as it is known; else None.
    """

    family: str
    collective: str
    phase: Literal["forward", "backward", "optimizer", "unknown"]
    count: int
    total_ns: int
    flops: int | None


class ModuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's rows that a module launched, those of modules within it left out.

    path: Classes and numbers of the modules from the outermost one on, joined by ``/``. In a trace without modules,
        the names of annotations.
    backward_ns: The part of ``total_ns`` that computes gradients, as far as sequence numbers say whose.
    """

    path: str
    count: int
    total_ns: int
    backward_ns: int = 0


class PeaksEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU can do at most, without sparsity, as its maker says: TFLOP/s by precision, and 10^9 bytes a second.

    Of integers they are 10^12 operations a second. ``as_of`` is the date of the table, ``YYYY-MM-DD``; ``cache_mb`` is
    the last cache before memory, in 10^6 bytes. ``link_gb_per_s`` is what the links to the GPUs of a node carry in one
    direction, None where there are none, where they join some of the GPUs, or it is not known. ``source`` names the
    document. ``confirmed``: it is the maker's own, and gives the arithmetic of matrix products and the memory's speed;
    else figures are those that others quote, and no finding rests on them.
    """

    gpu: str
    tflops: dict[str, float]
    memory_gb_per_s: float
    as_of: str
    cache_mb: float
    link_gb_per_s: float | None = None
    source: str = ""
    confirmed: bool = False


class ArithmeticEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the GPU's arithmetic a step uses; without steps, the window.

    precision: In which most operations are; the peak is that of it.
    gpus: GPUs that the trace's operations are on.
    executed_flops: Operations of matrix products, convolutions and attention that ran, by their shapes.
    model_flops: Those that the model needs: three times the forward pass, but not more than ran; ``model_source`` is
        ``executed`` without a backward pass, and ``given`` where the user gave them.
    covered_share: Time of these kernels whose operations are known; with less than 1 more has run. Of packed sequences
        only bounds are known, of which the least counts.
    peak_confirmed: The maker's own document gives the peak.
    hfu, mfu: Executed operations, and the model's, by what the peak allows in the step's time.
    """

    precision: str
    peak_tflops: float
    step_ns: int
    gpus: int
    executed_flops: int
    model_flops: int
    model_source: Literal["forward", "executed", "given"]
    covered_share: float
    hfu: float
    mfu: float
    peak_confirmed: bool = False


class RollupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank's time goes, most first; ``modules_left_out`` counts those with the least time.

    arithmetic: None where no product's operations are known, or not the GPU's peak.
    """

    families: list[FamilyEntry] = []
    modules: list[ModuleEntry] = []
    modules_left_out: int = 0
    arithmetic: ArithmeticEntry | None = None
