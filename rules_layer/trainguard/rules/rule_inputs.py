"""What the engine shows to rules: of a node's system stream, of its framework stream, of a whole job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from trainguard.state.gpu_time import GpuTime, GpuUse, StepsOfUse
from trainguard.telemetry.devices import NO_DEVICES, DeviceSamples
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray, Snapshots


@dataclass(frozen=True, slots=True)
class IdleTime:
    """How a node's GPUs idled; runs of idle snapshots are those that are over, after start-up.

    Attributes
    ----------
    samples, paused, chance : int
        Snapshots in idle runs; those of them that were left out as pauses; those in runs as long that were kept,
        because the kept points make them likely by chance.
    breaks_s : float
        Seconds in idle runs of 10 s and three snapshots, or more, that are no chance.
    breaks : tuple of (float, float)
        The newest of them: start, epoch seconds, and length in seconds.
    quiet_s : float
        For how long, up to the watermark, every GPU has been nearly idle on average, start-up included; 0 where one was
        not over the newest 20 minutes, or over all samples where they are fewer.
    highest_mean, newest_mean : float
        The busiest GPU's mean utilization over the newest 20 to 24 minutes, and over the newest 4 at most, percent.
    run_mean : float
        The same over the idle run that is open at the watermark, or over its newest 24 minutes, percent: GPUs at 9 %
        are never active, and work.
    """

    samples: int = 0
    paused: int = 0
    chance: int = 0
    breaks_s: float = 0.0
    breaks: tuple[tuple[float, float], ...] = ()
    quiet_s: float = 0.0
    highest_mean: float = 0.0
    newest_mean: float = 0.0
    run_mean: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the engine knows of a node's system stream, up to its watermark.

    Kept points are the snapshots after start-up (before the work in which the node has been active for 60 s) and
    outside pauses (idle runs of three snapshots and over 60 s) and the idle tail; an idle run is kept only once it has
    ended. A GPU is active at >= 10 %, a node when some GPU is.

    Attributes
    ----------
    watermark_s : float or None
        Event time of the last completed snapshot, epoch seconds; None before the first.
    first_sample_at : float or None
    first_active_at : float or None
        The end of start-up; None while it lasts.
    interval_s : float
        Sampling interval.
    gpu_names : tuple of str, length G
    ever_active : bool[G]
    kept_total : int
        Kept points since the job's start.
    kept_times : float64[K]
        Event times of the newest K kept points. A judgement may look back on its own window of them; those beyond
        the largest window of all rules are there only while the minute that added them is observed.
    kept_gpu_utilization, kept_gpu_memory : float64[K, G]
    kept_cpu_mean : float64[K]
    idle_run_s : float
        Length of the idle run that is open at the watermark; 0 while active. During start-up, while no work goes on:
        the time since the first sample, or since samples were last missing.
    gpu_histogram : int64[G, 101]
        Counts of GPUUtilization over all kept points, bin = floor(value).
    closed : bool
        Whether the stream has ended.
    detailed : bool
        Whether anybody reads the judgement's details; where nobody does, a rule may leave them out.
    idle_time : IdleTime
    mig_names : tuple of str
        Instances of partitioned GPUs, such as ``gpu0.mig1``. Such a GPU has no utilization, and is none of the G.
    """

    node: str
    watermark_s: float | None
    first_sample_at: float | None
    first_active_at: float | None
    interval_s: float
    gpu_names: tuple[str, ...]
    ever_active: BoolArray
    kept_total: int
    kept_times: FloatArray
    kept_gpu_utilization: FloatArray
    kept_gpu_memory: FloatArray
    kept_cpu_mean: FloatArray
    idle_run_s: float
    gpu_histogram: IntArray
    closed: bool
    detailed: bool = True
    idle_time: IdleTime = IdleTime()
    mig_names: tuple[str, ...] = ()

    @property
    def through(self) -> float | None:
        """Former name of ``watermark_s``, which custom rules may read."""
        return self.watermark_s


@dataclass(frozen=True, slots=True)
class NodeMinute:
    """What one applied object added to a node's system stream.

    Attributes
    ----------
    snapshots : Snapshots
        The T snapshots that were completed, start-up and idle ones included.
    active : bool[T]
        Whether some GPU of the node was active.
    started : bool[T]
        Whether the snapshot is one of work, as far as that is known now, and not of start-up.
    fresh : int
        How many kept points were added: the newest of ``view.kept_times``, which holds all of them beside the window.
    view : NodeView
        The node after this minute.
    started_anew : bool
        Whether what was shown as work before this minute turned out to be start-up.
    devices : DeviceSamples
        Further series of the node and its devices in this minute's object; empty of a managed profile, but for disks.
    """

    snapshots: Snapshots
    active: BoolArray
    started: BoolArray
    fresh: int
    view: NodeView
    started_anew: bool = False
    devices: DeviceSamples = NO_DEVICES


@dataclass(frozen=True, slots=True)
class FrameworkView:
    """What the engine knows of a node's framework stream: its watermark and whether the stream has ended.

    ``first_step_at`` is the start of the node's earliest step, epoch seconds; None before one was seen. ``detailed`` is
    as in `NodeView`.
    """

    node: str
    watermark_s: float | None
    closed: bool
    first_step_at: float | None = None
    detailed: bool = True

    @property
    def through(self) -> float | None:
        """Former name of ``watermark_s``, which custom rules may read."""
        return self.watermark_s


@dataclass(frozen=True)
class NodeFacts:
    """What the tick knows of one node of a job, from both its streams; ``system`` is None before its first sample.

    Attributes
    ----------
    node : str
    system : NodeView or None
    cores : int
        Logical cores: distinct names with CPUUtilization; 0 when none was seen.
    framework : FrameworkView or None
    collected : mapping of str to msgspec.Struct
        What the joined rules have collected from the framework events, by rule; and the node's state of each rule that
        is completed by one over the job and collects nothing.
    watched : mapping of str to msgspec.Struct
        The node's state of each rule over its system metrics that is completed by one over the job.
    waiting : int
        Framework objects that are known and not applied yet.
    use : function
        Returns how busy each GPU of the node was over the whole job, start-up and pauses included; empty before its
        first step. Few looks ask for it.
    """

    node: str
    system: NodeView | None = None
    cores: int = 0
    framework: FrameworkView | None = None
    collected: Mapping[str, msgspec.Struct] = field(default_factory=dict)
    watched: Mapping[str, msgspec.Struct] = field(default_factory=dict)
    waiting: int = 0
    use: Callable[[], GpuTime] = GpuTime

    def used_between(self, begin: float, end: float) -> GpuUse | None:
        """Return how busy each GPU was from ``begin`` to ``end``, epoch seconds; None where no sample tells."""
        if self.system is None or self.system.watermark_s is None:
            return None
        return self._used.between(begin, end, self.system.watermark_s)

    @cached_property
    def _used(self) -> StepsOfUse:
        """What ``use`` says, step by step: several rules ask for parts of it."""
        return self.use().steps_of_use()


@dataclass(frozen=True, slots=True)
class JobView:
    """What the tick knows of a job; times in epoch seconds.

    Attributes
    ----------
    started_at : float or None
        Training start as SageMaker says, or the first sample's time if that is earlier.
    system_through : float or None
        The furthest watermark of the nodes' system streams.
    first_step_at : float or None
        Start of the earliest step seen so far.
    framework_expected : bool
        Whether the configuration or a tag asks for framework metrics.
    framework_seen : bool
        Whether any framework object exists.
    closed : bool
        Whether every stream has ended.
    nodes : mapping of str to NodeFacts
    interruptions : tuple of (float, float)
        Times in which no node had samples: the job had no instances.
    step_runs : tuple of (float, float)
        The newest times in which a node had steps, first start to last end, in no order.
    detailed : bool
        As in `NodeView`.
    evaluation_every_s : float
        How often nodes are evaluated: the samples of one may be shown so much later than those of another.
    """

    started_at: float | None
    system_through: float | None
    first_step_at: float | None
    framework_expected: bool
    framework_seen: bool
    closed: bool
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    interruptions: tuple[tuple[float, float], ...] = ()
    step_runs: tuple[tuple[float, float], ...] = ()
    detailed: bool = True
    evaluation_every_s: float = 60.0
