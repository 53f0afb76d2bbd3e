"""The document of kernel profiles: what ``kernels.json`` holds. Times are whole nanoseconds, shares from 0 to 1."""

from typing import Literal

import msgspec

from trainguard.kernels.findings.finding import KernelFinding

SCHEMA_VERSION: Literal["1"] = "1"


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The middle and the end of a distribution, in nanoseconds."""

    median: int
    p90: int


class StepEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the profiler.

    Attributes
    ----------
    start_ns : int
        From the start of the window.
    duration_ns : int
        On the host.
    gpu_duration_ns : int
        From the step's start, or the end of the GPU work of the step before if that is later, to the step's end, or the
        end of its own GPU work if that is later.
    breakdown : dict of str to int
        ``gpu_duration_ns`` by what went on. Each moment counts once: computation before exposed communication, copies,
        calls of the runtime, the data loader, operators on the host, and the rest. The parts add up.
    """

    number: int
    start_ns: int
    duration_ns: int
    gpu_duration_ns: int
    breakdown: dict[str, int]


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a kernel; overlapping runs count each, so totals may exceed the window.

    Attributes
    ----------
    precision : str
        From the name, else from the operator's first floating input; ``unknown`` where neither says it.
    communication : bool
        Whether it is a collective; it moves bytes, so its precision is ``unknown`` and counts in no share.
    """

    name: str
    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    max_ns: int
    p99_ns: int
    precision: str
    tensor_core: bool
    communication: bool


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All copies or settings of memory of one kind; ``bytes`` is None where the trace does not say it."""

    name: str
    count: int
    total_ns: int
    bytes: int | None


class AnnotationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All stretches of an annotation on the host; a number at the end of a name is removed."""

    name: str
    count: int
    total_ns: int
    min_ns: int
    median_ns: int
    max_ns: int


class IdleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The gaps of all streams by cause: launched too late, the GPU's own (under 30 us), another one."""

    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How far a trace can be judged: what it lacks, what is damaged, and what was counted while it was read."""

    missing: list[str]
    damaged: list[str]
    counts: dict[str, int]


class RankProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one trace.

    Attributes
    ----------
    rank : int or None
        As the trace says it, else as the file's name does.
    start_unix_ns : int or None
        The window's start; None where the trace's clock has no known origin.
    window_ns : int
        From the first step's start on the host to the end of the last step and of its GPU work; without steps, from the
        first to the last work of the GPU.
    busy_ns : int
        Time in which the GPU computes, communicates, copies or sets memory.
    overlap_ns : int
        Time in which it computes and communicates.
    exposed_communication_ns, exposed_memory_ns : int
        Time in which it only communicates; in which it only copies or sets memory.
    launch_delay_ns : Distribution or None
        From the end of the launching call to the kernel's start, 0 where the kernel starts earlier.
    launch_to_start_ns : Distribution or None
        From the start of the launching call to the kernel's start.
    synchronization_ns : int
        Time of synchronization, as the GPU's side recorded it, else of the host's calls.
    precision : dict of str to int
        Time of the kernels that compute by precision, most first.
    utilization : list of float
        Busy share in equal parts of the window.
    kernels_left_out : int
        Kernels with the least time that ``kernels`` does not list.
    """

    trace: str
    rank: int | None
    world_size: int | None
    gpus: list[str]
    start_unix_ns: int | None
    window_ns: int
    busy_ns: int
    compute_ns: int
    communication_ns: int
    overlap_ns: int
    exposed_communication_ns: int
    memory_ns: int
    exposed_memory_ns: int
    launch_delay_ns: Distribution | None
    launch_to_start_ns: Distribution | None
    synchronization_ns: int
    synchronization_source: Literal["gpu", "host"]
    idle: IdleEntry
    precision: dict[str, int]
    tensor_core_ns: int
    utilization: list[float]
    steps: list[StepEntry]
    kernels: list[KernelEntry]
    kernels_left_out: int
    memory_operations: list[MemoryEntry]
    annotations: list[AnnotationEntry]
    findings: list[KernelFinding]
    quality: Quality


class KernelProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel profiles of a place, a trace each.

    Attributes
    ----------
    ranks : list of RankProfile
        By rank; traces without a rank come last.
    unread : dict of str to str
        Files that could not be read, and why.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    source: str
    ranks: list[RankProfile]
    unread: dict[str, str]


def encode_profiles(document: KernelProfiles) -> bytes:
    """Encode ``kernels.json``."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
