"""A series of numbers as means of blocks, a bounded state for a run of any length, and its trend.

How many pairs of values are in order says it, so that neither the scale nor an outlier matters. It needs independent
noise, so it compares blocks' means.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.rules.sample_statistics import mann_kendall_z

# One more, and two blocks each become one: 16 to 32 blocks, or each value alone where there are fewer.
MOST_BLOCKS = 32

HEAD = 4


class Series(msgspec.Struct, array_like=True):
    """Means of blocks of ``size`` values each, the last of them of ``filling`` values; ``steps`` are where they end.

    ``head`` are the first four values, ``begins`` is the first step. ``times`` are epoch seconds at which blocks end,
    and ``began`` that of the first value; 0 without times. Callers leave out values that are not finite.
    """

    count: int = 0
    size: int = 1
    filling: int = 0
    means: list[float] = msgspec.field(default_factory=list)
    steps: list[int] = msgspec.field(default_factory=list)
    first: float = 0.0
    begins: int = 0
    last: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    head: list[float] = msgspec.field(default_factory=list)
    times: list[int] = msgspec.field(default_factory=list)
    began: int = 0

    def add(self, step: int, value: float, at: float | None = None) -> None:
        """Take in the value of a step, saved at ``at``, epoch seconds; None where it has no time."""
        time = 0 if at is None else int(at)
        if self.count == 0:
            self.first, self.begins, self.began = value, step, time
        if len(self.head) < HEAD:
            self.head.append(value)
        self.count += 1
        self.last, self.least, self.most = value, min(self.least, value), max(self.most, value)
        if self.means and self.filling < self.size:
            self.means[-1] += (value - self.means[-1]) / (self.filling + 1)
            self.steps[-1], self.times[-1] = step, time
            self.filling += 1
            return
        if len(self.means) >= MOST_BLOCKS:
            self.means = [
                left / 2.0 + right / 2.0 for left, right in zip(self.means[::2], self.means[1::2], strict=True)
            ]
            self.steps, self.times = self.steps[1::2], self.times[1::2]
            self.size *= 2
        self.means.append(value)
        self.steps.append(step)
        self.times.append(time)
        self.filling = 1

    def begin_of(self, place: int) -> float | None:
        """Return about when a block began, epoch seconds: when the one before it ended; None without times."""
        if self.size == 1:
            return float(self.times[place]) or None
        return float(self.began if place == 0 else self.times[place - 1]) or None

    @property
    def whole(self) -> Sequence[float]:
        return self.means if self.filling == self.size else self.means[:-1]


def smoothed(values: Sequence[float]) -> list[float]:
    """Return the running medians of three values; the first and the last value stay."""
    inner = [median(values[place - 1 : place + 2]) for place in range(1, len(values) - 1)]
    return [*values[:1], *inner, *values[-1:]] if len(values) > 1 else list(values)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a value about the line through its neighbours, by their median distance.

    The distance has six times the variance of a value; a normal one lies within 0.6745 deviations in half of the cases.
    """
    bends = [
        abs(left - 2.0 * middle + right) for left, middle, right in zip(values, values[1:], values[2:], strict=False)
    ]
    return median(bends) / (0.6745 * math.sqrt(6.0)) if bends else 0.0


def steady_noise(values: Sequence[float], *, falls: bool = False) -> float:
    """Return the noise of values; three in a row that go up have none, however steep, nor that go down if ``falls``."""
    bends = [
        0.0 if left <= middle <= right or (falls and left >= middle >= right) else abs(left - 2.0 * middle + right)
        for left, middle, right in zip(values, values[1:], values[2:], strict=False)
    ]
    return median(bends) / (0.6745 * math.sqrt(6.0)) if bends else 0.0


# A share of the start: of a loss that fell by less, nobody says that its fall is gone again.
REAL_FALL = 0.2

CLEAR_NOISE = 4.0


def level(values: Sequence[float], share: float, *, end: bool = False) -> float:
    """Return the mean of the first, or last, share of the values; of one at least."""
    count = max(1, round(share * len(values)))
    return fmean(values[-count:] if end else values[:count])


# With fewer values no order is surprising: of four, one in 24 is sorted by chance.
FEWEST = 5


def z_score(values: Sequence[float]) -> float:
    """Return by how many standard deviations more pairs rise than fall: below 0 for a fall; 0 of fewer than five."""
    return float(mann_kendall_z(np.array([values], dtype=np.float64))[0]) if len(values) >= FEWEST else 0.0


# Standard deviations: Mann and Kendall's test at 5 % on two sides.
NO_TREND = 1.96

TAIL = 0.25


def tail(series: Series) -> float:
    """Return the mean of the last quarter."""
    return level(series.means, TAIL, end=True)


def fall(loss: Series) -> float:
    """Return by which share of its size at the start a loss fell until the last quarter; below 0 for a rise."""
    start = loss.means[0]
    return (start - tail(loss)) / abs(start) if start else 0.0


def unit(score: Series) -> float:
    """Return the range of a score: 100 of one in per cent, else 1."""
    return 100.0 if score.most > 1.5 else 1.0


def gain(score: Series) -> float:
    """Return by which share of its range a score rose above its start at most, but for single values."""
    best = max(smoothed(score.means))
    last = fmean(score.means[-max(1, len(score.means) // 4) :])
    return (max(best if z_score(score.whole) > NO_TREND else last, last) - score.means[0]) / unit(score)


def level_of(name: str, series_name: str, value: float) -> Fact:
    return Fact(name=name, value=value, series=series_name)


def step_number(name: str, value: int) -> Fact:
    return Fact(name=name, value=value, unit="steps")


def first_facts(name: str, series: Series, prefix: str = "loss") -> tuple[Fact, ...]:
    """Return where a series began: the first value, or of a long one the mean of its first values."""
    began, end = float(series.began) or None, float(series.times[0]) or None
    first = Fact(name=f"{prefix}_first", value=series.means[0], series=name, start=began, end=end)
    facts = first, step_number(f"{prefix}_first_step", series.begins)
    if series.size == 1:
        return facts
    values = Fact(name=f"{prefix}_first_values", value=series.size)
    return *facts, values, step_number(f"{prefix}_first_until", series.steps[0])


def last_facts(name: str, series: Series, prefix: str = "loss") -> tuple[Fact, ...]:
    """Return the mean of the last quarter of a series, and the step at which it ends."""
    return (level_of(f"{prefix}_last", name, tail(series)), step_number(f"{prefix}_last_step", series.steps[-1]))


def end_facts(name: str, series: Series, prefix: str = "loss") -> tuple[Fact, ...]:
    return (*first_facts(name, series, prefix), *last_facts(name, series, prefix))
