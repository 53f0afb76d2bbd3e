"""A series of numbers as means of blocks: a bounded state for a run of any length."""

import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

MOST_BLOCKS = 32
"""One more, and two blocks each become one: 16 to 32 blocks, or each value alone where there are fewer."""

HEAD = 4


class Series(msgspec.Struct, array_like=True):
    """Means of blocks of ``size`` values each, the last of them of ``filling`` values; ``steps`` are where they end.

    ``count`` counts values; ``first`` and ``last`` are the first and the newest, ``least`` and ``most`` the extremes.
    ``head`` are the first four, ``begins`` is the first step. ``times`` are whole epoch seconds at which blocks end,
    and ``began`` that of the first value; 0 of values that have no times. Values that are not finite are left to who
    adds them.
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
        """Return about when a block began, epoch seconds: when the one before it ended; None without times.

        Of values that each are a block of their own that is the time of the value itself.
        """
        if self.size == 1:
            return float(self.times[place]) or None
        return float(self.began if place == 0 else self.times[place - 1]) or None

    @property
    def whole(self) -> Sequence[float]:
        """The means of the blocks that are complete."""
        return self.means if self.filling == self.size else self.means[:-1]


def smoothed(values: Sequence[float]) -> list[float]:
    """Return the running medians of three values; the first and the last value stay."""
    inner = [median(values[place - 1 : place + 2]) for place in range(1, len(values) - 1)]
    return [*values[:1], *inner, *values[-1:]] if len(values) > 1 else list(values)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a value about the line through its neighbours, as their median distance says.

    A trend adds nothing to it. The distance has six times the variance of a value, and a normal one lies within 0.6745
    deviations in half of the cases.
    """
    bends = [
        abs(left - 2.0 * middle + right) for left, middle, right in zip(values, values[1:], values[2:], strict=False)
    ]
    return median(bends) / (0.6745 * math.sqrt(6.0)) if bends else 0.0


def level(values: Sequence[float], share: float, *, end: bool = False) -> float:
    """Return the mean of the first, or last, share of the values; of one at least."""
    count = max(1, round(share * len(values)))
    return fmean(values[-count:] if end else values[:count])
