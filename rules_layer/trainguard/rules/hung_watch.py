"""Whether a node's GPUs have stopped working, by power and activity, sample by sample.

Source of the signature: kernels of NCCL poll while they wait for a peer, so that a GPU in a collective that never ends
is 100 % utilized, moves no memory, and draws little more power than an idle one.
"""

import math
from collections.abc import Mapping
from statistics import median

import msgspec
import numpy as np

from trainguard.rules.rule_inputs import NodeMinute
from trainguard.telemetry import devices as names
from trainguard.telemetry.snapshots import FloatArray

IDLE_PERCENT, BUSY_PERCENT = 10.0, 90.0
"""A GPU is idle below the first; from the second on it may wait in a kernel. Between them it works."""

MEMORY_PERCENT = 5.0
"""Work at low power, such as generating text, moves memory; a kernel that waits does not."""

STRAY_SHARE = 0.1
"""So many readings of a minute may show work without any: single readings of counters stray."""

CALM_BYTES = 10e6
"""Bytes a second of disks, or of the network: with more of them the job saves or loads something."""

WORK_MINUTES, LEAST_WORK_MINUTES = 15, 5
MOST_GPUS = 64


class WatchState(msgspec.Struct, array_like=True):
    """A node, up to epoch seconds ``at``.

    Attributes
    ----------
    power : dict of str to list of float
        Mean power of each GPU's newest minutes at work, watts.
    quiet_since : float or None
        Since when no GPU has worked, and no host of an idle one either, epoch seconds.
    paused_since : float or None
        Since when no GPU has worked, whatever the host did.
    longest_s : float
        The longest such time that ended: the job goes on after so long.
    waiting, idle : list of str
        The GPUs that wait in a kernel, and that are idle, as of the newest quiet minute.
    drawn : dict of str to float
        Their power in that minute, watts.
    minutes : int
        Minutes with samples of power.
    """

    at: float | None = None
    power: dict[str, list[float]] = msgspec.field(default_factory=dict)
    quiet_since: float | None = None
    paused_since: float | None = None
    longest_s: float = 0.0
    waiting: list[str] = msgspec.field(default_factory=list)
    idle: list[str] = msgspec.field(default_factory=list)
    drawn: dict[str, float] = msgspec.field(default_factory=dict)
    minutes: int = 0

    @property
    def known(self) -> dict[str, float]:
        """Power at work of the GPUs that have worked long enough to be judged, watts."""
        return {gpu: median(values) for gpu, values in self.power.items() if len(values) >= LEAST_WORK_MINUTES}

    @property
    def through(self) -> float:
        """Up to when the node is known, epoch seconds; 0 where nothing is."""
        return self.at or 0.0

    @property
    def quiet_s(self) -> float:
        """For how long the node has been quiet, seconds."""
        return 0.0 if self.quiet_since is None else self.through - self.quiet_since

    @property
    def paused_s(self) -> float:
        """For how long no GPU has worked, whatever the host did, seconds."""
        return 0.0 if self.paused_since is None else self.through - self.paused_since

    def fold(self, minute: NodeMinute, near_idle: float) -> None:
        """Take in one minute; ``near_idle`` is the share, 0 to 1, of the power at work that shows no work."""
        power = minute.devices.of(names.POWER)
        if not len(minute.snapshots) or not power:
            return
        self.at = float(minute.snapshots.times[-1])
        self.minutes += 1
        known = self.known
        look = _look_at(minute, known, near_idle)
        if look is None:
            self._note_work(minute, known)
            return
        if self.paused_since is not None and look.worked_until > self.paused_since:
            self.longest_s = max(self.longest_s, look.worked_from - self.paused_since)
            self.paused_since = self.quiet_since = None
        if look.is_quiet:
            begin = look.worked_until if math.isfinite(look.worked_until) else float(minute.snapshots.times[0])
            self.paused_since = begin if self.paused_since is None else self.paused_since
            self.quiet_since = begin if self.quiet_since is None else self.quiet_since
            self.waiting, self.idle, self.drawn = look.waiting, look.idle, look.drawn
            if look.idle and not _is_calm(minute, len(look.waiting)):
                self.quiet_since = self.at
        if self.paused_since is None:
            self._note_work(minute, {})

    def _note_work(self, minute: NodeMinute, known: Mapping[str, float]) -> None:
        """Add the power of GPUs that were busy throughout the minute; of those ``known`` nobody knows whether in work.

        One that waits for a GPU which has no samples any more looks busy, too.
        """
        power = minute.devices.of(names.POWER)
        for column, gpu in enumerate(minute.snapshots.gpu_names):
            sampled = _sampled(minute.snapshots.gpu_utilization[:, column])
            is_at_work = minute.started.any() and sampled.size and float(sampled.mean()) >= IDLE_PERCENT
            if is_at_work and gpu not in known and gpu in power and (gpu in self.power or len(self.power) < MOST_GPUS):
                newest = [*self.power.get(gpu, []), round(power[gpu].mean, 1)]
                self.power[gpu] = newest[-WORK_MINUTES:]


class _Look(msgspec.Struct, frozen=True):
    """A minute: from when until when a GPU worked, epoch seconds; infinite where none did."""

    worked_from: float
    worked_until: float
    is_quiet: bool
    waiting: list[str]
    idle: list[str]
    drawn: dict[str, float]


def _look_at(minute: NodeMinute, known: dict[str, float], near_idle: float) -> _Look | None:
    """Look for work in a minute; None where a GPU that has worked is not known well enough, or has no samples."""
    snapshots, power = minute.snapshots, minute.devices.of(names.POWER)
    worked: list[float] = []
    waiting: list[str] = []
    idle: list[str] = []
    drawn: dict[str, float] = {}
    for column, gpu in enumerate(snapshots.gpu_names):
        if not minute.view.ever_active[column]:
            continue
        utilization, memory = snapshots.gpu_utilization[:, column], snapshots.gpu_memory[:, column]
        if gpu not in known or gpu not in power or not _sampled(utilization).size:
            return None
        between = (utilization >= IDLE_PERCENT) & (utilization < BUSY_PERCENT)
        moves = (utilization >= BUSY_PERCENT) & (memory > MEMORY_PERCENT)
        series = power[gpu]
        high = series.values > near_idle * known[gpu]
        for times, works in ((snapshots.times, between | moves), (series.times, high)):
            if np.count_nonzero(works) > STRAY_SHARE * works.size:
                worked += times[works].tolist()
        newest = float(_sampled(utilization)[-1])
        (idle if newest < IDLE_PERCENT else waiting).append(gpu)
        drawn[gpu] = round(float(series.values[-1]), 1)
    if not drawn:
        return None
    until = max(worked, default=-math.inf)
    return _Look(min(worked, default=math.inf), until, until < float(snapshots.times[-1]), waiting, idle, drawn)


def _sampled(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


def _is_calm(minute: NodeMinute, waiting: int) -> bool:
    """Tell whether the host of an idle GPU saves and loads nothing, and computes nothing for it.

    A process whose GPU waits in a kernel keeps one core full, or none: any other number of full cores is work.
    """
    disks = (minute.devices.of_node(names.DISK_READ), minute.devices.of_node(names.DISK_WRITE))
    network = _sampled(minute.snapshots.network)
    traffic = [each.mean for each in disks if each is not None] + ([float(network.mean())] if network.size else [])
    if any(each > CALM_BYTES for each in traffic):
        return False
    full = _sampled(minute.snapshots.cores_full)
    if not full.size:
        return True
    mean = float(full.mean())
    return mean <= 0.5 or abs(mean - waiting) <= 0.5
