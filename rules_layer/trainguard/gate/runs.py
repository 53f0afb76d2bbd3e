"""One run as a gate compares it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainguard.formats.tensors.scalars.names import EVALUATION, LOSSES, has_meaning
from trainguard.ledger.bucket import Bucket

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_WORK = (
    "samples|sample|tokens|token|tok|images|image|imgs|img|examples|sequences|sentences|steps|step|iterations|iters|it|"
)
_THROUGHPUT = re.compile(
    rf"(?:.*_)?(?:throughput|tps|ips|fps|qps|wps|(?:{_WORK})_(?:per_)?(?:s|sec|secs|second|seconds))(?:_.*)?"
)
_STEP = "step|iter|iteration|batch"

_STEP_TIME = re.compile(
    rf"(?:.*_)?(?:(?:{_STEP})_(?:time|timing|duration|seconds|latency|ms|us|ns)|(?:time|seconds|secs?|ms)_per_(?:{_STEP})"
    rf"|(?:seconds|secs?|ms)_(?:{_STEP})|s_it)"
    r"(?:_.*)?"
)
_MEMORY = re.compile(r"(?:.*_)?(?:mem|memory|vram)(?:_.*)?")
_OF_HOST = re.compile(r"(?:^|_)(?:host|cpu|ram|percent|util|utilization|bandwidth|clock|time)(?:_|$)")
_UNITS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}


class Metric(StrEnum):
    STEP_TIME = "step_time"
    THROUGHPUT = "throughput"
    MEMORY = "memory"
    LOSS = "loss"
    GOODPUT = "goodput"


# Without one of them nothing says how fast a run is.
SPEEDS = (Metric.STEP_TIME, Metric.THROUGHPUT)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of the noise between repeats before any is seen: its variance is scaled inverse chi-squared.

    ``spread`` is the standard deviation of a run's level, as a natural logarithm or, of a share, in its unit;
    ``weight`` counts the runs that this knowledge is worth.
    """

    spread: float
    weight: float


@dataclass(frozen=True, slots=True)
class MetricKind:
    """``tolerance`` is the smallest change that must not pass: a part of the value, or of a share its points.

    ``measured`` tells a prior that was learnt from repeats from one that is assumed.
    """

    unit: str
    more_is_better: bool
    tolerance: float
    prior: Prior
    measured: bool = False
    is_share: bool = False

    @property
    def sign(self) -> float:
        """The factor on a value by which more is worse."""
        return -1.0 if self.more_is_better else 1.0


# Learnt from 800 published runs in 90 groups of repeats, docs/gate.md.
_SPEED = Prior(spread=0.0025, weight=3.0)

KINDS: Mapping[Metric, MetricKind] = {
    Metric.STEP_TIME: MetricKind("s", more_is_better=False, tolerance=0.02, prior=_SPEED, measured=True),
    Metric.THROUGHPUT: MetricKind("", more_is_better=True, tolerance=0.02, prior=_SPEED, measured=True),
    Metric.MEMORY: MetricKind("", more_is_better=False, tolerance=0.05, prior=Prior(0.003, 3.0)),
    Metric.LOSS: MetricKind("", more_is_better=False, tolerance=0.05, prior=Prior(0.015, 3.0)),
    Metric.GOODPUT: MetricKind("share", more_is_better=True, tolerance=0.05, prior=Prior(0.01, 3.0), is_share=True),
}

_WORK += "batches|frames|graphs|items|queries"


def metric_of(name: str) -> tuple[Metric, float] | None:
    """Return what a name of a column or scalar measures, and the factor to the unit of the metric; None of others."""
    plain = _SEPARATORS.sub("_", name.lower().replace("µ", "u").replace("μ", "u")).strip("_")
    if has_meaning(EVALUATION, name):
        return None
    if _STEP_TIME.fullmatch(plain):
        factor = next((size for unit, size in _UNITS.items() if unit in plain.split("_")), 1.0)
        return Metric.STEP_TIME, factor
    if _THROUGHPUT.fullmatch(plain):
        return Metric.THROUGHPUT, 1.0
    if plain.rpartition("_")[2] == "goodput":
        return Metric.GOODPUT, 1.0
    if _MEMORY.fullmatch(plain) and not _OF_HOST.search(plain):
        return Metric.MEMORY, 1.0
    return (Metric.LOSS, 1.0) if has_meaning(LOSSES, name) else None


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
