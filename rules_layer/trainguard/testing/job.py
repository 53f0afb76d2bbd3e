"""A synthetic training job: what its nodes' samplers and the framework's hooks would have written."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import SyntheticJobError
from trainguard.formats.profile.assemble import SAMPLING_INTERVALS_S
from trainguard.formats.profile.snapshots import FloatArray

SeriesName = Literal["gpu_utilization", "gpu_memory", "cpu", "io_wait", "host_memory", "network"]
FileKind = Literal["pythontimeline", "model_timeline", "horovod_timeline", "smdataparallel_timeline"]
# A constant, a value a snapshot, or a function from the snapshots' times (seconds since the start) to values.
Values: TypeAlias = float | Sequence[float] | NDArray[Any] | Callable[[FloatArray], Any]

TRAIN_STEP = "Step:ModeKeys.TRAIN"
LONGEST_MINUTES = 24 * 60
# More would take minutes to write and to judge; a test wants seconds.
MOST_SAMPLES = 5_000_000

# Default of each series; percent, and bytes per second of the network.
HEALTHY: Mapping[SeriesName, float] = {
    "gpu_utilization": 92.0,
    "gpu_memory": 45.0,
    "cpu": 35.0,
    "io_wait": 1.0,
    "host_memory": 40.0,
    "network": 1_000_000.0,
}


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """Values of a series from ``start_s`` until before ``end_s``; None stands for every node or device."""

    series: SeriesName
    values: Values
    node: str | None
    device: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a process; ``start_s`` in seconds since the job's start."""

    node: str
    process: int
    kind: FileKind
    phase: str
    name: str
    start_s: float
    duration_s: float
    args: Mapping[str, object] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When it ended, seconds since the job's start."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a node writes nothing, seconds since the job's start; the end is not part of it."""

    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticJob:
    """A training job of healthy nodes, until it is changed; each change returns a new job.

    Attributes
    ----------
    nodes, gpus, cores : int
        How many nodes, named ``algo-1`` and so on, with how many GPUs and logical cores each.
    interval_s : float
        Sampling interval: 0.1, 0.2, 0.5, 1, 5 or 60 s. A node has ``minutes * 60 / interval_s`` snapshots.
    instance_type : str
        Its price is what findings cost.
    start : int
        Epoch second of the first snapshot, a full minute.
    changes, events, outages : tuple
        What was changed; use the methods.

    Raises
    ------
    SyntheticJobError
        When a field or a change cannot be used.
    """

    nodes: int = 1
    gpus: int = 2
    cores: int = 4
    minutes: int = 30
    interval_s: float = 5.0
    instance_type: str = "ml.g5.12xlarge"
    start: int = 1_795_248_000
    changes: tuple[SeriesChange, ...] = ()
    events: tuple[Event, ...] = ()
    outages: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        for name, most in (("nodes", 1_000), ("gpus", 64), ("cores", 1_024), ("minutes", LONGEST_MINUTES)):
            value = getattr(self, name)
            least = 0 if name == "gpus" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise SyntheticJobError(name, value, f"a whole number from {least} to {most:,}")
        if self.interval_s not in SAMPLING_INTERVALS_S:
            raise SyntheticJobError("interval_s", self.interval_s, f"one of {SAMPLING_INTERVALS_S}")
        if self.start % 60:
            raise SyntheticJobError("start", self.start, "a full minute, in epoch seconds")
        samples = self.nodes * self.snapshots * (2 * self.gpus + 2 * self.cores + 2)
        if samples > MOST_SAMPLES:
            expected = f"at most {MOST_SAMPLES:,}: fewer nodes, devices or minutes, or a longer interval_s"
            raise SyntheticJobError("samples of the job", samples, expected)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, as SageMaker gives them."""
        return tuple(f"algo-{number}" for number in range(1, self.nodes + 1))

    @property
    def duration_s(self) -> float:
        """How long the job runs, seconds."""
        return 60.0 * self.minutes

    @property
    def snapshots(self) -> int:
        """How many snapshots a node has."""
        return round(self.duration_s / self.interval_s)

    @property
    def times_s(self) -> FloatArray:
        """Times of the snapshots, seconds since the start: float64[T]."""
        return self.interval_s * np.arange(self.snapshots, dtype=np.float64)

    def with_series(
        self,
        series: SeriesName,
        values: Values,
        *,
        node: str | None = None,
        device: int | None = None,
        start_s: float = 0.0,
        end_s: float | None = None,
    ) -> "SyntheticJob":
        """Return the job with other values of a series; the last change of a snapshot counts.

        Parameters
        ----------
        series : {"gpu_utilization", "gpu_memory", "cpu", "io_wait", "host_memory", "network"}
            The first four are of devices, a GPU or a core each.
        values : float, float64[T] or callable
            Percent, or bytes per second of the network; NaN is a snapshot without a sample. T is the number of
            snapshots from ``start_s`` until before ``end_s``; a callable gets their times, seconds since the start.
        node : str, optional
            Of one node alone, for example ``algo-2``.
        device : int, optional
            Of one GPU or core alone, from 0.
        start_s, end_s : float
            Seconds since the start; ``end_s`` is not part of it, and is the job's end where it is not given.
        """
        change = SeriesChange(series, values, node, device, start_s, self.duration_s if end_s is None else end_s)
        self._check_node(node)
        self._check_change(change)
        return replace(self, changes=(*self.changes, change))

    def with_steps(
        self,
        duration_s: float | Sequence[float] | Callable[[int], float],
        *,
        pause_s: float = 0.05,
        start_s: float = 30.0,
        end_s: float | None = None,
        node: str | None = None,
        process: int = 100,
        mode: str = TRAIN_STEP,
    ) -> "SyntheticJob":
        """Return the job with training steps, one after the other, on every node or on one.

        Parameters
        ----------
        duration_s : float, sequence of float, or callable
            Seconds; a sequence ends with its last step, a callable gets the step's number, from 0.
        pause_s : float
            Seconds between two steps.
        start_s, end_s : float
            The first step begins at ``start_s``; none ends after ``end_s``, which is the job's end by default.
        process : int
            Process id; call it once for each process.
        """
        last_s = self.duration_s if end_s is None else end_s
        steps: list[tuple[float, float]] = []
        at = start_s
        while (took := _duration(duration_s, len(steps))) is not None:
            if not (took >= 0.0 and took + pause_s > 0.0):
                raise SyntheticJobError("duration_s", took, "seconds from 0, which with pause_s are above 0")
            if at + took > last_s:
                break
            steps.append((at, took))
            at += took + pause_s
        events = [
            Event(each, process, "pythontimeline", mode, mode, begin, took, {"pid": process, "step_num": str(number)})
            for each in self._chosen(node)
            for number, (begin, took) in enumerate(steps)
        ]
        return replace(self, events=(*self.events, *events))

    def with_event(
        self,
        phase: str,
        name: str,
        start_s: float,
        duration_s: float,
        *,
        node: str = "algo-1",
        process: int = 100,
        kind: FileKind = "pythontimeline",
        **args: object,
    ) -> "SyntheticJob":
        """Return the job with one more event of a process; ``phase`` and ``args`` are as the framework writes them."""
        self._check_node(node)
        if kind not in get_args(FileKind):
            raise SyntheticJobError("kind", kind, f"one of {get_args(FileKind)}")
        if not (start_s >= 0.0 and duration_s >= 0.0 and start_s + duration_s <= self.duration_s):
            expected = f"seconds within the job's {self.duration_s:g}"
            raise SyntheticJobError("start_s, duration_s", (start_s, duration_s), expected)
        event = Event(node, process, kind, phase, name, start_s, duration_s, args)
        return replace(self, events=(*self.events, event))

    def with_outage(self, node: str, *, start_s: float, end_s: float) -> "SyntheticJob":
        """Return the job with a time in which a node writes nothing, neither metrics nor events that end in it."""
        self._check_node(node)
        if not 0.0 <= start_s < end_s:
            raise SyntheticJobError("start_s, end_s", (start_s, end_s), "seconds since the start, in order")
        return replace(self, outages=(*self.outages, Outage(node, start_s, end_s)))

    def _chosen(self, node: str | None) -> tuple[str, ...]:
        self._check_node(node)
        return self.node_names if node is None else (node,)

    def _check_node(self, node: str | None) -> None:
        if node is not None and node not in self.node_names:
            raise SyntheticJobError("node", node, f"one of {', '.join(self.node_names)}")

    def _check_change(self, change: SeriesChange) -> None:
        if change.series not in HEALTHY:
            raise SyntheticJobError("series", change.series, f"one of {', '.join(HEALTHY)}")
        devices = self.devices(change.series)
        if change.device is not None and (not devices or not 0 <= change.device < devices):
            expected = f"a number from 0 to {devices - 1}" if devices else f"none: {change.series} is of the node"
            raise SyntheticJobError("device", change.device, expected)
        if not 0.0 <= change.start_s < change.end_s <= self.duration_s:
            expected = f"seconds since the start, in order, within the job's {self.duration_s:g}"
            raise SyntheticJobError("start_s, end_s", (change.start_s, change.end_s), expected)
        chosen_values(change, self.times_s)

    def devices(self, series: SeriesName) -> int:
        """Return how many devices have a series of their own; 0 of a series of the node."""
        if series in {"gpu_utilization", "gpu_memory"}:
            return self.gpus
        return self.cores if series in {"cpu", "io_wait"} else 0


def chosen_values(change: SeriesChange, times_s: FloatArray) -> tuple[NDArray[np.bool_], FloatArray]:
    """Return a change's snapshots and values: bool[T], float64[M]; raises SyntheticJobError."""
    chosen = (times_s >= change.start_s - 1e-9) & (times_s < change.end_s - 1e-9)
    given = change.values(times_s[chosen]) if callable(change.values) else change.values
    values = np.asarray(given, dtype=np.float64)
    count = int(np.count_nonzero(chosen))
    if values.shape not in ((), (count,)):
        expected = f"one, or {count} as there are snapshots from {change.start_s:g} s to {change.end_s:g} s"
        raise SyntheticJobError(f"values of {change.series}", f"an array of shape {values.shape}", expected)
    highest = math.inf if change.series == "network" else 100.0
    usable = np.isnan(values) | ((values >= 0.0) & (values <= highest) & np.isfinite(values))
    if not usable.all():
        wrong = float(values.flat[int(np.argmin(usable))])
        raise SyntheticJobError(f"values of {change.series}", wrong, f"numbers from 0 to {highest:g}, or NaN")
    return chosen, np.broadcast_to(values, (count,))


def _duration(given: float | Sequence[float] | Callable[[int], float], number: int) -> float | None:
    if callable(given):
        return float(given(number))
    if isinstance(given, Sequence):
        return float(given[number]) if number < len(given) else None
    return float(given)
