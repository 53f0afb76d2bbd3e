"""How busy a node's GPUs were over the whole job, in few steps of time: small enough to be stored with every minute."""

from collections.abc import Iterator

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray

MOST_STEPS = 120
FIRST_WIDTH_S = 60


class UseStep(msgspec.Struct, frozen=True):
    """From ``start`` to ``end``, epoch seconds, the GPUs were ``percent`` busy on average."""

    start: float
    end: float
    percent: float


class UseByTime(msgspec.Struct, array_like=True):
    """The mean utilization of a node's GPUs, step by step; steps are a minute, and double while there are too many.

    ``sums`` and ``counts`` are of the snapshots of each step, in whole percents, so that equal snapshots give equal
    steps in whatever portions they came.
    """

    start: int | None = None
    width_s: int = FIRST_WIDTH_S
    sums: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)

    def add(self, times: FloatArray, utilization: FloatArray) -> None:
        """Take in snapshots: ``times`` float64[T], epoch seconds, and ``utilization`` float64[T, G], percent."""
        seen = ~np.isnan(utilization).all(axis=1) if utilization.size else np.zeros(len(times), dtype=bool)
        if not seen.any():
            return
        times, percents = times[seen], np.rint(np.nanmean(utilization[seen], axis=1)).astype(np.int64)
        if self.start is None:
            self.start = int(times.min() // FIRST_WIDTH_S) * FIRST_WIDTH_S
        while (times.max() - self.start) // self.width_s >= MOST_STEPS:
            self._widen()
        places = np.maximum((times - self.start) // self.width_s, 0).astype(np.int64)
        length = max(int(places.max()) + 1, len(self.counts))
        added = np.bincount(places, minlength=length).tolist()
        sums = np.bincount(places, weights=percents, minlength=length).astype(np.int64).tolist()
        self.counts = [one + other for one, other in zip(_filled(self.counts, length), added, strict=True)]
        self.sums = [one + other for one, other in zip(_filled(self.sums, length), sums, strict=True)]

    def steps(self, until: float) -> Iterator[UseStep]:
        """Yield the steps with snapshots, oldest first; none reaches beyond ``until``, epoch seconds."""
        for place, (total, count) in enumerate(zip(self.sums, self.counts, strict=True)):
            if count and self.start is not None:
                begin = float(self.start + place * self.width_s)
                yield UseStep(begin, max(min(begin + self.width_s, until), begin), total / count)

    def _widen(self) -> None:
        self.width_s *= 2
        self.sums, self.counts = _paired(self.sums), _paired(self.counts)


def _filled(values: list[int], length: int) -> list[int]:
    return [*values, *[0] * (length - len(values))]


def _paired(values: list[int]) -> list[int]:
    return [sum(values[place : place + 2]) for place in range(0, len(values), 2)]
