"""What the engine shows to rules: of a node's system stream, of its framework stream, of a whole job."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.formats.profile.snapshots import NO_DEVICES, BoolArray, DeviceSamples, FloatArray, IntArray, Snapshots
from trainguard.state.gpu_time import GpuTime, GpuUse

# Culprits that are kept; ``culprits`` counts all.
MOST_KNOWN = 16


class KnownRank(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rank that others wait for, and the node that its files, or those of its neighbours, lie under.

    kind: As of the verdict on a hang, for example ``not_entered``. operation, group, sequence: What it is in itself, or
    entered last. line, doing: Where its code is, and what is done there. waiting: Ranks that wait for it.
    """

    rank: int
    kind: str
    node: str = ""
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    line: str = ""
    doing: str = ""
    waiting: int = 0


class KnownHang(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who holds up a job. version: Names the files that say it. at: When the newest was written, epoch seconds.

    named: The culprits, the most certain first. culprits, waiting, without_dump, ranks: How many there are.
    operation, group, sequence: What the others wait in; empty and None where unknown. waiting_line: Where they wait.
    files: How many say it. unread: How many could not be read. left_out: How many there was no time for.
    """

    version: str = ""
    at: float = 0.0
    named: tuple[KnownRank, ...] = ()
    culprits: int = 0
    waiting: int = 0
    without_dump: int = 0
    ranks: int = 0
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    waiting_line: str = ""
    files: int = 0
    unread: int = 0
    left_out: int = 0


S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class IdleTime:
    """How a node's GPUs idled; runs of idle snapshots are those that are over, after start-up.

    ``samples`` are snapshots in idle runs, ``paused`` those of them left out as pauses, ``chance`` those in runs as
    long that chance explains. ``breaks_s`` are seconds in idle runs of 10 s and three snapshots, or more, that are no
    chance, ``breaks`` the newest of them: start, epoch seconds, and length in seconds. For ``quiet_s``, up to the
    watermark, every GPU has been nearly idle on average; 0 where one was not. The busiest GPU's mean utilization,
    percent, is ``highest_mean`` over the newest 20 to 24 minutes, ``newest_mean`` over the newest 4 at most, and
    ``run_mean`` over the idle run that is open at the watermark, or over its newest 24 minutes.
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
    """A node's system stream, up to its watermark.

    Kept points are the snapshots after start-up (before the work in which the node has been active for 60 s) and
    outside pauses (idle runs of three snapshots and over 60 s) and the idle tail; an idle run is kept only once it has
    ended. A GPU is active at >= 10 %, a node when some GPU is.

    ``watermark_s`` is the event time of the last completed snapshot, epoch seconds, None before the first;
    ``first_active_at`` is the end of start-up, None while it lasts. ``gpu_names`` has length G, ``ever_active`` is
    bool[G]. ``kept_total`` counts kept points since the job's start. ``kept_times`` are the event times of the newest K
    kept points (those beyond the largest window of all rules last for one minute), float64[K] as ``kept_cpu_mean``;
    ``kept_gpu_utilization`` and ``kept_gpu_memory`` are float64[K, G]. ``idle_run_s`` is the length of the idle run
    that is open at the watermark; during start-up, the time without work so far. ``gpu_histogram``, int64[G, 101],
    counts GPUUtilization over all kept points, bin = floor(value). ``detailed`` says whether anybody reads the
    judgement's details; where nobody does, a rule may leave them out. ``mig_names`` are instances of partitioned GPUs,
    such as ``gpu0.mig1``: such a GPU has no utilization, and is none of the G.
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
    def used_gpus(self) -> tuple[str, ...]:
        """The GPUs that were ever active."""
        return tuple(self.gpu_names[index] for index in np.flatnonzero(self.ever_active).tolist())

    def fact(self, name: str, value: float | int | str, unit: str = "", **more: Any) -> Fact:
        """Return a fact of the node, of all samples unless ``start`` and ``end`` say another time."""
        times = {"start": self.first_sample_at, "end": self.watermark_s}
        return Fact(name=name, value=value, unit=unit, node=self.node, **(times | more))

    def work_fact(self, name: str, value: float | int | str, unit: str = "", **more: Any) -> Fact:
        """Return a fact of the node from its first work on, or else its first sample."""
        start = self.first_sample_at if self.first_active_at is None else self.first_active_at
        return self.fact(name, value, unit, **({"start": start} | more))


@dataclass(frozen=True, slots=True)
class NodeMinute:
    """One applied object's addition to a node's system stream.

    ``snapshots`` are the T snapshots that were completed, start-up and idle ones included. Of each, bool[T], ``active``
    says whether some GPU was active, and ``started`` whether it is one of work, as far as known now. ``fresh`` kept
    points were added: the newest of ``view.kept_times``. ``view`` is the node after this minute; with ``restarted``
    earlier work turned out to be start-up. ``devices`` are further series of this minute's object; empty of a managed
    profile, but for disks.
    """

    snapshots: Snapshots
    active: BoolArray
    started: BoolArray
    fresh: int
    view: NodeView
    restarted: bool = False
    devices: DeviceSamples = NO_DEVICES


@dataclass(frozen=True, slots=True)
class FrameworkView:
    """A node's framework stream; ``first_step_at`` is in epoch seconds, None before a step was seen."""

    node: str
    watermark_s: float | None
    closed: bool
    first_step_at: float | None = None
    detailed: bool = True


@dataclass(frozen=True)
class NodeFacts:
    """One node of a job, from both its streams; ``system`` is None before its first sample.

    ``cores`` are logical cores: distinct names with CPUUtilization; 0 when none was seen. By rule, ``collected`` has
    collections of joined rules, and node states of rules over the job that collect nothing; ``watched`` has node states
    of rules over system metrics that a rule over the job completes. ``waiting`` counts framework objects that are known
    and not applied yet. ``use`` returns each GPU's use over the whole job, start-up and pauses included; empty before
    its first step.
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
    def _used(self) -> GpuTime:
        """What ``use`` says: several rules ask for parts of it."""
        return self.use()


@dataclass(frozen=True, slots=True)
class JobView:
    """A job; times in epoch seconds.

    ``started_at`` is the training start as SageMaker says, or the first sample's time if that is earlier;
    ``system_through`` the furthest watermark of the nodes' system streams. ``framework_expected`` says whether the
    configuration or a tag asks for framework metrics, ``framework_seen`` whether any framework object exists. In
    ``interruptions`` no node had samples: the job had no instances. ``step_runs`` are the newest times in which a node
    had steps, first start to last end, in no order. Nodes are evaluated each ``evaluation_every_s``: the samples of one
    may be shown so much later than those of another. ``hang`` is what dumps of a standstill say, None without any;
    ``gpu_faults`` are kind and facts of what is found now on the GPUs' health, by node.
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
    hang: KnownHang | None = None
    gpu_faults: Mapping[str, tuple[str, tuple[Fact, ...]]] = field(default_factory=dict)

    def collected(self, rule: str, kind: type[S]) -> dict[str, S]:
        """Return what a rule has collected, by node; nodes without are left out."""
        states = {node: facts.collected.get(rule) for node, facts in self.nodes.items()}
        return {node: state for node, state in states.items() if isinstance(state, kind)}

    def used_gpus(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the GPUs of nodes that were ever active, as ``<node>/<gpu>``."""
        systems = [system for node in nodes if (system := self.nodes[node].system) is not None]
        return tuple(f"{system.node}/{gpu}" for system in systems for gpu in system.used_gpus)


# A smaller wasted share is reported, and neither alerts anybody nor stops the job.
ALARMING_WASTE = 0.15


def share_of_paid(view: NodeView, lost_s: float) -> float | None:
    """Return ``lost_s`` seconds of the whole node as a share, 0 to 1, of its time; None before its first sample."""
    if view.watermark_s is None or view.first_sample_at is None:
        return None
    return min(max(lost_s / (view.watermark_s - view.first_sample_at + view.interval_s), 0.0), 1.0)


def idle_share_of_paid(view: NodeView, gpus: BoolArray, seen: float = 1.0) -> float | None:
    """Return the loss of ``gpus`` (bool[G]) in kept points, as a share of paid time; None without any.

    A GPU at 30 % loses 70 %. What was found in a share ``seen``, 0 to 1, of the points costs no more than that share.
    """
    counts = view.gpu_histogram[gpus]
    active = int(np.count_nonzero(view.ever_active))
    if not active or not counts.any():
        return None
    undone = float((counts * (100 - np.arange(counts.shape[1]))).sum()) / 100.0 / active
    return share_of_paid(view, min(undone, seen * view.kept_total) * view.interval_s)


_READ_LATE = frozenset({"kept_times", "kept_gpu_utilization", "kept_gpu_memory", "kept_cpu_mean", "gpu_histogram"})


class LateView(NodeView):
    """A view without kept points, for jobs whose nodes do not all fit into memory; its arrays are read-only.

    ``again`` returns the whole view once more; it is called at each access to kept points.
    """

    __slots__ = ("_again", "counts")

    _again: Callable[[], NodeView]
    counts: IntArray

    def __init__(self, view: NodeView, *, closed: bool, again: Callable[[], NodeView]) -> None:
        held = {each.name: getattr(view, each.name) for each in fields(NodeView) if each.name not in _READ_LATE}
        counts = view.counts if isinstance(view, LateView) else view.gpu_histogram.astype(np.uint32)
        held |= {"ever_active": _fixed(view.ever_active), "closed": closed, "_again": again, "counts": counts}
        for name, value in held.items():
            object.__setattr__(self, name, value)

    def as_of(self, *, closed: bool) -> "LateView":
        """Return the view for a stream that has ended, or not."""
        return self if closed is self.closed else LateView(self, closed=closed, again=self._again)

    kept_times = property(lambda self: _fixed(self._again().kept_times))
    kept_gpu_utilization = property(lambda self: _fixed(self._again().kept_gpu_utilization))
    kept_gpu_memory = property(lambda self: _fixed(self._again().kept_gpu_memory))
    kept_cpu_mean = property(lambda self: _fixed(self._again().kept_cpu_mean))

    @property
    def gpu_histogram(self) -> IntArray:
        return _fixed(self.counts.astype(np.int64))


def _fixed(values: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> "np.ndarray":
    view = values.view()
    view.flags.writeable = False
    return view
