"""How much of a node was used over the whole job: what is remembered, and what is shown."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
import numpy as np

from trainguard.finding import Fact
from trainguard.rules.details import SeriesDetails
from trainguard.rules.quantiles import counted_quantiles
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.units import points_in
from trainguard.state.usage_counts import Extremes, PercentCounts, TrafficCounts

USED_PERCENT = 70.0
"""Below it the documentation's report calls a node's CPU or GPUs under-utilised."""

MIN_SAID_POINTS, MIN_SAID_S = 20, 500.0
"""From fewer points, or a shorter time, nothing is concluded."""

NETWORK = "Network"
METRICS = (NETWORK, "GPU", "CPU", "CPU memory", "GPU memory", "I/O")
"""Names and order as in the managed service's report."""

METRIC_OF_SERIES: Mapping[str, str] = {
    "GPUUtilization": "GPU",
    "CPUUtilization": "CPU",
    "MemoryUsedPercent": "CPU memory",
    "GPUMemoryUtilization": "GPU memory",
    "I/OWaitPercentage": "I/O",
}
"""What a recorded series is called in the managed service's report, of those in percent."""

_QUANTILES = (0.99, 0.95, 0.5)


class UsageKind(StrEnum):
    """What is known of a node's use."""

    QUANTILES = "quantiles"
    MEDIANS = "medians"
    NETWORK_ALONE = "network_alone"
    NOTHING = "nothing"


class UsageState(msgspec.Struct, array_like=True):
    """How many snapshots were seen, and the counters of the metrics that had samples, by metric."""

    snapshots: int = 0
    percents: dict[str, PercentCounts] = msgspec.field(default_factory=dict)
    traffic: TrafficCounts = msgspec.field(default_factory=TrafficCounts)


class Percentiles(msgspec.Struct, frozen=True):
    """A metric of a node: percent, of the network bytes a second."""

    max: float
    p99: float
    p95: float
    p50: float
    min: float


class UsageDetails(SeriesDetails, frozen=True):
    """The metrics of a node that had samples."""

    series: dict[str, Percentiles]


def usage_of(state: UsageState) -> dict[str, Percentiles]:
    """Return max, p99, p95, p50 and min of the metrics that had samples, to two decimals, in the report's order."""
    levels = _QUANTILES
    usage = {}
    if state.percents:
        tables = np.array([counts.table() for counts in state.percents.values()])
        columns = counted_quantiles(tables, levels).T.tolist()
        for (metric, counts), quantiles in zip(state.percents.items(), columns, strict=True):
            usage[metric] = _statistics(counts, quantiles, 100.0)
    if state.traffic.largest is not None:
        usage[NETWORK] = _statistics(state.traffic, state.traffic.histogram.quantiles(levels), 1.0)
    return {metric: usage[metric] for metric in METRICS if metric in usage}


def _statistics(extremes: Extremes, quantiles: list[float], scale: float) -> Percentiles:
    smallest, largest = (extremes.smallest or 0) / scale, (extremes.largest or 0) / scale
    p99, p95, p50 = (min(max(value, smallest), largest) for value in quantiles)
    return Percentiles(*(round(value, 2) for value in (largest, p99, p95, p50, smallest)))


def is_oversized(usage: Mapping[str, Percentiles]) -> bool:
    """Tell whether neither GPUs nor CPU are put to use; not where one of them has no samples."""
    gpu, cpu = usage.get("GPU"), usage.get("CPU")
    return gpu is not None and cpu is not None and gpu.p95 < USED_PERCENT and cpu.p95 < USED_PERCENT


def says_enough(snapshots: int, interval_s: float) -> bool:
    """Tell whether so many snapshots are enough to say what a job is like: a start-up says nothing of it."""
    return snapshots >= max(MIN_SAID_POINTS, points_in(MIN_SAID_S, interval_s))


def facts_of(view: NodeView, usage: Mapping[str, Percentiles], *, enough: bool) -> tuple[UsageKind, tuple[Fact, ...]]:
    """Return medians of every percentage, and of GPUs and CPU the 95th percentiles where they are ``enough``."""
    shown = {metric: statistics for metric, statistics in usage.items() if metric != NETWORK}
    if not shown:
        kind = UsageKind.NETWORK_ALONE if NETWORK in usage else UsageKind.NOTHING
        return kind, (_fact("series", len(usage), view),)
    both = "GPU" in usage and "CPU" in usage
    chosen = {metric: shown[metric] for metric in ("GPU", "CPU")} if both else shown
    facts = [_percent("median_utilization", each.p50, metric, view) for metric, each in chosen.items()]
    if not both or not enough:
        return UsageKind.MEDIANS, tuple(facts)
    highs = [_percent("p95_utilization", each.p95, metric, view) for metric, each in chosen.items()]
    return UsageKind.QUANTILES, (*facts, *highs)


def _percent(name: str, value: float, metric: str, view: NodeView) -> Fact:
    series = next(series for series, named in METRIC_OF_SERIES.items() if named == metric)
    return _fact(name, value, view, unit="%", series=series)


def _fact(name: str, value: float, view: NodeView, unit: str = "", series: str | None = None) -> Fact:
    return Fact(
        name=name,
        value=value,
        unit=unit,
        series=series,
        node=view.node,
        start=view.first_sample_at,
        end=view.watermark_s,
    )
