"""OverallSystemUsage: how much of a node was used; it never fires. Source: AWS documentation of OverallSystemUsage."""

from collections.abc import Mapping

import msgspec
import numpy as np

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray, Snapshots, points_in
from trainguard.render.details import SeriesDetails
from trainguard.rules.overall_system_usage.text import (
    MEDIANS,
    METRIC_OF_SERIES,
    NETWORK_ALONE,
    NOTHING,
    QUANTILES,
    text,
)
from trainguard.rules.protocol import RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.sample_statistics import counted_quantiles, means_of, sampled
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.windows import waiting
from trainguard.state.histogram import Extremes, PercentCounts, TrafficCounts

# Below it the documentation's report calls a node's CPU or GPUs under-utilised.
USED_PERCENT = 70.0
# From fewer points, or a shorter time, nothing is concluded.
MIN_SAID_POINTS, MIN_SAID_S = 20, 500.0

NETWORK = "Network"
METRICS = (NETWORK, "GPU", "CPU", "CPU memory", "GPU memory", "I/O")


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
    return snapshots >= max(MIN_SAID_POINTS, points_in(MIN_SAID_S, interval_s))


def facts_of(view: NodeView, usage: Mapping[str, Percentiles], *, enough: bool) -> tuple[str, tuple[Fact, ...]]:
    shown = {metric: statistics for metric, statistics in usage.items() if metric != NETWORK}
    if not shown:
        kind = NETWORK_ALONE if NETWORK in usage else NOTHING
        return kind, (view.fact("series", len(usage)),)
    both = "GPU" in usage and "CPU" in usage
    chosen = {metric: shown[metric] for metric in ("GPU", "CPU")} if both else shown
    facts = [_percent("median_utilization", each.p50, metric, view) for metric, each in chosen.items()]
    if not both or not enough:
        return MEDIANS, tuple(facts)
    highs = [_percent("p95_utilization", each.p95, metric, view) for metric, each in chosen.items()]
    return QUANTILES, (*facts, *highs)


def _percent(name: str, value: float, metric: str, view: NodeView) -> Fact:
    series = next(series for series, named in METRIC_OF_SERIES.items() if named == metric)
    return view.fact(name, value, unit="%", series=series)


class OverallSystemUsage(SystemRule[RuleParameters, UsageState]):
    spec = RuleSpec(
        name="OverallSystemUsage",
        title="System usage",
        looks_at="each node",
        fires_when="never: it sums up what the machine did",
        condition="never; it sums up",
        inputs=SYSTEM,
        informs_only=True,
        text=text,
        details=UsageDetails,
        section="trainguard.rules.overall_system_usage.section:blocks",
    )

    clear_s = 0.0

    def observe(self, state: UsageState, minute: NodeMinute, parameters: RuleParameters) -> None:
        snapshots = minute.snapshots
        state.snapshots += len(snapshots)
        for metric, values in _percents(snapshots).items():
            if not np.isnan(values).all():
                state.percents.setdefault(metric, PercentCounts()).add(sampled(values))
        state.traffic.add(snapshots.network)

    def judge(self, state: UsageState, view: NodeView, parameters: RuleParameters) -> RuleResult:
        if not state.snapshots:
            return waiting(view)
        usage, enough = usage_of(state), says_enough(state.snapshots, view.interval_s)
        kind, facts = facts_of(view, usage, enough=enough)
        return RuleResult.of(
            text,
            Status.OK,
            kind,
            facts,
            data_points=state.snapshots,
            oversized=enough and is_oversized(usage),
            details=UsageDetails(usage) if view.detailed else {},
        )


def _percents(snapshots: Snapshots) -> dict[str, FloatArray]:
    """Return the node's mean of every metric in percent: float64[T] each, NaN where a snapshot has no sample."""
    return {
        "GPU": _row_means(snapshots.gpu_utilization),
        "CPU": snapshots.cpu_mean,
        "CPU memory": snapshots.host_memory,
        "GPU memory": _row_means(snapshots.gpu_memory),
        "I/O": snapshots.io_wait_mean,
    }


def _row_means(matrix: FloatArray) -> FloatArray:
    return means_of(np.nansum(matrix, axis=1), np.count_nonzero(~np.isnan(matrix), axis=1))
