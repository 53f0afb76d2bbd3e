"""How busy each GPU of a node was over the whole job, in few steps of time: small enough to be stored each minute."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray

MOST_STEPS = 120
FIRST_WIDTH_S = 15


class UseStep(msgspec.Struct, frozen=True):
    """From ``start`` to ``end``, epoch seconds, the GPUs were ``percent`` busy on average."""

    start: float
    end: float
    percent: float


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How busy each of G GPUs was from ``start`` to ``end``, epoch seconds: ``means`` is float64[G], percent.

    A mean is over all samples of that time, and NaN without one.
    """

    start: float
    end: float
    means: FloatArray


class UseByTime(msgspec.Struct, array_like=True):
    """The mean utilization of each GPU, step by step; steps are fifteen seconds, and double while there are too many.

    ``sums`` and ``counts`` hold a number for each GPU in each step, sums in whole percents, so that equal snapshots
    give equal steps in whatever portions they came. ``first`` is the time of the first snapshot.
    """

    start: int | None = None
    width_s: int = FIRST_WIDTH_S
    sums: list[list[int]] = msgspec.field(default_factory=list)
    counts: list[list[int]] = msgspec.field(default_factory=list)
    first: float | None = None

    def add(self, times: FloatArray, utilization: FloatArray) -> None:
        """Take in snapshots: ``times`` float64[T], epoch seconds, and ``utilization`` float64[T, G], percent."""
        seen = ~np.isnan(utilization).all(axis=1) if utilization.size else np.zeros(len(times), dtype=bool)
        if not seen.any():
            return
        times, utilization = times[seen], utilization[seen]
        if self.start is None:
            self.start = int(times.min() // FIRST_WIDTH_S) * FIRST_WIDTH_S
            self.first = float(times.min())
        while (times.max() - self.start) // self.width_s >= MOST_STEPS:
            self._widen()
        places = np.maximum((times - self.start) // self.width_s, 0).astype(np.int64)
        known = ~np.isnan(utilization)
        percents = np.where(known, np.rint(utilization), 0.0).astype(np.int64)
        gpus = max(utilization.shape[1], *map(len, self.counts[:1]), 0)
        length = max(int(places.max()) + 1, len(self.counts))
        for place in np.unique(places).tolist():
            rows = places == place
            self.counts = _added(self.counts, place, known[rows].sum(axis=0), (length, gpus))
            self.sums = _added(self.sums, place, percents[rows].sum(axis=0), (length, gpus))

    def steps(self, until: float) -> Iterator[UseStep]:
        """Yield the steps with snapshots, oldest first; none reaches beyond ``until``, epoch seconds."""
        for place, (totals, counts) in enumerate(zip(self.sums, self.counts, strict=True)):
            if any(counts) and self.start is not None:
                begin = float(self.start + place * self.width_s)
                yield UseStep(begin, max(min(begin + self.width_s, until), begin), sum(totals) / sum(counts))

    def between(self, begin: float, end: float, until: float) -> GpuUse | None:
        """Return how busy each GPU was from ``begin`` to ``end``, as far as whole steps tell; None without a snapshot.

        It is over the steps whose middle lies there, or else over the one step in which that time lies. Snapshots reach
        up to ``until``; all times are epoch seconds.
        """
        if self.start is None or self.first is None:
            return None
        starts = np.maximum(self.start + self.width_s * np.arange(len(self.counts), dtype=np.float64), self.first)
        ends = np.minimum(self.start + self.width_s * np.arange(1.0, len(self.counts) + 1.0), until)
        middles = (starts + ends) / 2.0
        seen = np.array([any(counts) for counts in self.counts])
        chosen = np.flatnonzero((begin <= middles) & (middles <= end) & seen)
        if not chosen.size:
            chosen = np.flatnonzero((starts <= begin) & (end <= ends) & seen)
        if not chosen.size:
            return None
        sums, counts = (np.array([values[place] for place in chosen.tolist()]) for values in (self.sums, self.counts))
        total, number = sums.sum(axis=0).astype(np.float64), counts.sum(axis=0)
        means = np.divide(total, number, out=np.full(total.size, np.nan), where=number > 0)
        return GpuUse(float(starts[chosen[0]]), float(ends[chosen[-1]]), means)

    def _widen(self) -> None:
        self.width_s *= 2
        self.sums, self.counts = _paired(self.sums), _paired(self.counts)


def _added(table: list[list[int]], place: int, more: IntArray, shape: tuple[int, int]) -> list[list[int]]:
    """Return a table of so many steps and GPUs with ``more`` added to one step; GPUs may be more than before."""
    length, gpus = shape
    filled = [[*row, *[0] * (gpus - len(row))] for row in table] + [[0] * gpus for _ in range(length - len(table))]
    filled[place] = [one + other for one, other in zip(filled[place], [*more.tolist(), *[0] * gpus], strict=False)]
    return filled


def _paired(table: list[list[int]]) -> list[list[int]]:
    return [
        [sum(column) for column in zip(*table[place : place + 2], strict=True)] for place in range(0, len(table), 2)
    ]
