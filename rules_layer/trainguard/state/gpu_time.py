"""A node's GPUs over the whole job, in few numbers: seconds sampled, busy and idle, and what its idle time is.

A sample stands for the time until the next one; over twice the usual distance is a gap, and the sample then stands for
the usual one. What is usual is known two samples later.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import SM_ACTIVITY, BoolArray, DeviceSamples, FloatArray, IntArray
from trainguard.state.time_grid import MOST_STEPS, GpuLevels, TimeGrid, by_unit

ACTIVE_PERCENT = 10.0
# A shorter time between two samples is the sampler's jitter, and counts as sampled.
MISSING_S = 5.0

# Each GPU's sums, GPU-milliseconds.
SAMPLED, BUSY, IDLE = range(3)

NOTHING_PERCENT = 1.0
HUNDREDTHS = 100
_GRID_SAMPLED, _GRID_IDLE = range(2)
_GRID_COLUMNS = 2
_MISSING = -1
_GAP = 2.1
_LONGEST_MS = 2 * 3_600_000
_NEWEST = 2


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How busy each of G GPUs was from ``start`` to ``end``, epoch seconds: ``means`` is float64[G], percent.

    Samples are weighted by the time for which they stand; NaN without one. Over K steps of the grid a mean is within
    0.5 / K points of the truth (`GpuLevels.mean`).
    """

    start: float
    end: float
    means: FloatArray


class Mark(msgspec.Struct, array_like=True):
    """What all GPUs together had done by ``at_ms``, epoch milliseconds: sampled, busy and idle GPU-milliseconds."""

    at_ms: int
    sums: list[int]

    def __post_init__(self) -> None:
        if len(self.sums) != IDLE + 1:
            raise ValueError(f"{len(self.sums)} sums at a mark, expected {IDLE + 1}")


class GpuTime(msgspec.Struct, array_like=True):
    """The time of a node's G GPUs over the job, step by step and GPU by GPU.

    grid, gpus: GPU-milliseconds sampled and idle (below 1 %) of all GPUs by step; sampled, busy and idle of each over
        the job.
    first_ms, last_ms: When the sampled time begins, and ends so far, epoch milliseconds; 0 without samples.
    times_ms, percents: The newest samples, whose time is not known yet: in hundredths of a percent by GPU, -1 for none.
    usual_ms: The longest of the newest distances that were no gap; it fades with each sample.
    start, end: At the beginning of the work, as far as known, and at the end of the last sample with an active GPU.
    sm_percents, sm_samples: Sum and number of all samples of SM activity, percent.
    rests: Each GPU's busy time beyond its sum, 1/10,000 ms: short samples round to nothing.
    """

    grid: TimeGrid = msgspec.field(default_factory=TimeGrid)
    levels: GpuLevels = msgspec.field(default_factory=GpuLevels)
    gpus: list[list[int]] = msgspec.field(default_factory=list)
    first_ms: int = 0
    last_ms: int = 0
    times_ms: list[int] = msgspec.field(default_factory=list)
    percents: list[list[int]] = msgspec.field(default_factory=list)
    usual_ms: int = 0
    start: Mark | None = None
    end: Mark | None = None
    starts_active: bool = False
    sm_percents: int = 0
    sm_samples: int = 0
    rests: list[int] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.gpus}
        if widths - {IDLE + 1} or len(self.times_ms) != len(self.percents) or len(self.times_ms) > _NEWEST:
            raise ValueError("the time of GPUs has parts of different lengths")
        rows = [*self.percents, self.rests]
        if any(len(row) > len(self.gpus) for row in rows) or self.levels.gpus != len(self.gpus):
            raise ValueError("the time of GPUs has samples of more GPUs than there are")
        steps = {len(column) for column in self.grid.columns} or {0}
        if len(self.grid.columns) not in {0, _GRID_COLUMNS} or steps != {self.levels.steps + bool(self.grid.columns)}:
            raise ValueError("the time of GPUs has levels of other steps than its grid")

    def add(
        self, times: FloatArray, utilization: FloatArray, *, interval_s: float, working_since: float | None = None
    ) -> None:
        """Take in snapshots: ``times`` float64[T] epoch seconds, ``utilization`` float64[T, G] percent, NaN for none.

        For a missing sample the next one stands. ``interval_s`` is the usual distance; ``working_since`` is where the
        work begins, None while unknown.
        """
        self._widen(utilization.shape[1])
        if not self.gpus:
            return
        times_ms, values = self._fresh(times, utilization)
        before = self._totals()
        if working_since is not None and (self.start is None or self.start.at_ms != _milliseconds(working_since)):
            self.start = Mark(_milliseconds(working_since), before)
        elif working_since is None:
            self.start = None
        count = max(len(times_ms) - _NEWEST, 0)
        distances = np.diff(times_ms)
        covered, usual = _covered(distances, self.usual_ms, round(interval_s * 1_000))
        self._settle(times_ms[:count], covered[:count], _without_holes(values)[:count])
        if count:
            self.usual_ms = usual[count - 1]
        self.times_ms, self.percents = times_ms[count:].tolist(), values[count:].tolist()

    def add_activity(self, devices: DeviceSamples) -> None:
        for series in devices.of(SM_ACTIVITY).values():
            self.sm_percents += round(float(series.values.sum()))
            self.sm_samples += int(series.values.size)

    def finished(self, interval_s: float) -> "GpuTime":
        """Return a copy in which the newest samples have the time that is known so far, the last one an interval."""
        done = copy.copy(self)
        done.grid, done.levels, done.gpus = copy.copy(self.grid), copy.copy(self.levels), list(self.gpus)
        done.grid.columns = list(self.grid.columns)
        times_ms = np.array(self.times_ms, dtype=np.int64)
        values = np.array([_filled(row, len(self.gpus)) for row in self.percents], dtype=np.int64)
        interval_ms = round(interval_s * 1_000)
        known, _ = _covered(times_ms[1:] - times_ms[:-1], self.usual_ms, interval_ms)
        covered = np.array([*known, interval_ms][: times_ms.size], dtype=np.int64)
        done._settle(times_ms, covered, _without_holes(values.reshape(times_ms.size, len(self.gpus))))
        done.times_ms, done.percents = [], []
        return done

    def sums(self) -> FloatArray:
        """Return GPU-seconds sampled, busy and idle in each step of the grid, float64[3, S]; the total is exact."""
        sampled, idle = self.grid.column(_GRID_SAMPLED), self.grid.column(_GRID_IDLE)
        busy = np.zeros(sampled.size)
        if sampled.size:
            busy[:-1] = sampled[:-1] * self.levels.closed_means() / 100.0
            busy[-1] = float(sum(self.levels.open[1]))
            closed = self._totals()[BUSY] - busy[-1]
            spread = busy[:-1] if busy[:-1].any() else sampled[:-1]
            busy[:-1] = spread * closed / max(float(spread.sum()), 1.0)
        return np.stack([sampled, np.minimum(busy, sampled - idle), idle]) / 1_000

    def between(self, begin: float, end: float, until: float) -> GpuUse | None:
        """Return each GPU's use from ``begin`` to ``end`` by whole steps, samples up to ``until``; None without any."""
        edges = self.grid.edges if self.grid.columns else np.zeros(1)
        starts = np.maximum(edges[:-1], self.first_ms / 1_000)
        ends = np.minimum(np.minimum(edges[1:], self.last_ms / 1_000), until)
        sampled = self.grid.column(_GRID_SAMPLED).astype(np.int64)
        middles, used = (starts + ends) / 2.0, sampled > 0
        chosen = np.flatnonzero((begin <= middles) & (middles <= end) & used)
        if not chosen.size:
            chosen = np.flatnonzero((starts <= begin) & (end <= ends) & used)
        if not chosen.size:
            return None
        return GpuUse(float(starts[chosen[0]]), float(ends[chosen[-1]]), self.levels.mean(chosen, sampled))

    def _widen(self, gpus: int) -> None:
        if gpus > len(self.gpus):
            self.gpus += [[0] * (IDLE + 1) for _ in range(gpus - len(self.gpus))]
            self.levels.extend(gpus)

    def _fresh(self, times: FloatArray, utilization: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the samples whose time is not known yet: times, int64[N], and hundredths of a percent, int64[N, G]."""
        gpus = len(self.gpus)
        held = np.array([_filled(row, gpus) for row in self.percents], dtype=np.int64).reshape(-1, gpus)
        held_ms = np.array(self.times_ms, dtype=np.int64)
        percents = np.full((len(times), gpus), np.nan)
        percents[:, : utilization.shape[1]] = utilization
        values = np.where(np.isnan(percents), _MISSING, np.rint(HUNDREDTHS * percents)).astype(np.int64)
        times_ms = np.rint(times * 1_000.0).astype(np.int64)
        newest = np.concatenate([held_ms[-1:], times_ms]) if held_ms.size else np.concatenate([[-1], times_ms])
        used = (values >= 0).any(axis=1) & (times_ms > np.maximum.accumulate(newest)[:-1])
        times_ms, values = np.concatenate([held_ms, times_ms[used]]), np.concatenate([held, values[used]])
        return times_ms, values

    def _totals(self) -> list[int]:
        return [sum(gpu[column] for gpu in self.gpus) for column in range(IDLE + 1)]

    def _settle(self, times_ms: IntArray, covered_ms: IntArray, values: IntArray) -> None:
        if not times_ms.size:
            return
        active: BoolArray = np.logical_or.reduce(values >= ACTIVE_PERCENT * HUNDREDTHS, axis=1)
        if not self.first_ms:
            self.first_ms, self.starts_active = int(times_ms[0]), bool(active[0])
        self.last_ms = int(times_ms[-1] + covered_ms[-1])
        before = self._totals()
        index, units, begins, lengths = by_unit(times_ms, times_ms + covered_ms)
        parts, self.rests = _parts(values[index], lengths, _filled(self.rests, len(self.gpus), 0))
        sums = parts.sum(axis=2)
        self._note(units, parts)
        self.gpus = (np.array(self.gpus) + parts.sum(axis=1).T).tolist()
        if self.start is not None and begins.size and begins[0] < self.start.at_ms:
            earlier = sums[:, begins < self.start.at_ms].sum(axis=1).tolist()
            self.start = Mark(self.start.at_ms, _added(self.start.sums, earlier))
        if active.any():
            last = int(np.flatnonzero(active)[-1])
            so_far = sums[:, index <= last].sum(axis=1).tolist()
            end_ms = int(times_ms[last] + covered_ms[last])
            self.end = Mark(end_ms, _added(before, so_far))

    def _note(self, units: IntArray, parts: IntArray) -> None:
        """Add each GPU's work, int64[3, N, G], in ordered units of 15 s, int64[N]."""
        begin, grid = 0, self.grid
        while begin < units.size:
            first = int(units[begin])
            while grid.reach(first, first) > MOST_STEPS:
                self.levels.widen(grid.column(_GRID_SAMPLED).astype(np.int64), odd=bool(grid.first % 2))
                grid.widen()
            step = first // grid.width
            end = int(units.searchsorted((step + 1) * grid.width))
            sampled, busy, idle = parts[:, begin:end].sum(axis=1).tolist()
            grid.put(step, [sum(sampled), sum(idle)])
            self.levels.add(step - grid.first, sampled, busy)
            begin = end


def _without_holes(values: IntArray) -> IntArray:
    """Return samples, int64[N, G], with the next one of a GPU where one is missing: samplers may take turns."""
    filled = values.copy()
    filled[:-1] = np.where(values[:-1] < 0, values[1:], values[:-1])
    return filled


def _parts(values: IntArray, lengths: IntArray, rests: list[int]) -> tuple[IntArray, list[int]]:
    """Return GPU-milliseconds sampled, busy and idle of N pieces, int64[3, N, G], and each GPU's new rest."""
    whole = 100 * HUNDREDTHS
    so_far = np.empty((len(values) + 1, len(rests)), dtype=np.int64)
    so_far[0] = rests
    so_far[1:] = np.maximum(values, 0) * lengths[:, None]
    so_far = so_far.cumsum(axis=0)
    counted = (so_far + whole // 2) // whole
    parts = np.empty((3, *values.shape), dtype=np.int64)
    parts[SAMPLED] = (values >= 0) * lengths[:, None]
    parts[BUSY] = counted[1:] - counted[:-1]
    is_idle = (values >= 0) & (values < NOTHING_PERCENT * HUNDREDTHS)
    parts[IDLE] = is_idle * (parts[SAMPLED] - parts[BUSY])
    left: list[int] = (so_far[-1] - whole * counted[-1]).tolist()
    return parts, left


def _covered(distances: IntArray, usual: int, interval: int) -> tuple[IntArray, list[int]]:
    """Return for how long samples stand that are ``distances``, int64[N] ms, before the next, and the usual."""
    covered, usuals = [], []
    following = [*distances[1:].tolist(), 0]
    for distance, later in zip(distances.tolist(), following, strict=False):
        limit = max(_GAP * max(usual, later, interval), 1_000.0 * MISSING_S)
        if distance <= min(limit, _LONGEST_MS):
            covered.append(distance)
            usual = max(distance, usual * 9 // 10)
        else:
            covered.append(min(distance, max(interval, min(usual, later)), _LONGEST_MS))
            usual = usual * 9 // 10
        usuals.append(usual)
    return np.array(covered, dtype=np.int64), usuals


def _added(sums: list[int], more: list[int]) -> list[int]:
    return [one + other for one, other in zip(sums, more, strict=True)]


def _milliseconds(epoch_s: float) -> int:
    return round(epoch_s * 1_000.0)


def _filled(row: list[int], gpus: int, value: int = _MISSING) -> list[int]:
    return [*row, *[value] * (gpus - len(row))]


# Fewer idle samples in a row may be chance: a counter that is read once a minute shows zero in any busy job.
PAUSE_SAMPLES = 3
# A run of idle samples that the node's other samples make this likely is chance: no pause, and no end of work.
CHANCE = 0.001
# More idle samples in a row are never taken for chance: a node that waits nine tenths of its time shows as many.
MOST_BY_CHANCE = 60

QUIET_S = 1_200.0
# GPUs below this mean are nearly idle, whatever single samples show.
QUIET_PERCENT = 5.0
# Use is summed over so long: few numbers a GPU, for an item that is written every minute.
PART_S = 240.0

MIN_BREAK_S = 10.0
REMEMBERED_BREAKS = 8


def is_chance(run: float, idle: int, seen: int) -> bool:
    """Tell whether a ``run`` of idle samples is likely by chance, where ``idle`` of ``seen`` others were idle."""
    return run * math.log((idle + 1.0) / (seen + 2.0)) > math.log(CHANCE)


class UsedPart(msgspec.Struct, array_like=True):
    """Four minutes, by their ordinal since the epoch: sums (whole percents) and counts of utilization, one a GPU."""

    part: int
    sums: list[int]
    counts: list[int]


class RecentUse(msgspec.Struct, array_like=True):
    """Utilization over the newest twenty minutes, and since when every GPU has been nearly idle."""

    parts: list[UsedPart] = msgspec.field(default_factory=list)
    begun_at: float | None = None
    quiet_since: float | None = None
    highest_mean: float = 0.0
    newest_mean: float = 0.0

    def add(self, times: FloatArray, utilization: FloatArray) -> None:
        """Add the samples of T snapshots (float64[T], float64[T, G])."""
        if times.size == 0:
            return
        if self.begun_at is None:
            self.begun_at = float(times[0])
        numbers = np.floor(times / PART_S).astype(np.int64)
        edges = np.flatnonzero(np.diff(numbers)) + 1
        for rows in np.split(np.arange(times.size), edges):
            self._add_part(int(numbers[rows[0]]), utilization[rows])
        oldest = float(times[-1]) - QUIET_S
        self.parts = [each for each in self.parts if PART_S * (each.part + 1) > oldest]
        self.highest_mean, self.newest_mean = _highest(self.parts), _highest(self.parts[-1:])
        if self.highest_mean >= QUIET_PERCENT or not any(any(each.counts) for each in self.parts):
            self.quiet_since = None
        elif self.quiet_since is None:
            self.quiet_since = max(self.begun_at, PART_S * self.parts[0].part)

    def mean_since(self, since: float) -> float:
        """Return the busiest GPU's mean over the parts from ``since`` on; without one that of the newest."""
        begun_at = since if self.begun_at is None else self.begun_at
        parts = [each for each in self.parts if max(PART_S * each.part, begun_at) >= since] or self.parts[-1:]
        return _highest(parts)

    def forget(self) -> None:
        """Start again, after time that nobody observed."""
        self.parts, self.begun_at, self.quiet_since = [], None, None
        self.highest_mean = self.newest_mean = 0.0

    def _add_part(self, part: int, utilization: FloatArray) -> None:
        if not self.parts or self.parts[-1].part != part:
            self.parts.append(UsedPart(part, [], []))
        held, gpus = self.parts[-1], utilization.shape[1]
        sums, counts = np.zeros(gpus), np.zeros(gpus, dtype=np.int64)
        sums[: len(held.sums)], counts[: len(held.counts)] = held.sums, held.counts
        held.sums = np.rint(sums + np.nansum(utilization, axis=0)).astype(np.int64).tolist()
        held.counts = (counts + np.count_nonzero(~np.isnan(utilization), axis=0)).tolist()


def _highest(parts: Sequence[UsedPart]) -> float:
    """Return the busiest GPU's mean, percent; 0 without one."""
    gpus = max((len(each.sums) for each in parts), default=0)
    sums, counts = np.zeros(gpus), np.zeros(gpus)
    for each in parts:
        sums[: len(each.sums)] += each.sums
        counts[: len(each.counts)] += each.counts
    return float((sums / np.maximum(counts, 1.0)).max()) if gpus else 0.0


class IdleRuns(msgspec.Struct, array_like=True):
    """How a node's GPUs idled between their activity, in runs that are over.

    ``samples`` are since the first work, ``paused`` those left out as pauses, ``chance`` as long ones that were kept.
    ``breaks`` are the newest runs of 10 s or more that are no chance, start and length in whole seconds.
    """

    samples: int = 0
    paused: int = 0
    breaks_s: float = 0.0
    breaks: list[tuple[int, int]] = msgspec.field(default_factory=list)
    chance: int = 0

    @property
    def kept(self) -> int:
        """How many of the kept points are idle."""
        return self.samples - self.paused

    def add(self, since: float, seconds: float, samples: int, *, long: bool, chance: bool) -> None:
        """Add one idle run: whether it is ``long`` enough for a pause, and whether it may be one of busy GPUs."""
        self.samples += samples
        self.paused += samples if long and not chance else 0
        self.chance += samples if long and chance else 0
        if seconds >= MIN_BREAK_S and samples >= PAUSE_SAMPLES and not chance:
            self.breaks_s += seconds
            self.breaks = [*self.breaks, (round(since), round(seconds))][-REMEMBERED_BREAKS:]
