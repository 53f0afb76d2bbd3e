"""One run as a gate compares it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainguard.gate.metrics import Metric
from trainguard.ledger.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Points:
    """Values of a scalar: ``steps`` int64[S] in order, each once, ``values`` float64[S] in the metric's unit."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class GateRun:
    """What was read of a run; ``series`` are by metric and by the name of the scalar.

    ``nodes`` are step times by node. ``ledger`` holds GPU-seconds by bucket, None where none is known, of ``steps``
    steps. ``about`` says on what it ran: GPU, GPUs, nodes, batch. ``failed``: what recorded it says that it did not end
    well. ``notes`` are sentences on what could not be used.
    """

    place: str
    series: Mapping[Metric, Mapping[str, Points]] = field(default_factory=dict)
    nodes: Mapping[str, Points] = field(default_factory=dict)
    ledger: Mapping[Bucket, float] | None = None
    steps: int | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    failed: bool = False
    notes: tuple[str, ...] = ()

    def points(self, metric: Metric, name: str) -> Points:
        return self.series[metric][name]

    def names(self, metric: Metric) -> frozenset[str]:
        return frozenset(self.series.get(metric, {}))

    @property
    def longest(self) -> Points | None:
        """The longest series of a speed; of a run without one, of a loss."""
        found = [
            each for metric in (Metric.STEP_TIME, Metric.THROUGHPUT, Metric.LOSS)
            for each in self.series.get(metric, {}).values()
        ]  # fmt: skip
        return max(found, key=len, default=None)
