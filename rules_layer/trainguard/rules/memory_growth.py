"""What is remembered of a GPU's memory, window by window, and whether it grows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from trainguard.rules.trend import mann_kendall_z, theil_sen_slope

Kind = Literal["jump", "trend", "late"]

JUMP_WINDOWS = 3
"""A jump shows in the third window at the earliest: the one in which it happens lies between those compared."""

FLOOR_QUANTILE = 0.05
MIN_FLOORS, MAX_FLOORS = 12, 24
TREND_Z = 3.09
"""One-sided probability of 0.001."""

RAMP_FLOORS = 4
"""So many floors in a row tell a steep ramp, too short for a test for a trend, from a jump."""

TENTHS = 10.0
"""Levels are stored as whole tenths of a percent."""


class MemoryGrowth(msgspec.Struct, array_like=True):
    """What is remembered of one GPU; levels in tenths of a percent.

    ``since`` is the kept point with its first sample, ``largest`` its largest sample. Of the windows judged, ``means``
    are those of the newest two and ``highest_mean`` is the highest of all before, ``floor`` and ``highest_floor`` are
    the newest floor and the highest. ``floors`` are the minima of each ``stride`` windows in a row, ``lowest`` that of
    the ``pending`` ones that are fewer. ``earlier_floor`` is the highest floor when the stride was doubled last.
    """

    since: int
    largest: int = 0
    means: list[int] = msgspec.field(default_factory=list)
    highest_mean: int | None = None
    floor: int = 0
    highest_floor: int = 0
    floors: list[int] = msgspec.field(default_factory=list)
    stride: int = 1
    lowest: int = 0
    pending: int = 0
    earlier_floor: int | None = None

    def add(self, mean: float, floor: float) -> None:
        """Add one window, by its mean and its floor in percent."""
        if len(self.floors) == MAX_FLOORS:
            self.floors = [min(pair) for pair in zip(self.floors[::2], self.floors[1::2], strict=True)]
            self.stride *= 2
            self.earlier_floor = self.highest_floor
        if len(self.means) == JUMP_WINDOWS - 1:
            self.highest_mean = max(self.means[0], self.highest_mean or 0)
        self.means = [*self.means[-1:], round(mean * TENTHS)]
        self.floor = round(floor * TENTHS)
        self.highest_floor = max(self.highest_floor, self.floor)
        self.lowest = min(self.lowest, self.floor) if self.pending else self.floor
        self.pending += 1
        if self.pending == self.stride:
            self.floors.append(self.lowest)
            self.pending = 0


class MemoryState(msgspec.Struct, array_like=True):
    """One entry a GPU.

    ``begin`` is the kept point at which the next window begins, once ``windows`` were judged; ``violated`` of them
    showed an increase of some GPU.
    """

    begin: int = 0
    windows: int = 0
    violated: int = 0
    gpus: dict[str, MemoryGrowth] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Increase:
    """What one GPU's windows say: ``points`` percentage points of increase over ``windows`` windows.

    ``kind`` is None while that is not over the threshold; ``z`` is there for a trend only.
    """

    gpu: str
    growth: MemoryGrowth
    kind: Kind | None
    points: float
    windows: int
    z: float | None = None

    @property
    def is_ramp(self) -> bool:
        """Whether a jump is one of many: the floor rose in each of the last windows, and in none by most of it."""
        newest = self.growth.floors[-RAMP_FLOORS:]
        steps = [after - before for before, after in pairwise(newest)]
        if self.kind != "jump" or len(newest) < RAMP_FLOORS:
            return False
        return min(steps) > 0 and max(steps) <= sum(steps) / 2.0

    def hourly(self, window_s: float) -> float:
        """Return percentage points an hour of training, of windows of so many seconds."""
        points, windows = self.points, self.windows
        if self.is_ramp:
            first, *_, last = self.growth.floors[-RAMP_FLOORS:]
            points, windows = (last - first) / TENTHS, (RAMP_FLOORS - 1) * self.growth.stride
        return points / (max(windows, 1) * window_s / 3_600.0)


def increases_of(state: MemoryState, increase: float) -> list[Increase]:
    """Judge the GPUs with JUMP_WINDOWS windows or more: a jump before a trend before a late rise."""
    trends = {gpu: (z, points) for gpu, z, points in _trends(state)}
    found = []
    for gpu, growth in state.gpus.items():
        if growth.highest_mean is None:
            continue
        jump = (growth.floor - growth.highest_mean) / TENTHS
        z, rise = trends.get(gpu, (0.0, 0.0))
        late = -math.inf if growth.earlier_floor is None else (growth.floor - growth.earlier_floor) / TENTHS
        recent = (len(growth.floors) - MAX_FLOORS // 2) * growth.stride + growth.pending
        if jump > increase:
            found.append(Increase(gpu, growth, "jump", jump, JUMP_WINDOWS))
        elif z > TREND_Z and rise > increase:
            found.append(Increase(gpu, growth, "trend", rise, (len(growth.floors) - 1) * growth.stride, z))
        elif late > increase:
            found.append(Increase(gpu, growth, "late", late, recent))
        else:
            found.append(Increase(gpu, growth, None, jump, JUMP_WINDOWS))
    return found


def _trends(state: MemoryState) -> Iterator[tuple[str, float, float]]:
    """Mann-Kendall's Z and the rise in percentage points of every GPU with MIN_FLOORS floors, equal lengths at once.

    A rise is never more than the newest floor is above the lowest: the median slope of what began or ended on the way
    goes beyond, and what has fallen back grows no more.
    """
    for length in range(MIN_FLOORS, MAX_FLOORS + 1):
        names = [gpu for gpu, growth in state.gpus.items() if len(growth.floors) == length]
        if names:
            floors = np.array([state.gpus[gpu].floors for gpu in names], dtype=np.float64)
            rises = np.minimum(theil_sen_slope(floors) * (length - 1), floors[:, -1] - floors.min(axis=1)) / TENTHS
            yield from zip(names, mann_kendall_z(floors).tolist(), rises.tolist(), strict=True)
