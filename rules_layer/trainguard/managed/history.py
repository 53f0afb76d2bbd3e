"""Whole histories of series, and the quantiles that reports give of them.

Quantiles are numpy's (type 7) on values in arrival order, so that ties fall as in the original.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray
from trainguard.managed.system_stream import SeriesSamples, pieces_between_resets

WHISKER_IQRS = 1.5
_FIRST_CAPACITY = 1_024


class ManagedHistory:
    """Values of one series since the job's start, or since the rule dropped its state."""

    def __init__(self) -> None:
        self._values = np.empty(_FIRST_CAPACITY)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, values: FloatArray) -> None:
        size = self._size + len(values)
        if size > len(self._values):
            grown = np.empty(max(size, 2 * len(self._values)))
            grown[: self._size] = self._values[: self._size]
            self._values = grown
        self._values[self._size : size] = values
        self._size = size

    @property
    def values(self) -> FloatArray:
        """All values, oldest first; a view that later values do not change: a rule keeps it for its report."""
        return self._values[: self._size]

    def last(self, count: float) -> FloatArray:
        """Return what the original's slice ``[-count:]`` does: everything for 0, all but the first for -1."""
        return self.values[-int(count) :]


class NodeHistories:
    """Histories by node and device, both in the order in which they were met.

    ``points`` is the number of values of the series whose sample came last.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, ManagedHistory]] = {}
        self.points = 0

    def of(self, node: str, name: str) -> ManagedHistory:
        return self.nodes.setdefault(node, {}).setdefault(name, ManagedHistory())

    def extend(self, samples: Iterable[SeriesSamples]) -> None:
        for part in samples:
            self.of(part.node, part.name).extend(part.values)

    def pieces(self, samples: Sequence[SeriesSamples], limit: int) -> Iterator[list[SeriesSamples]]:
        """Append a window's samples piece by piece; all state is dropped behind a value beyond ``limit``."""
        sizes = {(node, name): len(history) for node, name, history in self}
        for number, piece in enumerate(pieces_between_resets(samples, sizes, limit)):
            if number:
                self.nodes = {}
            self.extend(piece)
            if piece:
                last = max(piece, key=lambda part: int(part.rows[-1]))
                self.points = len(self.of(last.node, last.name))
            yield piece

    def __iter__(self) -> Iterator[tuple[str, str, ManagedHistory]]:
        return ((node, name, history) for node, devices in self.nodes.items() for name, history in devices.items())


def box(values: FloatArray, *, p25_of_range: float | None = None) -> dict[str, float]:
    """Return the numbers of a box plot of float64[n], n > 0: min, max, percentiles, and the whiskers.

    ``upper`` and ``lower`` reach 1.5 interquartile ranges, within the values; the range is p75 minus ``p25_of_range``
    where that is given.
    """
    smallest, p05, p25, p50, p75, p95, largest = np.quantile(values, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)).tolist()
    spread = p75 - (p25 if p25_of_range is None else p25_of_range)
    return {
        "min": smallest,
        "max": largest,
        "p05": p05,
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + WHISKER_IQRS * spread, largest),
        "lower": max(p25 - WHISKER_IQRS * spread, smallest),
    }


QUARTILES = ("p25", "p50", "p75", "p95", "upper", "lower")


def chosen(numbers: dict[str, float], names: Iterable[str] = QUARTILES) -> dict[str, float]:
    """Return some numbers of a box, in the order of the names."""
    return {name: numbers[name] for name in names}


def upper_quantile(values: FloatArray, quantile: float) -> float:
    """Return one quantile, NaN of nothing."""
    return float(np.quantile(values, quantile)) if values.size else float("nan")
