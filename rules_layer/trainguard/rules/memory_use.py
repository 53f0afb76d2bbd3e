"""GPU memory in use, minute by minute: whether its floors rise as those of a leak do.

A leak rises by about as much in each part of its time, and never gives back. What is told from it: a sawtooth gives
back, a cache that fills rises ever more slowly, and longer sequences or another batch are jumps to a level.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import msgspec

from trainguard.rules.rule_inputs import NodeMinute
from trainguard.telemetry import devices as names

HUNDREDTHS = 100.0
"""Levels are stored as whole hundredths of a percent of the GPU's memory."""

MOST_LEVELS, LEAST_LEVELS = 24, 6
LEAST_S, NEARLY_FULL_S, NEARLY_FULL = 3_600.0, 1_800.0, 85.0
"""A rise of fewer levels, or of a shorter time, may be a cache that fills; half of it is enough near the end."""

LEFT = 0.1
"""A rise has begun where a level has left the lowest by this share of it."""

GAVE_BACK = 0.25
"""What falls by more than this share of its rise gives memory back."""

LARGEST_STEP = 1.0 / 3.0
"""A rise of which a larger share comes at once is a jump."""

RISING = 0.6
"""So many of the levels lie above the one before: else it is a staircase of a few jumps."""

NEWEST_PACE = 0.75
"""In its newest third a leak rises at this share of its pace at least; a cache that fills does not."""

MOST_GPUS = 64
MINUTE_S = 60.0

LEVEL_S, MISSED_POINTS = 180.0, 1.0
"""Memory rises no more once that lasts so long, and would have brought so many percentage points at its pace."""

HIGHER = 10
"""What is so many hundredths of a percent above the highest minute so far has risen."""


class UseLevels(msgspec.Struct, array_like=True):
    """Floors of one device's memory in use, hundredths of a percent of ``total`` bytes.

    ``levels`` are the lowest of each ``stride`` minutes in a row, ``lowest`` that of the ``pending`` ones that are
    fewer. ``newest`` is the floor of the newest minute, at epoch seconds ``at``, ``largest`` the largest sample.
    ``peak`` is the highest of those floors, which was reached at ``risen_at``, epoch seconds.
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

    def add(self, floor: float, largest: float, at: float) -> None:
        """Add one minute, by its floor and its largest sample in bytes."""
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
        """The newest floor, percent."""
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
        """In how many seconds the memory is full, of what rises, at this rate."""
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
        """Return percentage points of this device's memory in bytes."""
        return points / 100.0 * self.use.total


def fold_use(in_use: dict[str, UseLevels], minute: NodeMinute) -> None:
    """Add the minute to every device whose memory in use, and in all, is known, after start-up.

    Whether an instance of a partitioned GPU works is not known: it counts from its first minute on.
    """
    has_started = bool(minute.started.any())
    totals = minute.devices.of(names.MEMORY_TOTAL)
    for device, used in minute.devices.of(names.MEMORY_USED).items():
        if not (has_started or device in minute.view.mig_names):
            continue
        use = in_use.get(device)
        if use is None:
            total = totals[device].last if device in totals else 0.0
            if total <= 0.0 or len(in_use) >= MOST_GPUS:
                continue
            use = in_use[device] = UseLevels(total)
        use.add(used.least, used.greatest, float(used.times[-1]))


def rises_of(in_use: dict[str, UseLevels]) -> list[UseRise]:
    """Return how the memory in use of each device rose up to now."""
    return [_rise_of(device, use) for device, use in in_use.items()]


def _rise_of(device: str, use: UseLevels) -> UseRise:
    levels = _since_jump(use.levels)
    lowest = min(levels)
    span = levels[-1] - lowest
    begin = max(index for index, level in enumerate(levels) if level <= lowest + LEFT * span)
    rising = levels[begin:]
    minutes = (len(rising) - 1) * use.stride
    hourly = 60.0 * (rising[-1] - rising[0]) / HUNDREDTHS / minutes if minutes else 0.0
    least_s = NEARLY_FULL_S if use.percent >= NEARLY_FULL else LEAST_S
    is_long = use.stride * len(rising) * MINUTE_S >= least_s
    is_steady = is_long and _is_steady(rising) and not _gave_back(use.levels, rising)
    return UseRise(device, use, span / HUNDREDTHS, minutes, hourly, is_steady=is_steady)


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
    """Tell whether levels rise evenly, without giving back, and still do."""
    risen = rising[-1] - rising[0]
    steps = [after - before for before, after in pairwise(rising)]
    if len(rising) < LEAST_LEVELS or max(steps) > LARGEST_STEP * risen:
        return False
    if sum(step > 0 for step in steps) < RISING * len(steps) or -min(steps) > GAVE_BACK * risen:
        return False
    third = max(len(steps) // 3, 2)
    return sum(steps[-third:]) / third >= NEWEST_PACE * risen / len(steps)


def _gave_back(levels: list[int], rising: list[int]) -> bool:
    """Tell whether memory rose before and was given back: then this rise will be, too."""
    fallen = max(highest - level for highest, level in zip(accumulate(levels, max), levels, strict=True))
    return fallen > GAVE_BACK * (rising[-1] - rising[0])
