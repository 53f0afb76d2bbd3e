"""How levels of GPU memory rise: memory activity by windows, and memory in use by minutes.

A leak rises evenly; a sawtooth gives back, a cache fills ever more slowly, longer sequences jump to a level.
"""

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from trainguard.formats.profile import snapshots as names
from trainguard.rules.rule_inputs import NodeMinute
from trainguard.rules.sample_statistics import mann_kendall_z, theil_sen_slope

TENTHS = 10.0
BEGUN = 0.1
# The newest third of a rise must have this share of it; a steady one has a third: else it levels off.
STILL_RISES = 0.25
# A rise of fewer levels, of fewer merged ones, or of a shorter time, is no steady one: caches fill, too.
STEADY_LEVELS, MERGED_LEVELS, STEADY_S = 5, 4, 1_800.0
# A rise of fewer levels is a single step, of which nobody can say that it goes on.
STEPPED_LEVELS = 3
# Four levels that rise one after another have 1.7, five have 2.2; by chance they do not rise by much.
STEADY_Z = 1.6


@dataclass(frozen=True, slots=True)
class Rise:
    """The newest levels (tenths of a percent in windows), one or more, since they began to rise, of ``stride`` each."""

    levels: list[int]
    stride: int

    @classmethod
    def of(cls, levels: list[int], stride: int) -> "Rise":
        """Return the levels since the last one that had not left the lowest yet."""
        lowest, span = min(levels), levels[-1] - min(levels)
        begin = max(index for index, level in enumerate(levels) if level <= lowest + BEGUN * span)
        return cls(levels[begin:], stride)

    @property
    def slope(self) -> float:
        """Percentage points a window: the median slope, which single levels do not move."""
        if len(self.levels) < 2:
            return 0.0
        return float(theil_sen_slope(np.array([self.levels], dtype=np.float64))[0]) / TENTHS / self.stride

    @property
    def points(self) -> float:
        return (self.levels[-1] - self.levels[0]) / TENTHS

    @property
    def windows(self) -> int:
        return (len(self.levels) - 1) * self.stride

    @property
    def goes_on(self) -> bool:
        """Whether the newest third still rises: what has levelled off is no leak, and one step alone is a jump."""
        if len(self.levels) < STEPPED_LEVELS:
            return False
        third = Rise(self.levels[-(max(math.ceil(len(self.levels) / 3.0), 2) + 1) :], self.stride)
        risen = third.slope * third.windows
        return risen > 0.0 and risen >= STILL_RISES * self.points

    def is_steady(self, window_s: float) -> bool:
        """Whether it rose for long, level after level, by no more than half of it at once, and goes on."""
        least = STEADY_LEVELS if self.stride == 1 else MERGED_LEVELS
        if len(self.levels) < least or self.windows * window_s < STEADY_S or not self.goes_on:
            return False
        largest = max(after - before for before, after in pairwise(self.levels))
        if largest > (self.levels[-1] - self.levels[0]) / 2.0:
            return False
        return float(mann_kendall_z(np.array([self.levels], dtype=np.float64))[0]) >= STEADY_Z


HUNDREDTHS = 100.0
MOST_LEVELS, LEAST_LEVELS = 24, 6
# A rise of fewer levels, or of a shorter time, may be a cache that fills; half of it is enough near the end.
LEAST_S, NEARLY_FULL_S, NEARLY_FULL = 3_600.0, 1_800.0, 85.0

GAVE_BACK = 0.25
LARGEST_STEP = 1.0 / 3.0
# So many of the levels lie above the one before: else it is a staircase of a few jumps.
RISING = 0.6
# In its newest third a leak rises at this share of its pace at least; a cache that fills does not.
NEWEST_PACE = 0.75

MOST_GPUS = 64
MINUTE_S = 60.0
# Memory rises no more once that lasts so long, and would have brought so many percentage points at its pace.
LEVEL_S, MISSED_POINTS = 180.0, 1.0
# What is so many hundredths of a percent above the highest minute so far has risen.
HIGHER = 10


class UseLevels(msgspec.Struct, array_like=True):
    """Floors of one device's memory in use, hundredths of a percent of ``total`` bytes.

    ``levels`` are the lowest of each ``stride`` minutes, ``lowest`` is that of the ``pending`` rest. ``newest`` is the
    newest minute's floor, at epoch seconds ``at``; ``peak`` the highest floor, reached at ``risen_at``. With ``share``
    the source tells percent alone, and ``total`` is 100.
    """

    total: float
    levels: list[int] = msgspec.field(default_factory=list)
    stride: int = 1
    lowest: int = 0
    pending: int = 0
    newest: int = 0
    largest: int = 0
    at: float = 0.0
    peak: int = 0
    risen_at: float | None = None
    share: bool = False

    def add(self, floor: float, largest: float, at: float) -> None:
        if len(self.levels) == MOST_LEVELS:
            self.levels = [min(pair) for pair in zip(self.levels[::2], self.levels[1::2], strict=True)]
            self.stride *= 2
        self.newest, self.at = self._level(floor), at
        self.largest = max(self.largest, self._level(largest))
        if self.newest >= self.peak + HIGHER:
            self.peak, self.risen_at = self.newest, at
        self.lowest = min(self.lowest, self.newest) if self.pending else self.newest
        self.pending += 1
        if self.pending >= self.stride:
            self.levels.append(self.lowest)
            self.pending = 0

    def _level(self, used: float) -> int:
        return round(min(used / self.total, 1.0) * 100.0 * HUNDREDTHS)

    @property
    def percent(self) -> float:
        return self.newest / HUNDREDTHS


@dataclass(frozen=True, slots=True)
class UseRise:
    """How one device's memory in use rose: percentage points, since how many minutes, and points an hour in these."""

    device: str
    use: UseLevels
    points: float
    minutes: int
    hourly: float
    is_steady: bool

    @property
    def time_left_s(self) -> float:
        return 3_600.0 * (100.0 - self.use.percent) / self.hourly

    @property
    def until(self) -> float | None:
        """When it rose for the last time, epoch seconds; None while it rises."""
        risen_at = self.use.risen_at
        if risen_at is None:
            return None
        level_s = self.use.at - risen_at
        return risen_at if level_s >= LEVEL_S and level_s * self.hourly / 3_600.0 >= MISSED_POINTS else None

    @property
    def since(self) -> float:
        """When the rise of what rises began at its pace, epoch seconds."""
        return self.use.at - MINUTE_S * self.use.pending - 3_600.0 * self.points / self.hourly

    def bytes_of(self, points: float) -> float:
        return points / 100.0 * self.use.total


def fold_use(in_use: dict[str, UseLevels], minute: NodeMinute) -> None:
    has_started = bool(minute.started.any())
    totals, in_bytes = minute.devices.of(names.MEMORY_TOTAL), minute.devices.of(names.MEMORY_USED)
    for device, used in {**minute.devices.of(names.MEMORY_SHARE), **in_bytes}.items():
        if not (has_started or device in minute.view.mig_names):
            continue
        use, share = in_use.get(device), device not in in_bytes
        if use is None:
            total = 100.0 if share else totals[device].last if device in totals else 0.0
            if total <= 0.0 or len(in_use) >= MOST_GPUS:
                continue
            use = in_use[device] = UseLevels(total, share=share)
        if use.share == share:
            use.add(used.least, used.greatest, float(used.times[-1]))


def rises_of(in_use: dict[str, UseLevels]) -> list[UseRise]:
    return [_rise_of(device, use) for device, use in in_use.items()]


def _rise_of(device: str, use: UseLevels) -> UseRise:
    levels = _since_jump(use.levels)
    rise = Rise.of(levels, use.stride)
    rising, minutes = rise.levels, rise.windows
    hourly = 60.0 * (rising[-1] - rising[0]) / HUNDREDTHS / minutes if minutes else 0.0
    least_s = NEARLY_FULL_S if use.percent >= NEARLY_FULL else LEAST_S
    is_long = use.stride * len(rising) * MINUTE_S >= least_s
    fallen = max(highest - level for highest, level in zip(accumulate(use.levels, max), use.levels, strict=True))
    is_steady = is_long and _is_steady(rising) and fallen <= GAVE_BACK * (rising[-1] - rising[0])
    points = (levels[-1] - min(levels)) / HUNDREDTHS
    return UseRise(device, use, points, minutes, hourly, is_steady=is_steady)


def _since_jump(levels: list[int]) -> list[int]:
    """Return the levels since the last jump, such as that of a start: a level that was taken at once is no leak."""
    while len(levels) > 1:
        steps = [after - before for before, after in pairwise(levels)]
        largest = max(steps)
        if largest <= LARGEST_STEP * (levels[-1] - min(levels)):
            break
        levels = levels[len(steps) - steps[::-1].index(largest) :]
    return levels


def _is_steady(rising: list[int]) -> bool:
    risen = rising[-1] - rising[0]
    steps = [after - before for before, after in pairwise(rising)]
    if len(rising) < LEAST_LEVELS or max(steps) > LARGEST_STEP * risen:
        return False
    if sum(step > 0 for step in steps) < RISING * len(steps) or -min(steps) > GAVE_BACK * risen:
        return False
    third = max(len(steps) // 3, 2)
    return sum(steps[-third:]) / third >= NEWEST_PACE * risen / len(steps)
