"""State of the rules on bottlenecks: counts of judged snapshots, and what waits for its end.

One pause is no bottleneck, but a compilation, a download or an evaluation: they count from the third within two hours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.rule_inputs import NodeMinute, NodeView

RECENT_MINUTES = 30
KEPT_BOTTLENECKS = 32
HUNDREDTHS = 100.0
# GPUs whose mean over a minute is at least as high, percent, do not wait for long.
GOOD_GPUS = 80.0
# And over so many points: by chance a few readings of GPUs that wait between steps are all of the work.
GOOD_POINTS = 20
# GPUs that worked for a shorter time say nothing of what the cores do then.
GOOD_S = 120.0
# What holds the GPUs up is at its limit in so much more of the points, or higher by so many percentage points.
MORE_OFTEN, MORE_LEVEL = 0.25, 15.0
# What a GPU is at that is kept busy, percent: it leaves the rest undone in any job.
FULL_PACE = 95.0


class MinuteCount(msgspec.Struct, array_like=True):
    """Judged snapshots of one minute of event time (epoch minutes).

    What follows the counts are sums over them, in hundredths: ``gpu`` of mean utilization, ``level`` and ``peak`` of
    the cores' two measures, ``lost`` of what low GPUs left undone. ``hot`` counts snapshots with a core at its limit.
    """

    minute: int
    judged: int
    bottlenecked: int
    gpu: int = 0
    level: int = 0
    peak: int = 0
    gpus: int = 0
    lost: int = 0
    hot: int = 0

    def add(self, later: "MinuteCount") -> None:
        for name in ("judged", "bottlenecked", "gpu", "level", "peak", "lost", "hot"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.gpus = max(self.gpus, later.gpus)

    def mean(self, total: int) -> float:
        return total / HUNDREDTHS / self.judged

    @property
    def hot_share(self) -> float:
        """Share, 0 to 1, of the snapshots in which a core was at its limit."""
        return self.hot / self.judged

    @property
    def wasted(self) -> int:
        """What the GPUs left undone of a full pace, in the same unit."""
        return max(self.undone - round(HUNDREDTHS * (100.0 - FULL_PACE)) * self.judged, 0)

    @property
    def undone(self) -> int:
        """What the GPUs left undone, in hundredths of a percent of them, summed over snapshots."""
        return round(HUNDREDTHS * 100.0) * self.judged - self.gpu


IsSlow = Callable[[MinuteCount], bool]
# Minutes in which the GPUs worked, and others, each as one; None where there is none.
Contrast = tuple[MinuteCount | None, MinuteCount | None]
# One snapshot in which the GPUs waited: epoch seconds, number of GPUs that were low, highest core in percent.
Bottleneck = tuple[float, int, float]


class Tally(msgspec.Struct, array_like=True):
    """Counts over any number of snapshots; ``minutes`` holds the newest 30, ``newest`` the last 32 bottlenecks.

    ``lost`` (``slow_lost`` of slow minutes) is what low GPUs left undone in bottlenecks, in hundredths of a percent,
    summed over snapshots. ``good``, ``poor`` and ``forming`` are minutes no longer held: the GPUs worked, did not, or
    too few points tell.
    """

    judged: int = 0
    bottlenecked: int = 0
    low_gpu: int = 0
    minutes: list[MinuteCount] = msgspec.field(default_factory=list)
    newest: list[Bottleneck] = msgspec.field(default_factory=list)
    lost: int = 0
    slow: int = 0
    slow_lost: int = 0
    level: int = 0
    low: dict[str, int] = msgspec.field(default_factory=dict)
    gone: MinuteCount | None = None
    good: MinuteCount | None = None
    poor: MinuteCount | None = None
    forming: MinuteCount | None = None

    @property
    def contrast(self) -> Contrast:
        total = Tally(good=_copy(self.good), poor=_copy(self.poor), forming=_copy(self.forming))
        for count in self.minutes:
            if count.judged:
                total.sort(count)
        return total.good, total.poor

    @property
    def recent(self) -> range:
        """The epoch minutes of the recent window: the newest one that counts, and those before it; empty of nothing."""
        newest = self.minutes[-1].minute if self.minutes else -1
        return range(newest - RECENT_MINUTES + 1, newest + 1)

    def slow_minutes(self, held: Sequence[MinuteCount]) -> MinuteCount:
        """Return the slow minutes as one: those of ``held``, or else those that are no longer held."""
        total = None if held else self.gone
        for count in held:
            total = joined(total, count)
        return total or MinuteCount(0, self.slow, 0)

    def absorb(self, other: "Tally", is_slow: IsSlow) -> None:
        for name in ("judged", "bottlenecked", "low_gpu", "lost", "slow", "slow_lost", "level"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for gpu, points in other.low.items():
            self.low[gpu] = self.low.get(gpu, 0) + points
        if other.gone is not None:
            self.gone = joined(self.gone, other.gone)
        for count in (other.good, other.poor, other.forming):
            if count is not None:
                self.sort(count)
        by_minute = {count.minute: count for count in self.minutes}
        for count in other.minutes:
            by_minute[count.minute] = joined(by_minute.get(count.minute), count)
        self.minutes = [by_minute[minute] for minute in sorted(by_minute)]
        while self.minutes and self.minutes[0].minute <= self.minutes[-1].minute - RECENT_MINUTES:
            gone = self.minutes.pop(0)
            self.sort(gone)
            if is_slow(gone):
                self.slow += gone.judged
                self.slow_lost += gone.wasted
                self.gone = joined(self.gone, gone)
        self.newest = sorted([*self.newest, *other.newest], key=lambda each: each[0])[-KEPT_BOTTLENECKS:]

    def sort(self, count: MinuteCount) -> None:
        """Add a minute to those in which the GPUs worked, or to the others, with those before it that were too few."""
        if self.forming is not None:
            count = msgspec.structs.replace(count)
            count.add(self.forming)
        self.forming = _copy(count) if count.judged < GOOD_POINTS else None
        if self.forming is not None:
            return
        if count.gpu >= HUNDREDTHS * GOOD_GPUS * count.judged:
            self.good = joined(self.good, count)
        else:
            self.poor = joined(self.poor, count)


def joined(held: MinuteCount | None, count: MinuteCount) -> MinuteCount:
    """Return both as one: ``held`` itself where there is one, else a copy."""
    if held is None:
        return msgspec.structs.replace(count)
    held.add(count)
    return held


def is_cause(good: MinuteCount | None, poor: MinuteCount | None, interval_s: float, more_peak: float) -> bool:
    """Tell whether the cores were nearer to their limit, by ``more_peak`` at least, while the GPUs did not work.

    Where the GPUs worked for too short a time to tell, or always, they are.
    """
    if good is None or poor is None or good.judged < max(GOOD_S / interval_s, 2 * GOOD_POINTS):
        return True
    return (
        poor.hot_share - good.hot_share >= MORE_OFTEN
        or poor.mean(poor.level) - good.mean(good.level) >= MORE_LEVEL
        or poor.mean(poor.peak) - good.mean(good.peak) >= more_peak
    )


@dataclass(frozen=True, slots=True)
class Share:
    """Bottlenecks among judged snapshots; ``lost`` is what they cost, as in a Tally."""

    hits: int
    judged: int
    lost: int

    @property
    def percent(self) -> float:
        return 100.0 * self.hits / self.judged if self.judged else 0.0

    def wasted_of(self, least: int) -> float:
        """Return the share, 0 to 1, of the judged time that was lost; of ``least`` points, > 0, where they are more."""
        return self.lost / (100.0 * HUNDREDTHS) / max(self.judged, least)


# The cores in T snapshots, float64[T] each: the highest one in percent, and the two measures that count.
Cores = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, slots=True)
class Counted:
    """What T snapshots count as (all arrays of length T, ``below`` bool[T, G])."""

    below: BoolArray
    low: BoolArray
    hit: BoolArray
    cores: Cores
    lost: IntArray
    gpu: FloatArray
    gpus: tuple[str, ...]
    hot: BoolArray

    @classmethod
    def of(
        cls, utilization: FloatArray, cores: Cores, gpus: tuple[str, ...], *, core: float, gpu: float, fraction: float
    ) -> "Counted":
        """Look at GPUs, float64[T, G]: a core above ``core`` %, and a ``fraction`` below ``gpu`` %, is a bottleneck."""
        below: BoolArray = utilization < gpu
        low: BoolArray = np.count_nonzero(below, axis=1) >= fraction * len(gpus)
        undone = np.where(below, 100.0 - utilization, 0.0).sum(axis=1) / len(gpus)
        lost = np.rint(HUNDREDTHS * undone).astype(np.int64)
        sampled = np.maximum(np.count_nonzero(~np.isnan(utilization), axis=1), 1)
        mean: FloatArray = np.nansum(utilization, axis=1) / sampled
        hot: BoolArray = cores[0] > core
        return cls(below, low, low & hot, cores, lost, mean, gpus, hot)

    def tally(self, times: FloatArray, chosen: BoolArray) -> Tally:
        hit, (highest, level, _) = chosen & self.hit, self.cores
        newest = np.flatnonzero(hit)[-KEPT_BOTTLENECKS:]
        gpus_low = np.count_nonzero(self.below[newest], axis=1)
        columns = (times[newest].tolist(), gpus_low.tolist(), highest[newest].tolist())
        by_gpu: Mapping[str, int] = dict(zip(self.gpus, self.below[hit].sum(axis=0).tolist(), strict=True))
        return Tally(
            judged=int(np.count_nonzero(chosen)),
            bottlenecked=int(np.count_nonzero(hit)),
            low_gpu=int(np.count_nonzero(chosen & self.low)),
            minutes=self._minutes(times, chosen, hit),
            newest=list(zip(*columns, strict=True)),
            lost=int(self.lost[hit].sum()),
            level=_sum(level[hit]),
            low={gpu: points for gpu, points in by_gpu.items() if points},
        )

    def _minutes(self, times: FloatArray, chosen: BoolArray, hit: BoolArray) -> list[MinuteCount]:
        numbers, (_, level, peak) = np.floor(times / 60.0).astype(np.int64), self.cores
        minutes = []
        for number in np.unique(numbers[chosen]).tolist():
            rows = chosen & (numbers == number)
            count = int(np.count_nonzero(rows))
            minutes.append(
                MinuteCount(
                    minute=number,
                    judged=count,
                    bottlenecked=int(np.count_nonzero(rows & hit)),
                    gpu=_sum(self.gpu[rows]),
                    level=_sum(level[rows]),
                    peak=_sum(peak[rows]),
                    gpus=len(self.gpus),
                    lost=int(self.lost[rows & hit].sum()),
                    hot=int(np.count_nonzero(rows & self.hot)),
                )
            )
        return minutes


def _copy(count: MinuteCount | None) -> MinuteCount | None:
    return None if count is None else msgspec.structs.replace(count)


def _sum(values: FloatArray) -> int:
    return round(HUNDREDTHS * float(np.nansum(values)))


# A longer idle run is a pause; two sampling intervals where they are longer.
PAUSE_S = 60.0

# Clocks of samplers are that exact: six intervals of 10 s are 60 s, and no longer.
CLOCK_S = 1e-3

RECURRENCES, RECUR_MINUTES = 3, 120
# A GPU that idles for longer while others work is no longer used, and waits for nothing.
UNUSED_S = 600.0
# A bottleneck that was not seen for longer counts as a new one when it is seen again.
QUIET_MINUTES = 10

LAPSED_MINUTES = 3


# The epoch minute in which a pause ended, and what it counts; nothing once it was counted.
Pause = tuple[int, Tally]


class BottleneckState(msgspec.Struct, array_like=True):
    """What is judged for good, and the open idle run: it counts as soon as the node is active again, else never.

    ``idle_since`` is in epoch seconds; ``pauses`` are the newest two. ``unused`` counts active snapshots in which each
    GPU was idle since it last worked. ``bad_since``, ``bad_through`` and ``checked`` are epoch minutes.
    """

    kept: Tally = msgspec.field(default_factory=Tally)
    open_idle: Tally = msgspec.field(default_factory=Tally)
    idle_since: float | None = None
    pauses: list[Pause] = msgspec.field(default_factory=list)
    unused: dict[str, int] = msgspec.field(default_factory=dict)
    bad_since: int | None = None
    bad_through: int | None = None
    checked: int = 0

    def reset(self) -> None:
        # The node's work begins now: what was before belongs to its start-up.
        self.kept, self.open_idle, self.idle_since, self.pauses = Tally(), Tally(), None, []
        self.bad_since = self.bad_through = None

    def used(self, view: NodeView) -> tuple[str, ...]:
        """Return the GPUs that work on the node: once active, and not idle for long while others were."""
        return tuple(gpu for gpu in view.used_gpus if self.unused.get(gpu, 0) * view.interval_s < UNUSED_S)

    def note_use(self, minute: NodeMinute, busy: BoolArray) -> None:
        """Take note of which GPUs worked: bool[T, G] of the snapshots' GPUs."""
        for column, gpu in enumerate(minute.snapshots.gpu_names):
            own = np.flatnonzero(busy[:, column])
            since = minute.active if own.size == 0 else minute.active[int(own[-1]) + 1 :]
            idle = int(np.count_nonzero(since)) + (self.unused.get(gpu, 0) if own.size == 0 else 0)
            self.unused[gpu] = idle
            if not idle:
                del self.unused[gpu]

    @property
    def has_lapsed(self) -> bool:
        """Whether no bottleneck was seen of late: what is over does not go on to fire."""
        if self.bad_through is None or not self.kept.minutes:
            return True
        return self.kept.minutes[-1].minute > self.bad_through + LAPSED_MINUTES

    def add(
        self, minute: NodeMinute, counted: Counted, judged: BoolArray, *, is_slow: IsSlow, threshold: float
    ) -> None:
        """Count a minute's judged snapshots; it is bad when slow, or with over ``threshold`` % of bottlenecks."""
        times, chosen = minute.snapshots.times, judged.copy()
        if not times.size:
            return
        longest_s = max(PAUSE_S, 2.0 * minute.view.interval_s) + CLOCK_S
        active_rows = np.flatnonzero(minute.active)
        rows = np.arange(times.size)
        begins, ends = active_rows[:-1] + 1, active_rows[1:]
        long = times[ends] - times[begins] > longest_s
        for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
            run = judged & (rows >= begin) & (rows < end)
            chosen &= ~run
            self._end_pause(counted.tally(times, run), float(times[end]), is_slow)
        first, last = (int(active_rows[0]), int(active_rows[-1])) if active_rows.size else (times.size, times.size - 1)
        leading = judged & (rows < first)
        self.open_idle.absorb(counted.tally(times, leading), is_slow)
        if self.idle_since is None:
            self.idle_since = float(times[0])
        if not active_rows.size:
            return
        ended = float(times[first])
        if ended - self.idle_since > longest_s:
            self._end_pause(self.open_idle, ended, is_slow)
        else:
            self.kept.absorb(self.open_idle, is_slow)
        self.kept.absorb(counted.tally(times, chosen & (rows >= first) & (rows <= last)), is_slow)
        self.open_idle = counted.tally(times, judged & (rows > last))
        self.idle_since = float(times[last + 1]) if last + 1 < times.size else None
        self._note_bad(is_slow, threshold)

    def _end_pause(self, tally: Tally, ended_at: float, is_slow: IsSlow) -> None:
        if not tally.judged:
            return
        ended = int(ended_at // 60.0)
        recent = [*(each for each in self.pauses if each[0] > ended - RECUR_MINUTES), (ended, tally)]
        if len(recent) >= RECURRENCES:
            for _, counted in recent:
                self.kept.absorb(counted, is_slow)
                self.checked = min([self.checked, *(count.minute - 1 for count in counted.minutes)])
            recent = [(at, Tally()) for at, _ in recent]
        self.pauses = recent[-(RECURRENCES - 1) :]

    def _note_bad(self, is_slow: IsSlow, threshold: float) -> None:
        """Note since when and up to when minutes have been bad.

        Minutes of a pause that counts late may lie before the onset: it moves back to them.
        """
        new = [count for count in self.kept.minutes if count.minute >= self.checked]
        self.checked = new[-1].minute if new else self.checked
        bad = [each.minute for each in new if 100.0 * each.bottlenecked > threshold * each.judged or is_slow(each)]
        for minute in bad:
            if self.bad_through is None or minute > self.bad_through + QUIET_MINUTES:
                self.bad_since = self.bad_through = minute
            self.bad_through = max(self.bad_through, minute)
        for minute in reversed(bad):
            if self.bad_since is not None and self.bad_since - QUIET_MINUTES <= minute < self.bad_since:
                self.bad_since = minute
