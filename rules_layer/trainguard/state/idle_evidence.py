"""Evidence of a node's idle time: its GPUs' use over the newest twenty minutes, and their pauses."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import FloatArray

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


class IdleTime(msgspec.Struct, array_like=True):
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
