"""Whole histories of series, and the quantiles that reports give of them.

Quantiles are numpy's (type 7) on values in arrival order, so that ties fall as in the original. A ``Past`` becomes
numbers once, at the end: most boxes are overwritten.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray

WHISKER_IQRS = 1.5
_FIRST_CAPACITY = 1_024


class History:
    """Values of one series since the job's start, or since the rule dropped its state."""

    def __init__(self) -> None:
        self._values = np.empty(_FIRST_CAPACITY)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, values: FloatArray) -> None:
        """Append float64[n]."""
        size = self._size + len(values)
        if size > len(self._values):
            grown = np.empty(max(size, 2 * len(self._values)))
            grown[: self._size] = self._values[: self._size]
            self._values = grown
        self._values[self._size : size] = values
        self._size = size

    @property
    def values(self) -> FloatArray:
        """All values, oldest first; a view that later values do not change."""
        return self._values[: self._size]

    def last(self, count: float) -> FloatArray:
        """Return what the original's slice ``[-count:]`` does: everything for 0, all but the first for -1."""
        return self.values[-int(count) :]


class NodeHistories:
    """Histories by node and device, both in the order in which they were met."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, History]] = {}

    def of(self, node: str, name: str) -> History:
        """Return a device's history, a new one where there is none."""
        return self.nodes.setdefault(node, {}).setdefault(name, History())

    def __iter__(self) -> Iterator[tuple[str, str, History]]:
        return ((node, name, history) for node, devices in self.nodes.items() for name, history in devices.items())


@dataclass(frozen=True, slots=True)
class Past:
    """A history as it was when it had ``size`` values."""

    history: History
    size: int

    @property
    def values(self) -> FloatArray:
        """The values of then."""
        return self.history.values[: self.size]


@dataclass(frozen=True, slots=True)
class Box:
    """Numbers of a box plot; ``upper`` and ``lower`` reach 1.5 interquartile ranges, within the values."""

    smallest: float
    p05: float
    p25: float
    p50: float
    p75: float
    p95: float
    largest: float

    @classmethod
    def of(cls, values: FloatArray) -> "Box":
        """Compute the box of float64[n], n > 0."""
        return cls(*np.quantile(values, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)).tolist())

    def whiskers(self, p25_of_range: float | None = None) -> dict[str, float]:
        """Return ``upper`` and ``lower``; the interquartile range is p75 minus ``p25_of_range`` where that is given."""
        spread = self.p75 - (self.p25 if p25_of_range is None else p25_of_range)
        return {
            "upper": min(self.p75 + WHISKER_IQRS * spread, self.largest),
            "lower": max(self.p25 - WHISKER_IQRS * spread, self.smallest),
        }


def upper_quantile(values: FloatArray, quantile: float) -> float:
    """Return one quantile, NaN of nothing."""
    return float(np.quantile(values, quantile)) if values.size else float("nan")
