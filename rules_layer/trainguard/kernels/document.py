"""The document of kernel profiles: what ``kernels.json`` holds. Times are whole nanoseconds, shares from 0 to 1."""

from typing import Literal

import msgspec

from trainguard.kernels.changes import KernelComparison
from trainguard.kernels.device_entries import (
    ActivityEntry,
    DeviceEntry,
    LaunchEntry,
    PeaksEntry,
    RollupEntry,
    TemporalEntry,
)
from trainguard.kernels.entries import (
    Collective,
    CollectiveEntry,
    CollectiveStepsEntry,
    CounterEntry,
    CriticalPathEntry,
    GpuIdleEntry,
    IdleEntry,
    KernelDurations,
    KernelEntry,
    KernelFinding,
    MemoryEntry,
    OperatorEntry,
    TypicalStep,
)
from trainguard.kernels.memory.entries import GpuMemory, SnapshotProfile

SCHEMA_VERSION: Literal["1"] = "1"


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The middle and the end of a distribution, in nanoseconds."""

    median: int
    p90: int


class StepEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the profiler.

    start_ns: From the start of the window.
    duration_ns: On the host.
    gpu_duration_ns: From the step's start, or the end of the GPU work of the step before if that is later, to the
        step's end, or the end of its own GPU work if that is later.
    breakdown: ``gpu_duration_ns`` by what went on. Each moment counts once: computation before exposed communication,
        copies, calls of the runtime, the data loader, operators on the host, and the rest. The parts add up.
    kernels: Runs of kernels that the step launched.
    """

    number: int
    start_ns: int
    duration_ns: int
    gpu_duration_ns: int
    breakdown: dict[str, int]
    kernels: int = 0


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of all steps: on the host, and with their work on the GPU (see `StepEntry`)."""

    host: KernelDurations
    gpu: KernelDurations


class AnnotationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All stretches of an annotation on the host; a number at the end of a name is removed.

    host: The stretches on the host with their histogram.
    gpu: The same on the GPU; None where they launched nothing.
    gpu_source: Whether the GPU's side recorded the stretches, or they span the kernels that were launched within them.
    """

    name: str
    count: int
    total_ns: int
    min_ns: int
    median_ns: int
    max_ns: int
    host: KernelDurations | None = None
    gpu: KernelDurations | None = None
    gpu_source: Literal["annotation", "kernels"] | None = None


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of a GPU.

    count: Rows: kernels, copies and settings of memory.
    busy_ns: Union of its rows.
    idle: Its gaps by cause.
    queue_mean, queue_max: Launches that wait: plus one at a launch's start, minus one at its kernel's. The mean is over
        time.
    full_queue_ns: Time with 1,024 launches or more.
    queue_series: The longest queue in equal parts of the window; as many as ``utilization`` has.
    """

    device: int
    stream: str
    count: int
    busy_ns: int
    idle: IdleEntry
    queue_mean: float
    queue_max: int
    full_queue_ns: int
    queue_series: list[int]


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How far a trace can be judged: what it lacks, what is damaged, and what was counted while it was read.

    steps_lost: Steps at the end of a file that is cut off, which are not judged, as it does not hold all of their work.
    is_whole: False of a file that is cut off and holds no step whole, and of one that lost over a thousandth of its
        work: work of the GPU may be missing anywhere.
    work_lost: Launches in the window without their work on the GPU, and work without a time.
    """

    missing: list[str]
    damaged: list[str]
    counts: dict[str, int]
    steps_lost: int = 0
    is_whole: bool = True
    work_lost: int = 0


class RankProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one trace.

    rank: As the trace says it, else as the file's name does.
    start_unix_ns: The window's start; None where the trace's clock has no known origin.
    window_ns: From the first step's start on the host to the end of the last step and of its GPU work; without steps,
        from the first to the last work of the GPU.
    busy_ns: Time in which the GPU computes, communicates, copies or sets memory. Of a trace with several GPUs this and
        the next ones, ``utilization`` and the parts of steps are the means over those that count; see `DeviceEntry`.
    overlap_ns: Time in which it computes and communicates.
    exposed_communication_ns, exposed_memory_ns: Time in which it only communicates; in which it only copies or sets
        memory.
    launch_delay_ns: From the end of the launching call to the kernel's start, 0 where the kernel starts earlier.
    launch_to_start_ns: From the start of the launching call to the kernel's start.
    synchronization_ns: Time of synchronization, as the GPU's side recorded it, else of the host's calls: those that
        wait by their name, and copies that end before their call does.
    precision: Time of the kernels that compute by precision, most first.
    utilization: Busy share in equal parts of the window.
    kernels_left_out: Kernels with the least time that ``kernels`` does not list.
    kernels_left_out_ns, kernels_left_out_count: Their time and their runs.
    active_share: Share of the parts of ``utilization`` in which the GPU does anything.
    host_busy_ns: Time in which a recorded thread of the host runs an operator or calls the runtime; not the CPU's load.
    host_utilization: The same as shares of equal parts of the window.
    temporal: The split of HolisticTraceAnalysis; None without work of a GPU.
    communication_kernels_ns: Sum of the kernels that communicate, which ``precision`` leaves out.
    eligible_ns: Time of kernels that use tensor cores or could.
    annotations_left_out, streams_left_out, collectives_left_out, operators_left_out: Entries with the least time that
        the lists do not hold.
    step_times: None without steps.
    steps_left_out: Steps after those that ``steps`` holds.
    counters: By GPU and name; empty where none were sampled.
    critical_paths: Of a step of median length and of the slowest one; empty without work of a GPU.
    framework: ``xla`` is JAX or TensorFlow, where the profile does not say which; ``unknown`` of an export of Nsight
        Systems.
    collective_steps: The eight collectives with most time, in the first 500 steps.
    gpu_idle: Why the GPU is idle; ``idle`` says it of each stream.
    rollup: The GPU's time by family, phase and module, and how much of its arithmetic is used.
    typical_step: None without steps or work of a GPU.
    software: Versions, and options of the profiler, as the trace says them.
    memory: Of each GPU whose allocations the trace holds (``profile_memory=True``).
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
    kernels_left_out_ns: int = 0
    kernels_left_out_count: int = 0
    active_share: float | None = None
    host_busy_ns: int = 0
    host_utilization: list[float] = []
    temporal: TemporalEntry | None = None
    activity: ActivityEntry | None = None
    communication_kernels_ns: int = 0
    eligible_ns: int = 0
    launches: LaunchEntry | None = None
    devices: list[DeviceEntry] = []
    streams: list[StreamEntry] = []
    streams_left_out: int = 0
    step_times: StepTimes | None = None
    annotations_left_out: int = 0
    collectives: list[CollectiveEntry] = []
    collectives_left_out: int = 0
    collective_steps: list[CollectiveStepsEntry] = []
    operators: list[OperatorEntry] = []
    operators_left_out: int = 0
    peaks: PeaksEntry | None = None
    counters: list[CounterEntry] = []
    critical_paths: list[CriticalPathEntry] = []
    framework: Literal["pytorch", "jax", "tensorflow", "xla", "unknown"] = "unknown"
    steps_left_out: int = 0
    gpu_idle: GpuIdleEntry | None = None
    rollup: RollupEntry = RollupEntry()
    typical_step: TypicalStep | None = None
    software: dict[str, str] = {}
    memory: list[GpuMemory] = []

    @property
    def window_parts(self) -> dict[str, int]:
        """The window's nanoseconds: work of the GPU, each moment once, and why it is idle; together the window."""
        idle = self.gpu_idle
        parts = {
            "compute": self.compute_ns,
            "exposed_communication": self.exposed_communication_ns,
            "exposed_memory": self.exposed_memory_ns,
            "idle_loader": 0 if idle is None else idle.loader_ns,
            "idle_host": 0 if idle is None else idle.host_ns,
        }
        return parts | {"idle_other": self.window_ns - sum(parts.values())}

    @property
    def step_count(self) -> int:
        return len(self.steps) + self.steps_left_out

    @property
    def mean_step_ns(self) -> float:
        """The mean of a step with its work on the GPU; 0 without steps."""
        return sum(step.gpu_duration_ns for step in self.steps) / len(self.steps) if self.steps else 0.0


class RankLine(msgspec.Struct, frozen=True, kw_only=True):
    """One rank beside the others; times are means of a step, in nanoseconds.

    like: Ranks with the same number run the same kernels on the same GPU, and are compared with each other alone.
    step_ns: As ``gpu_duration_ns`` of its steps.
    compute_ns, communication_ns, exposed_communication_ns: Computation; collectives; collectives without computation.
    wait_ns: How much longer its collectives last than those of the rank that comes last into them; None where no
        collective is comparable.
    last_steps: Steps in which it comes last into the chosen collective.
    waits_ns: How long it waits in each of ``AcrossRanks.steps``; empty of a rank that is not compared.
    """

    rank: int | None
    trace: str
    like: int
    steps: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    wait_ns: int | None
    last_steps: int
    waits_ns: list[int] = []


class TransferEntry(Collective, frozen=True, kw_only=True):
    """A collective on several ranks, its time without the wait for the rank that comes last into it.

    ranks, steps: How many are compared.
    transfer_ns: Time on the rank that came last, of all steps: at most so long does the transfer take.
    wait_ns: How much longer it takes on the mean rank.
    bytes: What a rank sends or gets in these steps; None where a trace does not say it.
    algorithm_gb_per_s, bus_gb_per_s: At least so fast; see `CollectiveEntry`.
    """

    ranks: int
    steps: int
    transfer_ns: int
    wait_ns: int
    bytes: int | None
    algorithm_gb_per_s: float | None
    bus_gb_per_s: float | None


class AcrossRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a job beside each other.

    world_size: Ranks of the job, as the traces say it.
    missing: Ranks of the job without a trace, the first hundred; ``missing_count`` counts all.
    collective: The collective by which ranks are compared: the one whose time differs most; empty where there is none.
    compared_steps: Steps that all compared ranks recorded with the same runs of it.
    steps: Their numbers, the first fifty.
    transfers: Collectives that several like ranks ran, most time first, up to fifty.
    lines: By rank.
    findings: What fires across ranks.
    notes: What could not be compared, and why.
    """

    world_size: int | None
    missing: list[int]
    missing_count: int
    collective: str
    compared_steps: int
    lines: list[RankLine]
    findings: list[KernelFinding]
    notes: list[str]
    steps: list[int] = []
    transfers: list[TransferEntry] = []


class JobEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The training job of a profile as SageMaker described it when the profile was made.

    status: SageMaker's word, such as ``InProgress``.
    instance_type, instance_count: None of a job with groups of different instances.
    hyperparameters: By name, the first hundred; long values are cut, and those whose name is that of a secret are
        hidden.
    hyperparameters_left_out: Those beyond.
    """

    arn: str
    status: str
    instance_type: str | None = None
    instance_count: int | None = None
    hyperparameters: dict[str, str] = {}
    hyperparameters_left_out: int = 0


class KernelProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel profiles of a place, a trace each.

    ranks: By rank; traces without a rank come last. Empty where there are only snapshots.
    snapshots: Snapshots of the allocator, in the same order; in a job, those with findings first.
    unread: Files that could not be read, and why.
    across: The ranks beside each other; None of one trace.
    comparison: Another profile beside this one, where it was asked for.
    ranks_left_out: Ranks that ``ranks`` does not list; ``across`` has them.
    job: The training job, where a stack judged its traces.
    job_facts: What SageMaker says about the job; None where it does not know it or did not answer.
    snapshots_left_out: Snapshots that ``snapshots`` does not list.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    source: str
    ranks: list[RankProfile]
    unread: dict[str, str]
    across: AcrossRanks | None = None
    comparison: KernelComparison | None = None
    ranks_left_out: int = 0
    job: str | None = None
    job_facts: JobEntry | None = None
    snapshots: list[SnapshotProfile] = []
    snapshots_left_out: int = 0


def encode_profiles(document: KernelProfiles) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
