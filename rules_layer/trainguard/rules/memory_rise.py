"""The part of a series of levels that rises up to now: since when, how fast, and whether it goes on."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainguard.rules.trend import mann_kendall_z, theil_sen_slope

TENTHS = 10.0
"""Levels are stored as whole tenths of a percent."""

BEGUN = 0.1
"""A rise has begun where a level has left the lowest by this share of it."""

STILL_RISES = 0.25
"""The newest third of a rise must have this share of it; a steady one has a third: else it levels off."""

STEADY_LEVELS, MERGED_LEVELS, STEADY_S = 5, 4, 1_800.0
"""A rise of fewer levels, of fewer merged ones, or of a shorter time, is no steady one: caches fill, too."""

STEPPED_LEVELS = 3
"""A rise of fewer levels is a single step, of which nobody can say that it goes on."""

STEADY_Z = 1.6
"""Four levels that rise one after another have 1.7, five have 2.2; by chance they do not rise by much."""


@dataclass(frozen=True, slots=True)
class Rise:
    """The newest levels (tenths of a percent), one or more, since they began to rise, ``stride`` windows each."""

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
        """Percentage points from the first to the last level."""
        return (self.levels[-1] - self.levels[0]) / TENTHS

    @property
    def windows(self) -> int:
        """Windows from the first to the last level."""
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
