"""What a rule is: validated parameters, bounded state, and a pure judgement of it.

The engine owns ordering, snapshots, kept points and episodes; a rule folds what it is shown into its own state and
says, from state alone, whether its condition holds now. So a verdict is a function of the state, and the state a
function of the set of applied objects.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from trainguard.records import Status
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray, Snapshots
from trainguard.telemetry.steps import StepBatch

MIN_WINDOW_POINTS = 20
MAX_WINDOW_POINTS = 2_000

Percent = Annotated[float, msgspec.Meta(ge=0.0, le=100.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(gt=0)]
WindowPoints = Annotated[int, msgspec.Meta(ge=MIN_WINDOW_POINTS, le=MAX_WINDOW_POINTS)]


class RuleParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a rule under the managed service's names; a field's constraints are its type.

    ``scan_interval_us`` is accepted as the managed service does; evaluation is once an applied minute.
    """

    scan_interval_us: PositiveInt = 60_000_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule says of the state it was shown.

    ``status`` FIRED says that the firing condition holds now; whether that is a new fire is the engine's to know.
    ``reason`` is one sentence with the job's own numbers. ``worst`` names the series or process that is worst, for
    example ``gpu3``. ``details`` goes into the report's JSON as it is (finite numbers, strings, lists, dicts).
    """

    status: Status
    reason: str
    measured: float | None = None
    threshold: float | None = None
    worst: str | None = None
    data_points: int = 0
    patience: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the engine knows of a node's system stream, up to its watermark.

    Kept points are the snapshots after start-up (before the node's first active snapshot) and outside pauses (idle runs
    over 60 s) and the idle tail; an idle run is kept only once it has ended within 60 s. A GPU is active at >= 10 %, a
    node when some GPU is.

    Attributes
    ----------
    through : float or None
        Event time of the last completed snapshot, epoch seconds; None before the first.
    first_sample_at : float or None
    first_active_at : float or None
    interval_s : float
        Sampling interval.
    gpu_names : tuple of str, length G
    ever_active : bool[G]
    kept_total : int
        Kept points since the job's start.
    kept_times : float64[K]
        Event times of the newest K kept points, K at most the largest window of all rules.
    kept_gpu_utilization, kept_gpu_memory : float64[K, G]
    kept_cpu_mean : float64[K]
    idle_run_s : float
        Length of the idle run that is open at the watermark; 0 while active. Before the first active snapshot: the
        time since the first sample, or since samples were last missing.
    gpu_histogram : int64[G, 101]
        Counts of GPUUtilization over all kept points, bin = floor(value).
    closed : bool
        Whether the stream has ended.
    """

    node: str
    through: float | None
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
        Whether the snapshot is at or after the node's first active one.
    view : NodeView
        The node after this minute.
    """

    snapshots: Snapshots
    active: BoolArray
    started: BoolArray
    view: NodeView


@dataclass(frozen=True, slots=True)
class FrameworkView:
    """What the engine knows of a node's framework stream: its watermark and whether the stream has ended."""

    node: str
    through: float | None
    closed: bool


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
    """

    started_at: float | None
    system_through: float | None
    first_step_at: float | None
    framework_expected: bool
    framework_seen: bool
    closed: bool


P = TypeVar("P", bound=RuleParameters)
S = TypeVar("S", bound=msgspec.Struct)


class Rule(ABC, Generic[P]):
    """What the three kinds of rules share.

    ``name`` is the rule's name in the documentation of the managed service; ``parameters_type`` its parameter class,
    whose defaults are the documented ones.
    """

    name: ClassVar[str]
    parameters_type: type[P]

    @abstractmethod
    def clear_after_s(self, parameters: P, interval_s: float) -> float:
        """Seconds of event time without violation after which an episode of firing has ended: three windows."""


class SystemRule(Rule[P], Generic[P, S]):
    """A rule over one node's system metrics."""

    state_type: type[S]

    @abstractmethod
    def window_points(self, parameters: P, interval_s: float) -> int:
        """How many kept points the rule looks back on; 0 when it looks at none. Raises RuleConfigError over 2,000."""

    @abstractmethod
    def observe(self, state: S, minute: NodeMinute, parameters: P) -> None:
        """Fold one applied minute into ``state``; called in order of time, once a minute."""

    @abstractmethod
    def judge(self, state: S, view: NodeView, parameters: P) -> Judgement:
        """Say what ``state`` means now; pure."""


class FrameworkRule(Rule[P], Generic[P, S]):
    """A rule over the training steps of one node's processes."""

    state_type: type[S]

    @abstractmethod
    def observe(self, state: S, batch: StepBatch, parameters: P) -> None:
        """Fold the steps of one object into ``state``; called in order of time for each process."""

    @abstractmethod
    def judge(self, state: S, view: FrameworkView, parameters: P) -> Judgement:
        """Say what ``state`` means now; pure."""


class JobRule(Rule[P], Generic[P]):
    """A rule over a whole job, judged from its nodes' states; it has no state of its own."""

    @abstractmethod
    def judge(self, view: JobView, parameters: P) -> Judgement:
        """Say what the job's nodes mean now; pure."""


AnySystemRule = SystemRule[Any, Any]
AnyFrameworkRule = FrameworkRule[Any, Any]
AnyJobRule = JobRule[Any]
