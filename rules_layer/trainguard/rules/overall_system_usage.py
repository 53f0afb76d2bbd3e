"""OverallSystemUsage: how much of a node was used, over the whole job; it never fires.

Source: AWS documentation of OverallSystemUsage (extremes and quantiles of network, GPU, CPU, memory and I/O for each
node). Every snapshot counts, start-up, pauses and tail included, because all of it was paid for.
"""

from typing import ClassVar

import numpy as np

from trainguard.records import Status
from trainguard.rules.overall_system_usage_text import text
from trainguard.rules.protocol import RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import SYSTEM, RuleSpec
from trainguard.rules.system_usage import UsageDetails, UsageState, facts_of, is_oversized, says_enough, usage_of
from trainguard.rules.warm_up import waiting
from trainguard.state.usage_counts import PercentCounts
from trainguard.telemetry.snapshots import FloatArray, Snapshots


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
    text=text,
    details=UsageDetails,
    section="trainguard.report.html.sections.overall_system_usage:blocks",
)


class OverallSystemUsage(SystemRule[OverallSystemUsageParameters, UsageState]):
    """Says how much of a node is used."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OverallSystemUsageParameters
    state_type = UsageState

    def clear_after_s(self, parameters: OverallSystemUsageParameters, interval_s: float) -> float:
        """There are no episodes."""
        del parameters, interval_s
        return 0.0

    def window_points(self, parameters: OverallSystemUsageParameters, interval_s: float) -> int:
        """Ask for no kept points: every snapshot is counted."""
        del parameters, interval_s
        return 0

    def observe(self, state: UsageState, minute: NodeMinute, parameters: OverallSystemUsageParameters) -> None:
        """Count the node's mean of every metric in each snapshot."""
        del parameters
        snapshots = minute.snapshots
        state.snapshots += len(snapshots)
        for metric, values in _percents(snapshots).items():
            sampled = values[~np.isnan(values)]
            if sampled.size:
                state.percents.setdefault(metric, PercentCounts()).add(sampled)
        state.traffic.add(snapshots.network)

    def judge(self, state: UsageState, view: NodeView, parameters: OverallSystemUsageParameters) -> RuleResult:
        """Say OK, with a sentence on the node's use."""
        del parameters
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
    counts = np.count_nonzero(~np.isnan(matrix), axis=1)
    means: FloatArray = np.divide(np.nansum(matrix, axis=1), counts, out=np.full(len(matrix), np.nan), where=counts > 0)
    return means
