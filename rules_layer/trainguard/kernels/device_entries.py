"""Parts of ``kernels.json`` that sum up a rank's GPUs: what each does, and how they are launched."""

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
