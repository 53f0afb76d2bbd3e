"""How much of a node was used over the whole job: what is remembered, what is shown, and what is said of it."""

from collections.abc import Mapping

import msgspec
import numpy as np

from trainguard.rules.details import SeriesDetails
from trainguard.rules.quantiles import counted_quantiles
from trainguard.rules.units import points_in, show_percent
from trainguard.state.usage_counts import Extremes, PercentCounts, TrafficCounts

USED_PERCENT = 70.0
"""Below it the documentation's report calls a node's CPU or GPUs under-utilised."""

MIN_SAID_POINTS, MIN_SAID_S = 20, 500.0
"""From fewer points, or a shorter time, nothing is concluded."""

NETWORK = "Network"
METRICS = (NETWORK, "GPU", "CPU", "CPU memory", "GPU memory", "I/O")
"""Names and order as in the managed service's report."""

_QUANTILES = (0.99, 0.95, 0.5)


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


def sentence_of(node: str, usage: Mapping[str, Percentiles], *, enough: bool = True) -> str:
    """Say in one sentence what the quantiles mean, by the thresholds of the managed service's report.

    Of too few snapshots it gives the numbers alone.
    """
    gpu, cpu = usage.get("GPU"), usage.get("CPU")
    if gpu is None or cpu is None:
        medians = ", ".join(
            f"{show_percent(statistics.p50)} of {metric}" for metric, statistics in usage.items() if metric != NETWORK
        )
        alone = "its network alone" if NETWORK in usage else "no metric that is summed up"
        return f"{node} uses, in the median, {medians}." if medians else f"{node} has samples of {alone}."
    medians = f"the medians are {show_percent(gpu.p50)} of GPU and {show_percent(cpu.p50)} of CPU"
    if not enough:
        return f"on {node} {medians}, over too short a time to say more."
    highs = f"95 % of the points are at or below {show_percent(gpu.p95)} of GPU and {show_percent(cpu.p95)} of CPU"
    if is_oversized(usage):
        return f"{node} is under-utilised: {highs}; a smaller instance may do."
    if gpu.p95 < USED_PERCENT < cpu.p95:
        return f"a CPU bottleneck on {node} is likely: {highs}."
    if gpu.p50 > USED_PERCENT:
        return f"{node} is well used: {medians}."
    return f"on {node} {medians}."
