"""State of HungJob: the newest step of each training process, and whether a node's GPUs have stopped working.

Work is seen by power and activity, sample by sample. Kernels of NCCL poll while they wait for a peer: a GPU in a
collective that never ends is 100 % utilized, moves no memory, and draws little more power than an idle one.
"""

import re
from collections.abc import Mapping, Set
from statistics import median

import msgspec
import numpy as np

from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.snapshots import BoolArray, DeviceSeries, FloatArray
from trainguard.rules.rule_inputs import NodeMinute
from trainguard.rules.sample_statistics import sampled

MOST_PROCESSES = 256
LONGEST_NUMBER = 20
PACE_STEPS = 64
# A process ends so long before the last sample, at most.
CUT_SLACK_S = 5.0
# What a process that hangs may not have written yet: of TrainGuard's recorder, and of other writers, whose files take
# events once a minute.
UNWRITTEN_US, UNWRITTEN_ELSEWHERE_US = 10_000, 60_000_000

_RECORDED = re.compile(r"-rank\d+\Z")


class ProcessProgress(msgspec.Struct, array_like=True):
    """The newest step of a process: when it ended, epoch microseconds, its number, and how many there were.

    ``pace_us`` is from one step's end to the next's, 0 where unknown. ``begun_us`` is when the newest step began, and
    ``before_us`` when the one before it ended.
    """

    end_us: int
    number: str
    steps: int
    pace_us: int = 0
    mode: str = ""
    begun_us: int = 0
    before_us: int = 0

    def ended_by(self, since: float, through: float) -> float:
        """Return when its last step ended, epoch seconds, where its GPU spun from ``since`` to ``through``.

        A step that lasted all that time, up to the process's own end, did not end: the step before it was the last.
        """
        is_cut = self.before_us and self.begun_us <= 1e6 * since and self.end_us >= 1e6 * (through - CUT_SLACK_S)
        return (self.before_us if is_cut else self.end_us) / 1e6

    @property
    def reached(self) -> int | None:
        """The number as one that can be compared."""
        return int(self.number) if self.number.isdecimal() and self.number.isascii() else None


class ProgressState(msgspec.Struct, array_like=True):
    """Processes by name; of more than there is room for, the first by name."""

    processes: dict[str, ProcessProgress] = msgspec.field(default_factory=dict)

    def fold(self, events: FrameworkEvents) -> None:
        for batch in events.steps:
            if not batch.numbers:
                continue
            ends = batch.starts_us + batch.durations_us
            newest = int(ends.argmax())
            was = self.processes.get(batch.process)
            steps = len(batch.numbers) + (was.steps if was else 0)
            if was is not None and was.end_us > int(ends[newest]):
                was.steps, was.before_us = steps, max(was.before_us, int(ends[newest]))
                continue
            number = batch.numbers[newest][:LONGEST_NUMBER]
            paces = np.diff(np.sort(ends)[-PACE_STEPS:])
            pace_us = int(np.median(paces)) if paces.size else 0
            pace_us = pace_us or (was.pace_us if was is not None and was.mode == batch.mode else 0)
            before_us = max(int(np.delete(ends, newest).max(initial=0)), 0 if was is None else was.end_us)
            self.processes[batch.process] = ProcessProgress(
                int(ends[newest]), number, steps, pace_us, batch.mode, int(batch.starts_us[newest]), before_us
            )
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])


def behind(processes: dict[str, ProcessProgress]) -> list[str]:
    """Return the processes that are certainly not as far as the furthest, the least far first.

    Only steps of one mode compare, and the lead must exceed the steps that a hanging process may not have written yet.
    """
    if len(processes) < 2 or len({each.mode for each in processes.values()}) > 1:
        return []
    reached = {name: each.reached for name, each in processes.items()}
    numbers = [number for number in reached.values() if number is not None]
    if len(numbers) != len(reached):
        return []
    furthest = max(numbers)
    late = [
        (number, name)
        for name, number in reached.items()
        if number is not None and furthest - number > _unwritten(name, processes[name], furthest)
    ]
    return [name for _, name in sorted(late)]


def _unwritten(name: str, progress: ProcessProgress, most: int) -> int:
    if progress.pace_us <= 0:
        return most
    unwritten_us = UNWRITTEN_US if _RECORDED.search(name) else UNWRITTEN_ELSEWHERE_US
    return unwritten_us // progress.pace_us


# Utilization of a GPU whose kernel does not end, at least; below the second its memory, or its SMs, do nothing.
SPINS_PERCENT, STILL_PERCENT = 99.0, 1.0
# Of its power limit a GPU draws more at work; it tells for one that has not worked for long enough to be known.
SHARE_OF_LIMIT = 0.4
# Readings of a kernel that only spins differ from their median by no larger share of it.
FLAT = 0.05

SHARE = 0.9


# From when to when a GPU has spun, epoch seconds.
Spin = tuple[float, float]


def spins_of(minute: NodeMinute, known: dict[str, float], near_idle: float, *, spun: bool) -> dict[str, Spin]:
    """Return since when each once active GPU spins that does so at the minute's end; ``known`` is power at work, watts.

    ``near_idle`` is the share, 0 to 1, of the power at work that shows no work; ``spun`` says that all did a minute
    before.
    """
    found = {}
    limits = minute.devices.of(names.POWER_LIMIT)
    for column, gpu in enumerate(minute.snapshots.gpu_names):
        if not minute.view.ever_active[column] or gpu not in minute.devices.of(names.POWER):
            continue
        limit = limits.get(gpu)
        most = near_idle * known[gpu] if gpu in known else None if limit is None else SHARE_OF_LIMIT * limit.last
        spin = None if most is None else _spin(minute, column, spun=spun)
        if spin is not None and most is not None and _draws_little(minute, gpu, spin[0], most):
            found[gpu] = spin
    return found


def _spin(minute: NodeMinute, column: int, *, spun: bool) -> Spin | None:
    """Return since when a GPU has been busy without moving memory, up to the minute's end; None where it is not.

    Of one that ``spun`` in the minute before, a few readings at this one's beginning are strays as well.
    """
    snapshots = minute.snapshots
    utilization, memory = snapshots.gpu_utilization[:, column], snapshots.gpu_memory[:, column]
    seen = ~np.isnan(utilization)
    spins: BoolArray = ((utilization >= SPINS_PERCENT) & (memory < STILL_PERCENT))[seen]
    if not spins.size:
        return None
    shares = np.cumsum(spins[::-1])[::-1] / np.arange(spins.size, 0, -1)
    begins = np.flatnonzero((spins | spun) & (shares >= SHARE))
    times = snapshots.times[seen]
    return (float(times[begins[0]]), float(times[np.flatnonzero(spins)[-1]])) if begins.size else None


def _draws_little(minute: NodeMinute, gpu: str, since: float, most: float) -> bool:
    """Tell whether a GPU drew at most so many watts since then, and no multiprocessor, or no change, shows work."""
    power, activity = minute.devices.of(names.POWER)[gpu], _activity(minute, gpu, since)
    drawn = power.values[power.times >= since]
    if not drawn.size or np.mean(drawn <= most) < SHARE:
        return False
    if activity.size:
        return bool(np.mean(activity < STILL_PERCENT) >= SHARE)
    middle = float(np.median(drawn))
    return bool(np.mean(np.abs(drawn - middle) <= FLAT * middle) >= SHARE)


def _activity(minute: NodeMinute, gpu: str, since: float) -> FloatArray:
    """Return the SM activity since then: each reading is the mean of the time from the one before it on."""
    series = minute.devices.of(names.SM_ACTIVITY).get(gpu)
    if series is None:
        return np.zeros(0)
    spun_throughout = since <= float(minute.snapshots.times[0])
    before = np.concatenate([[since if spun_throughout else -np.inf], series.times[:-1]])
    return series.values[(before >= since) & (series.times >= since)]


IDLE_PERCENT, BUSY_PERCENT = 10.0, 90.0
# Work at low power, such as generating text, moves memory; a kernel that waits does not.
MEMORY_PERCENT = 5.0
# So many readings of a minute may show work without any: single readings of counters stray.
STRAY_SHARE = 0.1
# Bytes a second of disks, or of the network: with more of them the job saves or loads something.
CALM_BYTES = 10e6
# A process that was killed while its GPU spun leaves samples of an idle GPU up to the end of the job, no more.
TAIL_S = 10.0

WORK_MINUTES, LEAST_WORK_MINUTES = 15, 5
MOST_GPUS = 64


class WatchState(msgspec.Struct, array_like=True):
    """A node, up to epoch seconds ``at``; power in watts, times in epoch seconds.

    ``power`` is of each GPU's newest minutes at work. No GPU has worked since ``paused_since``, and no host of an idle
    one either since ``quiet_since``; ``longest_s`` is the longest such time that ended. ``waiting`` and ``idle`` are as
    of the newest quiet minute, ``drawn`` their power in it. From ``spinning_since`` to ``spinning_through`` each once
    active GPU only spun.
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
    spinning_since: float | None = None
    limits: dict[str, float] = msgspec.field(default_factory=dict)
    spinning_through: float | None = None

    @property
    def spins(self) -> bool:
        return self.spinning_through is not None and self.through - self.spinning_through <= TAIL_S

    @property
    def can_judge(self) -> bool:
        """Whether work differs from waiting: power at work is known, or all GPUs spin."""
        return bool(self.known) or self.spinning_since is not None

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
        return 0.0 if self.quiet_since is None else self.through - self.quiet_since

    @property
    def paused_s(self) -> float:
        return 0.0 if self.paused_since is None else self.through - self.paused_since

    def fold(self, minute: NodeMinute, near_idle: float) -> None:
        """Take in one minute; ``near_idle`` is the share, 0 to 1, of the power at work that shows no work."""
        power = minute.devices.of(names.POWER)
        if not len(minute.snapshots) or not power:
            return
        spun = self.spins
        self.at = float(minute.snapshots.times[-1])
        self.minutes += 1
        self._note_limits(minute)
        known = self.known
        spinning = spins_of(minute, known, near_idle, spun=spun)
        before = {} if self.spinning_since is None else self.drawn
        spins = {
            gpu: spin
            for gpu, spin in spinning.items()
            if gpu not in before or abs(power[gpu].last - before[gpu]) <= FLAT * before[gpu]
        }
        if not spins and self.spins and not (minute.snapshots.gpu_utilization >= IDLE_PERCENT).any():
            return  # the process was killed: a few samples are left
        look = _look_at(minute, known, near_idle, spins)
        if look is None:
            if not known:
                self._go_on()
            self._note_work(minute, known.keys() | spins.keys())
            return
        worked = look[0]
        if self.paused_since is not None and worked and max(worked) > self.paused_since:
            if known:
                self.longest_s = max(self.longest_s, min(worked) - self.paused_since)
            self._go_on()
        if not worked or max(worked) < self.at:
            self._stand_still(minute, look, spins)
        if self.paused_since is None:
            self._note_work(minute, spins.keys())

    def _stand_still(self, minute: NodeMinute, look: "Look", spins: Mapping[str, Spin]) -> None:
        first, at = float(minute.snapshots.times[0]), float(minute.snapshots.times[-1])
        worked, self.waiting, self.idle, self.drawn = look
        begin = max(worked, default=first)
        self.paused_since = begin if self.paused_since is None else self.paused_since
        self.quiet_since = begin if self.quiet_since is None else self.quiet_since
        is_calm = _is_calm(minute, len(self.waiting))
        # Beside GPUs that never worked, those at work before the first step may wait for one that loads data.
        if not is_calm and (self.idle or (not self.known and len(self.drawn) < len(minute.snapshots.gpu_names))):
            self.quiet_since = at
        if not is_calm or spins.keys() < self.drawn.keys():
            self.spinning_since = self.spinning_through = None
            return
        since = max(since for since, _ in spins.values())
        self.spinning_since = since if self.spinning_since is None or since > first else self.spinning_since
        self.spinning_through = min(through for _, through in spins.values())

    def _go_on(self) -> None:
        self.paused_since = self.quiet_since = self.spinning_since = self.spinning_through = None

    def _note_limits(self, minute: NodeMinute) -> None:
        for gpu, series in minute.devices.of(names.POWER_LIMIT).items():
            if gpu in self.limits or len(self.limits) < MOST_GPUS:
                self.limits[gpu] = round(series.last, 1)

    def _note_work(self, minute: NodeMinute, uncertain: Set[str]) -> None:
        """Add the power of GPUs that were busy throughout the minute; not of the ``uncertain``, which may only wait."""
        power = minute.devices.of(names.POWER)
        for column, gpu in enumerate(minute.snapshots.gpu_names):
            readings = sampled(minute.snapshots.gpu_utilization[:, column])
            is_at_work = minute.started.any() and readings.size and float(readings.mean()) >= IDLE_PERCENT
            if (
                is_at_work
                and gpu not in uncertain
                and gpu in power
                and (gpu in self.power or len(self.power) < MOST_GPUS)
            ):
                newest = [*self.power.get(gpu, []), round(power[gpu].mean, 1)]
                self.power[gpu] = newest[-WORK_MINUTES:]


# A minute: when GPUs worked, epoch seconds; which wait, and which are idle; what each draws, watts.
Look = tuple[list[float], list[str], list[str], dict[str, float]]


def _look_at(minute: NodeMinute, known: dict[str, float], near_idle: float, spins: Mapping[str, Spin]) -> Look | None:
    """Look for work in a minute; None where a GPU that has worked is not known well enough, or has no samples."""
    snapshots, power = minute.snapshots, minute.devices.of(names.POWER)
    worked: list[float] = []
    waiting: list[str] = []
    idle: list[str] = []
    drawn: dict[str, float] = {}
    for column, gpu in enumerate(snapshots.gpu_names):
        if not minute.view.ever_active[column]:
            continue
        utilization = snapshots.gpu_utilization[:, column]
        if not (gpu in known or gpu in spins) or gpu not in power or not sampled(utilization).size:
            return None
        series = power[gpu]
        if gpu in known:
            worked += _work_of(minute, column, series, near_idle * known[gpu])
        else:
            worked += snapshots.times[snapshots.times < spins[gpu][0]].tolist()
        is_idle = gpu not in spins and float(sampled(utilization)[-1]) < IDLE_PERCENT
        (idle if is_idle else waiting).append(gpu)
        drawn[gpu] = round(float(series.values[-1]), 1)
    return (worked, waiting, idle, drawn) if drawn else None


def _work_of(minute: NodeMinute, column: int, power: DeviceSeries, least: float) -> list[float]:
    """Return the times at which a GPU shows work, by utilization and memory, or by more than ``least`` watts."""
    snapshots = minute.snapshots
    utilization, memory = snapshots.gpu_utilization[:, column], snapshots.gpu_memory[:, column]
    between = (utilization >= IDLE_PERCENT) & (utilization < BUSY_PERCENT)
    moves = (utilization >= BUSY_PERCENT) & (memory > MEMORY_PERCENT)
    found: list[float] = []
    for times, works in ((snapshots.times, between | moves), (power.times, power.values > least)):
        if np.count_nonzero(works) > STRAY_SHARE * works.size:
            found += times[works].tolist()
    return found


def _is_calm(minute: NodeMinute, waiting: int) -> bool:
    """Tell whether the host of an idle GPU saves and loads nothing, and computes nothing for it.

    A process whose GPU waits in a kernel keeps one core full, or none: any other number of full cores is work.
    """
    disks = (minute.devices.of_node(names.DISK_READ), minute.devices.of_node(names.DISK_WRITE))
    network = sampled(minute.snapshots.network)
    traffic = [each.mean for each in disks if each is not None] + ([float(network.mean())] if network.size else [])
    if any(each > CALM_BYTES for each in traffic):
        return False
    full = sampled(minute.snapshots.cores_full)
    if not full.size:
        return True
    mean = float(full.mean())
    return mean <= 0.5 or abs(mean - waiting) <= 0.5
