"""Scales with round ticks, linear or logarithmic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_INTERVALS = 5
# Largest by smallest value from which a scale is logarithmic.
LOG_FROM_RATIO = 8.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps ``low`` to 0 and ``high`` to 100; values beyond are put on the edge."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        if self.logarithmic:
            place = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return 100.0 * min(max(place, 0.0), 1.0)


PERCENT = Scale(0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0))


def up_from_zero(highest: float) -> Scale:
    """Return a linear scale from 0 to a round number at or above ``highest``."""
    if not math.isfinite(highest) or highest <= 0.0:
        highest = 1.0
    step = round_step(highest / MOST_INTERVALS)
    intervals = max(math.ceil(highest / step - 1e-9), 1)
    return Scale(0.0, step * intervals, tuple(step * index for index in range(intervals + 1)))


def between(lowest: float, highest: float) -> Scale:
    """Return a linear scale whose ends are the data's, or about a single value; ticks lie inside."""
    if highest <= lowest:
        lowest, highest = lowest - 0.5 * (abs(lowest) or 1.0), highest + 0.5 * (abs(highest) or 1.0)
    step = round_step((highest - lowest) / MOST_INTERVALS)
    first, last = math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9)
    return Scale(lowest, highest, tuple(step * index for index in range(first, last + 1)))


def of_durations(lowest: float, highest: float) -> Scale:
    """Return a scale for positive values: logarithmic where they differ by much, else linear."""
    if lowest <= 0.0 or highest < LOG_FROM_RATIO * lowest:
        return between(lowest, highest)
    powers = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = [base * 10.0**power for power in powers for base in (1.0, 2.0, 5.0)]
    inside = [tick for tick in ticks if lowest <= tick <= highest]
    if len(inside) > MOST_INTERVALS + 1:
        inside = [10.0**power for power in powers if lowest <= 10.0**power <= highest]
    return Scale(lowest, highest, tuple(inside), logarithmic=True)


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least ``least`` (> 0)."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1.0 - 1e-9))


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Write ticks with as many decimals as their distance needs."""
    gaps = [after - before for before, after in pairwise(ticks)]
    least = min(gaps, default=1.0)
    decimals = 0 if least <= 0.0 else max(math.ceil(-math.log10(least) - 1e-9), 0)
    if least > 0.0 and abs(least * 10**decimals - round(least * 10**decimals)) > 1e-6:
        decimals += 1
    return [f"{tick:,.{decimals}f}" for tick in ticks]
