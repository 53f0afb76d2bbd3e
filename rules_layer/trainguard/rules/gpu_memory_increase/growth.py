"""State of a GPU's memory activity, window by window, and whether it grows."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import msgspec
import numpy as np

from trainguard.rules.gpu_memory_increase.rise import TENTHS, Rise, UseLevels
from trainguard.rules.sample_statistics import mann_kendall_z, theil_sen_slope

Kind = Literal["jump", "trend", "late", "rise"]
# A jump shows in the third window at the earliest: the one in which it happens lies between those compared.
JUMP_WINDOWS = 3

FLOOR_QUANTILE = 0.05
MIN_FLOORS, MAX_FLOORS = 12, 24
# One-sided probability of 0.001.
TREND_Z = 3.09
# So many floors in a row tell a steep ramp, too short for a test for a trend, from a jump.
RAMP_FLOORS = 4
# At full load a rise must be this share of what it is as measured: else most of it is that of the GPU's load.
UNEXPLAINED = 0.5
# A floor has left the lowest of its time once it is so many percentage points above it.
LEFT_POINTS = 2.0


class Levels(msgspec.Struct, array_like=True):
    """Levels of the windows of one GPU, in tenths of a percent.

    ``means`` are the newest two, ``highest_mean`` is the highest before them. ``floors`` are the minima of each
    ``stride`` windows, ``lowest`` that of the ``pending`` rest. ``earlier_floor`` is the highest floor when ``stride``
    last doubled.
    """

    means: list[int]
    highest_mean: int | None
    floor: int
    highest_floor: int
    floors: list[int]
    stride: int
    lowest: int
    pending: int
    earlier_floor: int | None

    @property
    def all_floors(self) -> list[int]:
        return [*self.floors, *([self.lowest] if self.pending else [])]

    @property
    def jump(self) -> float:
        """How far the newest floor is above the highest mean before it, in percentage points."""
        return (self.floor - (self.highest_mean or 0)) / TENTHS

    @property
    def late(self) -> float:
        """How far it is above the highest floor when ``stride`` last doubled, in percentage points."""
        return -math.inf if self.earlier_floor is None else (self.floor - self.earlier_floor) / TENTHS

    def add(self, mean: float, floor: float) -> None:
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

    def scaled(self, factor: float) -> "Levels":
        def times(level: Any) -> Any:
            if isinstance(level, list):
                return [round(each * factor) for each in level]
            return None if level is None else round(level * factor)

        counts = {"stride": self.stride, "pending": self.pending}
        levels: dict[str, Any] = {name: times(level) for name, level in msgspec.structs.asdict(self).items()}
        return Levels(**levels | counts)


class MemoryGrowth(msgspec.Struct, array_like=True):
    """One GPU's levels, in tenths of a percent; fields from ``means`` on are as in Levels.

    ``since`` is the kept point with its first sample, ``largest`` its largest sample, ``load`` the newest window's mean
    utilization. ``full`` are the levels at 100 % utilization, ``base`` is the lowest floor of them; ``left_at`` (epoch
    seconds) is the middle of the last window near ``base``, ``left_to`` the floor after it.
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
    full: Levels | None = None
    load: int = 0
    base: int | None = None
    left_at: float | None = None
    left_to: int | None = None

    @property
    def levels(self) -> Levels:
        return Levels(*(getattr(self, name) for name in Levels.__struct_fields__))

    def add(self, mean: float, floor: float, load: float, full: tuple[float, float] | None, at: float | None) -> None:
        """Add one window, percent: mean and floor of memory activity, mean utilization, and the first two at full load.

        ``full`` is None with too few points under load; ``at`` is the window's middle, epoch seconds. What an earlier
        version stored without loads counts as work under the load of now.
        """
        factor = 100.0 / max(load, 1.0)
        if self.full is None:
            self.full = self.levels.scaled(factor)
        measured = self.levels
        measured.add(mean, floor)
        for name in measured.__struct_fields__:
            setattr(self, name, getattr(measured, name))
        self.full.add(*(full or (mean * factor, floor * factor)))
        self.load = round(load * TENTHS)
        floor = self.full.floor
        self.base = floor if self.base is None else min(self.base, floor)
        if floor <= self.base + LEFT_POINTS * TENTHS:
            self.left_at, self.left_to = at, None
        elif self.left_to is None:
            self.left_to = floor

    @property
    def left_slowly(self) -> bool:
        """Whether the floors crept away from the lowest: they had left it before that showed."""
        return self.left_to is not None and self.left_to - (self.base or 0) <= 2.0 * LEFT_POINTS * TENTHS


class Jump(msgspec.Struct, array_like=True):
    """A jump: since when the level has held (epoch seconds), and levels in tenths of a percent."""

    gpu: str
    at: float
    floor: int
    highest: int

    @property
    def points(self) -> float:
        return (self.floor - self.highest) / TENTHS


class MemoryState(msgspec.Struct, array_like=True):
    """One entry a GPU.

    ``begin`` is the kept point of the next window; ``violated`` of ``windows`` showed an increase. ``jumped_at`` is
    since when the newest level has held, epoch seconds. Where memory ``in_use`` is collected that alone is judged.
    ``interval_s`` is the first window's sampling interval: an irregular sampler's is estimated again each minute.
    """

    begin: int = 0
    windows: int = 0
    violated: int = 0
    gpus: dict[str, MemoryGrowth] = msgspec.field(default_factory=dict)
    strongest: Jump | None = None
    jumped_at: float | None = None
    in_use: dict[str, UseLevels] = msgspec.field(default_factory=dict)
    interval_s: float | None = None

    def note_jumps(self, increases: list["Increase"], at: float) -> None:
        """Remember what jumped in the newest window, which began ``at`` epoch seconds."""
        jumped = [each for each in increases if each.kind == "jump"]
        if not jumped:
            self.jumped_at = None
        elif self.jumped_at is None:
            self.jumped_at = at
        for each in jumped:
            found = Jump(each.gpu, at, each.growth.floor, each.growth.highest_mean or 0)
            if self.strongest is None or found.points > self.strongest.points:
                self.strongest = found


@dataclass(frozen=True, slots=True)
class Increase:
    """One GPU's increase: ``points`` percentage points over ``windows`` windows.

    ``kind`` is None below the threshold; ``z`` is of a trend only; ``rise`` is the part of the levels that rises up to
    now.
    """

    gpu: str
    growth: MemoryGrowth
    kind: Kind | None
    points: float
    windows: int
    z: float | None
    rise: Rise

    @property
    def is_ramp(self) -> bool:
        """Whether a jump is one of many: the floor rose in each of the last windows, in none by most of it."""
        newest = self.growth.floors[-RAMP_FLOORS:]
        steps = [after - before for before, after in pairwise(newest)]
        if self.kind != "jump" or len(newest) < RAMP_FLOORS:
            return False
        return min(steps) > 0 and max(steps) <= sum(steps) / 2.0 and steps[-1] >= max(steps) / 2.0

    @property
    def goes_on(self) -> bool:
        return self.kind is not None and (self.kind != "jump" or self.is_ramp)

    def hourly(self, window_s: float) -> float:
        """Return percentage points an hour of training, of windows of so many seconds."""
        rise = Rise(self.growth.floors[-RAMP_FLOORS:], self.growth.stride) if self.is_ramp else self.rise
        return rise.slope / (window_s / 3_600.0)

    def time_left_s(self, window_s: float) -> float | None:
        """Return in how many seconds of training the activity is at 100 %, if it goes on so; None for a jump."""
        if not self.goes_on:
            return None
        hourly = self.hourly(window_s)
        return 3_600.0 * self.room / hourly if hourly > 0.0 else None

    @property
    def room(self) -> float:
        """Percentage points between the mean of the newest window and 100 %."""
        return max(100.0 - self.growth.means[-1] / TENTHS, 0.0)


def increases_of(state: MemoryState, increase: float, window_s: float) -> list[Increase]:
    """Judge the GPUs with JUMP_WINDOWS windows or more: a jump before a trend before a late rise before a steady one.

    At full load each must show too: activity follows the load, so that GPUs that get more batches are no leak.
    """
    judged = [(gpu, growth, growth.levels) for gpu, growth in state.gpus.items() if growth.highest_mean is not None]
    measured, at_full = [levels for _, _, levels in judged], [growth.full or levels for _, growth, levels in judged]
    trends, trends_at_full = _trends(measured), _trends(at_full)
    increases = []
    for place, (gpu, growth, levels) in enumerate(judged):
        full = at_full[place]
        full_rise = Rise.of(full.all_floors, full.stride)
        load = growth.load / TENTHS / 100.0 if growth.full is not None else 1.0

        def is_risen(points: float, points_at_full: float, load: float = load) -> bool:
            return bool(points > increase and points_at_full * load >= UNEXPLAINED * points)

        z, trend = trends.get(place, (0.0, 0.0))
        kind: Kind | None = None
        points, windows = levels.jump, JUMP_WINDOWS
        rising = Rise(levels.all_floors[-len(full_rise.levels) :], growth.stride)
        recent = (len(growth.floors) - MAX_FLOORS // 2) * growth.stride + growth.pending
        if is_risen(levels.jump, full.jump):
            kind = "jump"
        elif z > TREND_Z and is_risen(trend, trends_at_full.get(place, (0.0, 0.0))[1]) and full_rise.goes_on:
            kind, points, windows = "trend", trend, (len(growth.floors) - 1) * growth.stride
        elif is_risen(levels.late, full.late) and full_rise.goes_on:
            kind, points, windows = "late", levels.late, recent
        elif is_risen(rising.points, full_rise.points) and full_rise.is_steady(window_s):
            kind, points, windows = "rise", rising.points, full_rise.windows
        increases.append(Increase(gpu, growth, kind, points, windows, z if kind == "trend" else None, rising))
    return increases


def _trends(levels: list[Levels]) -> dict[int, tuple[float, float]]:
    """Mann-Kendall's Z and the rise in percentage points, by index, of all with MIN_FLOORS floors.

    A rise is never more than the newest floor is above the lowest: the median slope of what began or ended on the way
    goes beyond, and what has fallen back grows no more.
    """
    found: dict[int, tuple[float, float]] = {}
    for length in {len(each.floors) for each in levels if len(each.floors) >= MIN_FLOORS}:
        chosen = [index for index, each in enumerate(levels) if len(each.floors) == length]
        floors = np.array([levels[index].floors for index in chosen], dtype=np.float64)
        rises = np.minimum(theil_sen_slope(floors) * (length - 1), floors[:, -1] - floors.min(axis=1)) / TENTHS
        found.update(zip(chosen, zip(mann_kendall_z(floors).tolist(), rises.tolist(), strict=True), strict=True))
    return found
