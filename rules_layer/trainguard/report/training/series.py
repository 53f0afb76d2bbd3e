"""One number over steps, in a bounded number of points: where there are more, a point stands for several values."""

import math
import re
from typing import Literal, TypeVar

import msgspec

from trainguard.rules.training.run_series import XGBOOST_METRIC

MOST_POINTS = 400
"""Even, so that all points have a neighbour to be joined with."""

Kind = Literal["loss", "metric"]
N = TypeVar("N", int, float)


class Series(msgspec.Struct, kw_only=True):
    """A loss or a metric over global steps.

    Attributes
    ----------
    steps : list of int
        The first step of each point.
    at : list of float
        When that was saved, epoch seconds.
    mean, low, high : list of float or None
        Over the finite values of a point; None where there are none.
    counts : list of int
        How many values a point stands for.
    undefined : list of int
        How many of them were NaN or infinite.
    width : int
        How many values a point holds before the next one begins.
    seen : int
        How many steps held the tensor, read or not.
    """

    name: str
    mode: str
    kind: Kind
    steps: list[int] = msgspec.field(default_factory=list)
    at: list[float] = msgspec.field(default_factory=list)
    mean: list[float | None] = msgspec.field(default_factory=list)
    low: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)
    undefined: list[int] = msgspec.field(default_factory=list)
    width: int = 1
    seen: int = 0

    @property
    def read(self) -> int:
        return sum(self.counts)

    def add(self, step: int, at: float, value: float) -> None:
        """Take in the value of a step, which comes after those before."""
        finite = value if math.isfinite(value) else None
        if self.counts and self.counts[-1] < self.width:
            self._join(len(self.steps) - 1, finite, finite, finite, 1, int(finite is None))
            return
        if len(self.steps) >= MOST_POINTS:
            self._halve()
        self.steps.append(step)
        self.at.append(at)
        self.mean.append(finite)
        self.low.append(finite)
        self.high.append(finite)
        self.counts.append(1)
        self.undefined.append(int(finite is None))

    def _halve(self) -> None:
        for place in range(0, len(self.steps), 2):
            self._join(
                place,
                self.mean[place + 1],
                self.low[place + 1],
                self.high[place + 1],
                self.counts[place + 1],
                self.undefined[place + 1],
            )
        for column in (self.steps, self.at, self.mean, self.low, self.high, self.counts, self.undefined):
            del column[1::2]
        self.width *= 2

    def _join(
        self, place: int, mean: float | None, low: float | None, high: float | None, count: int, undefined: int
    ) -> None:
        own, own_count = self.mean[place], self.counts[place] - self.undefined[place]
        if own is None:
            self.mean[place], self.low[place], self.high[place] = mean, low, high
        elif mean is not None:
            share = (count - undefined) / (own_count + count - undefined)
            self.mean[place] = own * (1.0 - share) + mean * share
            self.low[place] = least(self.low[place], low)
            self.high[place] = most(self.high[place], high)
        self.counts[place] += count
        self.undefined[place] += undefined


def least(one: N | None, other: N | None) -> N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def most(one: N | None, other: N | None) -> N | None:
    return max((each for each in (one, other) if each is not None), default=None)


_OF_DATA = re.compile(r"^scalar/|^(?:val|eval|valid|validation|train|test)[_/]")


def quantity_of(name: str) -> str:
    """Return what a loss or metric measures, whatever data it is of: ``loss`` for ``val_loss``, ``rmse`` for others."""
    found = XGBOOST_METRIC.fullmatch(name)
    return found["metric"] if found else _OF_DATA.sub("", name)
