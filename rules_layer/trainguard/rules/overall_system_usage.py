"""OverallSystemUsage: how much of a node was used, over the whole job; it never fires.

Source: AWS documentation of OverallSystemUsage (extremes and quantiles of network, GPU, CPU, memory and I/O for each
node). Every snapshot counts, start-up, pauses and tail included, because all of it was paid for.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.judgement import Judgement
from trainguard.rules.protocol import RuleParameters, SystemRule
from trainguard.rules.quantiles import counted_quantiles
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.units import show_percent
from trainguard.rules.views import NodeMinute, NodeView
from trainguard.state.usage_counts import Extremes, PercentCounts, TrafficCounts
from trainguard.telemetry.snapshots import FloatArray, Snapshots

USED_PERCENT = 70.0
"""Below it the documentation's report calls a node's CPU or GPUs under-utilised."""

NETWORK = "Network"
METRICS = (NETWORK, "GPU", "CPU", "CPU memory", "GPU memory", "I/O")
"""Names and order as in the managed service's report."""

_QUANTILES = {"p99": 0.99, "p95": 0.95, "p50": 0.5}

Statistics = dict[str, float]


class OverallSystemUsageParameters(RuleParameters, frozen=True, kw_only=True):
    """The rule has none of its own."""


SPEC = RuleSpec(
    name="OverallSystemUsage",
    title="System usage",
    looks_at="each node",
    fires_when="never: it sums up what the machine did",
    condition="never; it sums up",
    inputs=SYSTEM,
    informs_only=True,
    section="trainguard.report.html.sections.overall_system_usage:blocks",
)


class OverallSystemUsageState(msgspec.Struct, array_like=True):
    """How many snapshots were seen, and the counters of the metrics that had samples, by metric."""

    snapshots: int = 0
    percents: dict[str, PercentCounts] = msgspec.field(default_factory=dict)
    traffic: TrafficCounts = msgspec.field(default_factory=TrafficCounts)


class OverallSystemUsage(SystemRule[OverallSystemUsageParameters, OverallSystemUsageState]):
    """Says how much of a node is used."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OverallSystemUsageParameters
    state_type = OverallSystemUsageState

    def clear_after_s(self, parameters: OverallSystemUsageParameters, interval_s: float) -> float:
        """There are no episodes."""
        del parameters, interval_s
        return 0.0

    def window_points(self, parameters: OverallSystemUsageParameters, interval_s: float) -> int:
        """Ask for no kept points: every snapshot is counted."""
        del parameters, interval_s
        return 0

    def observe(
        self, state: OverallSystemUsageState, minute: NodeMinute, parameters: OverallSystemUsageParameters
    ) -> None:
        """Count the node's mean of every metric in each snapshot."""
        del parameters
        snapshots = minute.snapshots
        state.snapshots += len(snapshots)
        for metric, values in _percents(snapshots).items():
            sampled = values[~np.isnan(values)]
            if sampled.size:
                state.percents.setdefault(metric, PercentCounts()).add(sampled)
        state.traffic.add(snapshots.network)

    def judge(
        self, state: OverallSystemUsageState, view: NodeView, parameters: OverallSystemUsageParameters
    ) -> Judgement:
        """Say OK, with a sentence on the node's use."""
        del parameters
        if not state.snapshots:
            return Judgement(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        usage = _usage(state)
        return Judgement(Status.OK, _summary(view.node, usage), data_points=state.snapshots, details=usage)


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
    counts = np.count_nonzero(~np.isnan(matrix), axis=1)
    means: FloatArray = np.divide(np.nansum(matrix, axis=1), counts, out=np.full(len(matrix), np.nan), where=counts > 0)
    return means


def _usage(state: OverallSystemUsageState) -> dict[str, Statistics]:
    """Return max, p99, p95, p50 and min of the metrics that had samples, to two decimals, in the report's order."""
    levels = tuple(_QUANTILES.values())
    usage = {}
    if state.percents:
        tables = np.array([counts.table() for counts in state.percents.values()])
        columns = counted_quantiles(tables, levels).T.tolist()
        for (metric, counts), quantiles in zip(state.percents.items(), columns, strict=True):
            usage[metric] = _statistics(counts, quantiles, 100.0)
    if state.traffic.largest is not None:
        usage[NETWORK] = _statistics(state.traffic, state.traffic.histogram.quantiles(levels), 1.0)
    return {metric: usage[metric] for metric in METRICS if metric in usage}


def _statistics(extremes: Extremes, quantiles: list[float], scale: float) -> Statistics:
    smallest, largest = (extremes.smallest or 0) / scale, (extremes.largest or 0) / scale
    between = {name: min(max(value, smallest), largest) for name, value in zip(_QUANTILES, quantiles, strict=True)}
    return {name: round(value, 2) for name, value in {"max": largest, **between, "min": smallest}.items()}


def _summary(node: str, usage: Mapping[str, Statistics]) -> str:
    """Say in one sentence what the quantiles mean, by the thresholds of the managed service's report."""
    gpu, cpu = usage.get("GPU"), usage.get("CPU")
    if gpu is None or cpu is None:
        medians = ", ".join(
            f"{show_percent(statistics['p50'])} of {metric}"
            for metric, statistics in usage.items()
            if metric != NETWORK
        )
        alone = "its network alone" if NETWORK in usage else "no metric that is summed up"
        return f"{node} uses, in the median, {medians}." if medians else f"{node} has samples of {alone}."
    highs = (
        f"95 % of the points are at or below {show_percent(gpu['p95'])} of GPU and {show_percent(cpu['p95'])} of CPU"
    )
    if gpu["p95"] < USED_PERCENT and cpu["p95"] < USED_PERCENT:
        return f"{node} is under-utilised: {highs}; a smaller instance may do."
    if gpu["p95"] < USED_PERCENT < cpu["p95"]:
        return f"a CPU bottleneck on {node} is likely: {highs}."
    medians = f"the medians are {show_percent(gpu['p50'])} of GPU and {show_percent(cpu['p50'])} of CPU"
    if gpu["p50"] > USED_PERCENT:
        return f"{node} is well used: {medians}."
    return f"on {node} {medians}."
