"""Parts of ``kernels.json`` that describe the GPU, its streams, its collectives and its operators."""

from typing import Literal

import msgspec

from trainguard.core.finding import Fact, Severity


class Collective(msgspec.Struct, frozen=True):
    """What a kernel that communicates does; empty and None where the trace does not say it."""

    name: str
    group: str = ""
    group_size: int | None = None
    dtype: str = ""


class IdleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The gaps of all streams by cause: launched too late, the GPU's own (under 30 us), another one."""

    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int


class GpuIdleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time of the GPU by cause, in nanoseconds; of several GPUs the means over those that count.

    loader_ns: The next work was not launched, as the host waited for the data loader.
    host_ns: The next work was not launched for another reason: Python, operators, launching calls, synchronization.
    other_ns: The next work was launched: latency, an event of another stream; or its time is unknown.
    """

    loader_ns: int
    host_ns: int
    other_ns: int


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How often durations lie in bins of equal width.

    edges_ns: One more than there are bins, rising; the last bin holds its upper edge, too.
    counts: Durations per bin.
    """

    edges_ns: list[int]
    counts: list[int]


class KernelDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one sort, in nanoseconds, and their histogram (bins by Freedman and Diaconis, 50 at most)."""

    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    median_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    histogram: Histogram


class CollectiveEntry(Collective, frozen=True, kw_only=True):
    """All runs of one collective on one group; a run that waits for a late rank is longer and looks slower.

    name: As the trace says it, such as ``allreduce``; the kernel's name where it does not.
    group: Name or description of the process group; empty where unknown.
    group_size: Ranks in the group.
    dtype: Type of an element; empty where unknown.
    overlap_ns, exposed_ns: Time with, and without, computation at the same time. Runs at once count each.
    sized_count: Runs whose size is recorded; the next three fields rest on these alone.
    bytes: Sum of the runs' sizes: of a run, the larger one of input and output.
    algorithm_gb_per_s: Bytes by time, in 10^9 bytes a second.
    bus_gb_per_s: What the links carry for it: times 2(n-1)/n for all-reduce, (n-1)/n for gather, scatter and
        all-to-all, 1 for broadcast, reduce and point to point; None where the group's size is unknown.
    link_share: ``bus_gb_per_s`` by what the links of a GPU to the others of its node carry in one direction; None where
        that is unknown, or the group may have ranks on another node.
    """

    count: int
    total_ns: int
    min_ns: int
    median_ns: int
    max_ns: int
    overlap_ns: int
    exposed_ns: int
    sized_count: int
    bytes: int | None
    algorithm_gb_per_s: float | None
    bus_gb_per_s: float | None
    link_share: float | None = None


class CollectiveStepsEntry(Collective, frozen=True, kw_only=True):
    """One collective on one group, step by step: what ranks are compared by.

    name, group, dtype: As in `CollectiveEntry`.
    group_size: Ranks in the group.
    steps: Numbers of the steps that launched it.
    counts: Its runs in each of them.
    total_ns: The time of these runs, added up.
    bytes: Their sizes, added up; -1 where the trace does not say that of each run.
    """

    steps: list[int]
    counts: list[int]
    total_ns: list[int]
    bytes: list[int] = []


class OperatorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of an operator with the same input shapes, and the kernels that they launched.

    shapes: The inputs' dimensions as JSON; empty where the trace does not record them.
    kernel_ns: Sum of its kernels.
    precision: In which most of that time is.
    flops, bytes: Of all calls: arithmetic from the shapes (a multiplication and an addition are two), and the least
        that has to move to and from memory. None where no formula fits the operator.
    most_flops: The most arithmetic, where shapes give bounds alone; ``flops`` and ``tflops`` are then the least.
    held_bytes: The size of the tensors of one call; one that is read and overwritten moves twice and counts once.
    tflops, gb_per_s: Achieved: by ``kernel_ns``.
    roofline_share: Achieved by what the GPU could do at this intensity, from 0 to about 1; None where its peaks are
        unknown, or where ``unrated`` says why there is none.
    bound: Which side of the roofline's knee it is on.
    unrated: ``cache``: the GPU's cache may serve half or more of the tensors. ``algorithm``: a kernel needs less
        arithmetic than the formula, such as Winograd's. ``not_moved``: memory cannot move ``bytes`` in this time.
        ``bounds``: the arithmetic depends on what a trace does not record, as the lengths of packed sequences.
    """

    name: str
    shapes: str
    count: int
    kernel_ns: int
    precision: str
    flops: int | None
    bytes: int | None
    tflops: float | None
    gb_per_s: float | None
    roofline_share: float | None
    bound: Literal["compute", "memory"] | None
    unrated: Literal["cache", "algorithm", "not_moved", "bounds"] | None = None
    held_bytes: int = 0
    most_flops: int | None = None


class PathKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or an operation on memory, and its time on a critical path."""

    name: str
    total_ns: int


class CriticalPathEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a step waits for from its start to its end, one thing after the other.

    step: Its number; None of a window without steps.
    total_ns: Its length with its work on the GPU.
    parts: ``compute``, ``communication``, ``memory``: work of the GPU; ``gpu_gap``: before a row of the GPU that
        was launched; ``launch``: from a call to its kernel; ``host``: the host works; ``data_loading``;
        ``synchronization``: from the end of the GPU's work to that of the call that waited for it. They add up.
    kernels: Those with most time on the path, the first ten.
    """

    step: int | None
    total_ns: int
    parts: dict[str, int]
    kernels: list[PathKernel]


class PerStep(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's part of the typical step: runs, their time, and how its time differs between all steps, as a sigma."""

    runs: float
    time_ns: int
    spread_ns: int


class TypicalStep(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of the middle half of the steps by length: of three the middle one, of fewer all.

    steps, of: How many steps that is, and of how many.
    duration_ns: As ``gpu_duration_ns`` of its steps, and up to the next one where there is time between them.
    spread_ns: How the length differs between all steps, as a standard deviation, from the quartiles.
    parts: ``compute``, ``exposed_communication``, ``memcpy``, ``memset`` as of `StepEntry`; ``idle_loader``,
        ``idle_host``, ``idle_other``: an idle GPU, by cause as of `GpuIdleEntry`. They add up.
    mean_ns, mean_parts: The same of all steps.
    """

    steps: int
    of: int
    duration_ns: int
    spread_ns: int
    parts: dict[str, int]
    mean_ns: int
    mean_parts: dict[str, int]


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a kernel; overlapping runs count each, so totals may exceed the window.

    precision: From the name, else from the operator's first floating input; ``unknown`` where neither says it.
    communication: Whether it is a collective; it moves bytes, so its precision is ``unknown`` and counts in no share.
    std_ns: Standard deviation of the population.
    launch_calls: Calls that launched these runs; a CUDA graph launches many with one call. Runs without a recorded
        call: 0.
    short_count: Runs that are shorter than their launching call.
    operator: The operator that launched most of its time; empty where the trace does not say it.
    occupancy: Estimated share of the warps that fit, weighted with time; None where the trace does not say it.
    blocks_per_sm: Thread blocks per multiprocessor, weighted with time.
    median_ns: Of a run.
    per_step: None without steps.
    family: What it computes, by its name: ``gemm``, ``attention``, ``convolution``, ``normalisation`` (with softmax),
        ``reduction``, ``elementwise``, ``embedding``, ``optimizer``, ``communication``, ``copy`` or ``other``.
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
    std_ns: int = 0
    launch_calls: int = 0
    short_count: int = 0
    operator: str = ""
    occupancy: float | None = None
    blocks_per_sm: float | None = None
    median_ns: int = 0
    per_step: PerStep | None = None
    family: str = "other"


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All copies or settings of memory of one kind.

    bytes: None where the trace does not say it for all of them.
    direction: ``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``, ``HtoH``, ``memset`` or ``other``.
    host_memory: What the host's side of the copy is, where the trace says it.
    gb_per_s: Bytes by time, of those runs that say both, in 10^9 bytes a second.
    """

    name: str
    count: int
    total_ns: int
    bytes: int | None
    direction: str = "other"
    host_memory: Literal["pageable", "pinned"] | None = None
    min_ns: int = 0
    max_ns: int = 0
    gb_per_s: float | None = None


class CounterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of a hardware counter of one GPU over the whole trace, in the counter's own unit, which its name has."""

    gpu: int
    name: str
    samples: int
    mean: float
    min: float
    max: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a finding rests on.

    what: A kernel, a call, or a stretch of time.
    duration_ns: How long it took, added up over ``count`` times.
    count: How often it occurred.
    start_ns: Where it is one stretch: its start, from the start of the window.
    step: The number of the step in which it lies, or in which the longest one of several lies.
    longest_start_ns, longest_ns: Where it is several runs: the longest one's start, from the start of the window, and
        its length.
    """

    what: str
    duration_ns: int
    count: int = 1
    start_ns: int | None = None
    step: int | None = None
    longest_start_ns: int | None = None
    longest_ns: int | None = None


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What can be won, at most: nanoseconds of a step (of the window without steps), and its share."""

    ns_per_step: int
    share: float


class KernelFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fires on a rank.

    id: The rule, ``kernels/<Rule>``.
    value, threshold: What was measured and what the rule allows, in the unit that ``summary`` names.
    kind: What was found: of the rule's sayings.
    facts: What it rests on; ``summary`` and ``recommendation`` are made of these alone.
    gain: The most that can be won of what only this finding explains: each nanosecond of the GPU's time counts at one
        finding, causes before symptoms (a GPU that waits for data has a low busy share, too). So gains add up.
    confidence: Low when fewer than three steps were recorded, only the first or the last one has it, or the file is cut
        off.
    """

    id: str
    severity: Severity
    value: float
    threshold: float
    summary: str
    evidence: list[Evidence]
    gain: Gain
    recommendation: str
    kind: str
    facts: list[Fact]
    confidence: Literal["normal", "low"] = "normal"
