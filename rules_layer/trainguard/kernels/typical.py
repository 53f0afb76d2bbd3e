"""The typical step of a rank: the middle half of its steps by length, so that an odd one moves no comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Floats, Ints
from trainguard.kernels.entries import PerStep, TypicalStep
from trainguard.kernels.times.gpu_times import GpuPart, mean_within
from trainguard.kernels.times.intervals import Spans
from trainguard.kernels.times.metrics import RankMetrics

_IDLE: Mapping[str, GpuPart] = {"idle_loader": "waits_for_loader", "idle_host": "waits_for_host"}
# The distance of the quartiles of a normal distribution, in its standard deviations.
_QUARTILES_OF_A_SIGMA = 1.349

# Of the steps: more time between them is a part of each.
WAITS_BETWEEN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Steps with their work on the GPU and the wait behind it: start and end, int64[N]; the middle ones' places."""

    start: Ints
    end: Ints
    middle: Ints

    @classmethod
    def of(cls, metrics: RankMetrics) -> "StepTable":
        if not len(metrics.window.steps):
            nothing = np.empty(0, dtype=np.int64)
            return cls(start=nothing, end=nothing, middle=nothing)
        start, end = _until_next(*metrics.steps_on_gpu(), metrics.window.steps.number)
        return cls(start=start, end=end, middle=middle_places(end - start))

    def entry(self, metrics: RankMetrics) -> TypicalStep | None:
        """Return the typical step; None without steps, or without work of a GPU."""
        if not len(self.middle) or not len(metrics.busy.start):
            return None
        every = _parts(metrics, self.start, self.end)
        parts, mean_parts = (_means(every, self.end - self.start, places) for places in (self.middle, slice(None)))
        return TypicalStep(
            steps=len(self.middle),
            of=len(self.start),
            duration_ns=sum(parts.values()),
            spread_ns=spread(self.end - self.start),
            parts=parts,
            mean_ns=sum(mean_parts.values()),
            mean_parts=mean_parts,
        )

    def share_of(self, start: Ints, lasted: Ints) -> PerStep | None:
        """Return the part of the typical step in runs of a kernel; a run is of the step in which it starts."""
        if not len(self.middle):
            return None
        place = Spans(self.start, self.end).place_of(start)
        inside = place >= 0
        count = len(self.start)
        runs = np.bincount(place[inside], minlength=count)
        time = np.bincount(place[inside], weights=lasted[inside], minlength=count)
        return PerStep(
            runs=round(float(runs[self.middle].mean()), 3),
            time_ns=round(float(time[self.middle].mean())),
            spread_ns=spread(time),
        )


def _until_next(start: Ints, end: Ints, number: Ints) -> tuple[Ints, Ints]:
    """Return steps up to the start of the next one, as some programs wait for data between them.

    Where they do, the last step is left out: how long it waits is not recorded.
    """
    until = end.copy()
    until[:-1] = np.where(np.diff(number) == 1, start[1:], end[:-1])
    waits = (until - end)[:-1].sum() > WAITS_BETWEEN * (end - start).sum()
    return (start[:-1], until[:-1]) if waits else (start, end)


def _parts(metrics: RankMetrics, start: Ints, end: Ints) -> dict[str, Floats | Ints]:
    waits = {name: mean_within(metrics.gpus, wait, start, end) for name, wait in _IDLE.items()}
    return metrics.gpu_parts(start, end) | waits


def _means(every: Mapping[str, Floats | Ints], lasted: Ints, places: Ints | slice) -> dict[str, int]:
    """Return the mean parts of some steps, which add up to their mean length."""
    parts = {name: round(float(values[places].mean())) for name, values in every.items()}
    return parts | {"idle_other": round(float(lasted[places].mean())) - sum(parts.values())}


def middle_places(lengths: Ints) -> Ints:
    """Return the places of the middle half of some lengths, in order: of three the middle one, of fewer all."""
    left = (len(lengths) + 1) // 4
    order = np.argsort(lengths, kind="stable")
    return np.sort(order[left : len(order) - left])


def spread(values: Sequence[float] | Ints) -> int:
    """Return the standard deviation of values as their quartiles say it, which a few odd ones do not move."""
    low, high = np.percentile(np.asarray(values, dtype=np.float64), (25, 75))
    return round(float(high - low) / _QUARTILES_OF_A_SIGMA)
