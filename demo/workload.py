"""What a training job does over its time, in the few figures that its profile follows from."""

from dataclasses import dataclass, field

from demo.samples import Phase

TRAIN = Phase("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", {})
EVALUATE = Phase("Step:ModeKeys.EVAL", "Step:ModeKeys.EVAL", {})
LOADER_STARTS = Phase(
    "DataLoaderIterInitialize",
    "_MultiProcessingDataLoaderIter.__init__",
    {"num_workers": 8, "pin_memory": True},
)
PHASES = (TRAIN, EVALUATE, LOADER_STARTS)


@dataclass(frozen=True, slots=True)
class Level:
    """A quantity in percent: Gaussian around its mean, never outside its limits."""

    mean: float
    deviation: float
    low: float = 0.0
    high: float = 100.0


@dataclass(frozen=True, slots=True)
class Starvation:
    """In a share of the snapshots the GPUs wait while a few cores are at their limit."""

    share: float
    hot_cores: int
    core: Level = field(default_factory=lambda: Level(97, 2, low=94))
    gpu: Level = field(default_factory=lambda: Level(4, 2, high=8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A loop of steps: how long one takes, its variation (share), and the wait between two; some steps are slower."""

    phase: Phase
    step_s: float
    variation: float = 0.03
    wait_s: float = 0.01
    slow_every: int = 0
    slow_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a node does for a while; rates in MiB a second."""

    core: Level
    gpu: Level = field(default_factory=lambda: Level(0, 0.6, high=3))
    io_wait_percent: float = 0.4
    host_memory_percent: float = 24.0
    disk_read: float = 0.0
    disk_write: float = 0.1
    received: float = 0.05
    sent: float = 0.05
    steps: Steps | None = None
    starvation: Starvation | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """An activity and when it begins, seconds after the recording's start; it lasts until the next."""

    begins_s: float
    activity: Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One job; ``first_snapshot_s`` is seconds into the first minute, ``loading`` when loaders start, how long."""

    instance_type: str
    nodes: int
    cores: int
    gpus: int
    stretches: tuple[Stretch, ...]
    ends_s: float
    loading: tuple[tuple[float, float], ...]
    first_snapshot_s: float = 9.2319
    interval_ms: int = 500
