"""How a training job is described: what each GPU and core does over time, what it writes, and what is wrong with it.

A description says what happens. `truth` says what a good engineer would call it; the two meet in a `Job`.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.verdicts.labelled.machines import Machine
from tests.verdicts.labelled.truth import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a node does over a stretch of time.

    Attributes
    ----------
    busy : float
        GPU utilization while the GPU computes, percent; ``busy_to`` is where it has moved at the stretch's end.
    wait : float
        Share, 0 to 1, of each cycle of about ``cycle_s`` seconds in which the GPUs wait, at ``idle`` percent.
    spread, drift : float
        Standard deviations of the noise from sample to sample, and of the noise over minutes; points.
    memory : float
        GPU memory counter as a share of utilization.
    cores, process : float
        Mean load of an ordinary core, and of the core on which a GPU's process runs, percent.
    full_cores, io_cores : float
        Shares of the cores that are full all the time, and that wait for a disk ``io_wait`` percent of their time.
    received, read : float
        Bytes a second from the network and from disks.
    effort, activity : float
        Share, 0 to 1, of the power at work that a GPU draws while it computes, and its SM activity then, percent; only
        jobs whose series are ``collected`` show them.
    """

    busy: float = 93.0
    busy_to: float | None = None
    wait: float = 0.0
    cycle_s: float = 3.0
    idle: float = 0.5
    spread: float = 3.0
    drift: float = 1.5
    memory: float = 0.5
    cores: float = 28.0
    process: float = 68.0
    full_cores: float = 0.0
    io_cores: float = 0.0
    io_wait: float = 75.0
    received: float = 3e5
    read: float = 8e6
    effort: float = 1.0
    activity: float = 86.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A load over a stretch of the job, minutes since its start; later pieces replace earlier ones.

    ``nodes`` (from 1) and ``gpus`` (from 0) limit it; a piece limited to GPUs leaves the cores alone. With
    ``every_min`` it comes back, each time for ``for_min``.
    """

    load: Load
    start_min: float = 0.0
    end_min: float | None = None
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    every_min: float | None = None
    for_min: float = 0.0

    def spans(self, minutes: float) -> Iterator[tuple[float, float]]:
        """Yield the stretches in seconds since the job's start."""
        end = minutes if self.end_min is None else self.end_min
        if self.every_min is None:
            yield 60.0 * self.start_min, 60.0 * end
            return
        at = self.start_min
        while at < end:
            yield 60.0 * at, 60.0 * min(end, at + self.for_min)
            at += self.every_min


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What is added to GPUs' memory counter: ``points`` in all, from ``start_min`` to ``end_min``.

    ``line`` adds them evenly, ``stairs`` in ``stairs`` equal jumps, ``plateau`` ever more slowly, so that nothing is
    added over the last two thirds of the stretch. ``sawtooth`` adds them ``stairs`` times and gives them back.
    """

    points: float
    start_min: float
    end_min: float
    shape: Literal["line", "stairs", "plateau", "sawtooth"] = "line"
    stairs: int = 1
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Framework events: training steps of ``step_s`` with ``gap_s`` between them, from ``first_min`` on.

    Every ``slow_every``-th step takes ``slow_s`` while the GPUs wait. With ``workers`` each step begins with a fetch of
    ``fetch_s`` from as many data loader processes. There are none after ``last_min``; with ``last_goes_on`` one begins
    there and lasts to the job's end. With ``host_alone`` slow steps are so on the host, while the GPUs work on.

    With ``ranks`` each GPU has a process of its own, as the collector's recorder writes them, and a forward pass of
    ``forward_s`` in each step; ``slow_ranks`` take so much longer for it (rank from 0, factor, since minute).
    """

    first_min: float = 2.0
    step_s: float = 0.6
    gap_s: float = 0.02
    slow_every: int = 0
    slow_s: float = 0.0
    workers: int = 0
    fetch_s: float = 0.01
    last_min: float | None = None
    last_goes_on: bool = False
    host_alone: bool = False
    ranks: bool = False
    forward_s: float = 0.2
    slow_ranks: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A series of a GPU that has another value from ``start_min`` to ``end_min`` than a healthy one's.

    None for a value is no reading at all. ``gpus`` and ``nodes`` limit it, as in a piece.
    """

    name: str
    value: float | None
    start_min: float = 0.0
    end_min: float | None = None
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What trainguard-collector measures beside the managed series.

    Attributes
    ----------
    idle_w, work_w : float
        Power of an idle GPU, and of one that computes with full effort, watts.
    total_gb, used_gb : float
        Memory of a GPU, and what of it is in use from the training's start on, gigabytes.
    held : tuple of Growth
        What is added to it; points are gigabytes.
    readings : tuple of Reading
        What is not as on a healthy GPU.
    mig : bool
        Each GPU is partitioned: it has no utilization, and one instance with its memory and its SM activity.
    """

    idle_w: float = 70.0
    work_w: float = 420.0
    total_gb: float = 80.0
    used_gb: float = 48.0
    held: tuple[Growth, ...] = ()
    readings: tuple[Reading, ...] = ()
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaws:
    """What is wrong with the samples themselves.

    ``missing`` is the share of snapshots that were never written, ``zeros`` the share of GPU readings that are 0 by
    chance, ``clock_jump`` (minute, seconds) sets the clock, ``gaps`` are stretches in minutes without any sample.
    ``cut`` cuts the newest file within a line, and the file of the minute ``damaged_min`` holds nothing but garbage.
    """

    missing: float = 0.0
    zeros: float = 0.0
    clock_jump: tuple[float, float] | None = None
    gaps: tuple[tuple[float, float], ...] = ()
    cut: bool = False
    damaged_min: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A labelled job; without ``faults`` it is healthy.

    ``averaging`` counters show the mean since the last sample, others what a GPU did just now. ``late_nodes`` are nodes
    that begin to write so many minutes after the job's start. ``collected`` is what is measured beside the managed
    series, None of a managed profile. A job with ``every_interval`` is also sampled at all of the profiler's intervals.
    ``start_min`` is how many minutes after a full ten minutes of the clock it starts.
    """

    name: str
    group: str
    about: str
    machine: Machine
    minutes: float
    pieces: tuple[Piece, ...]
    interval_s: float = 0.5
    nodes: int = 1
    growth: tuple[Growth, ...] = ()
    steps: Steps | None = None
    averaging: bool = False
    late_nodes: tuple[tuple[int, float], ...] = ()
    collected: Collected | None = None
    flaws: Flaws = field(default_factory=Flaws)
    faults: tuple[Fault, ...] = ()
    every_interval: bool = False
    start_min: float = 0.0

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""
        return zlib.crc32(self.name.encode())

    @property
    def paid_min(self) -> float:
        """Minutes paid for, all nodes together."""
        return self.minutes * self.nodes

    def usd(self, instance_minutes: float) -> float:
        """Return what so many minutes of one instance cost."""
        return instance_minutes / 60.0 * self.machine.usd_per_hour
