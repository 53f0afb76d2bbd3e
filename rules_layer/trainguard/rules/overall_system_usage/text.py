"""Kinds of judgements of OverallSystemUsage, and their words."""

from collections.abc import Mapping

from trainguard.core.units import listed
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows import or_undecided

# Names of recorded series in percent in the managed service's report.
METRIC_OF_SERIES: Mapping[str, str] = {
    "GPUUtilization": "GPU",
    "CPUUtilization": "CPU",
    "MemoryUsedPercent": "CPU memory",
    "GPUMemoryUtilization": "GPU memory",
    "I/OWaitPercentage": "I/O",
}
KINDS = QUANTILES, MEDIANS, NETWORK_ALONE, NOTHING = "quantiles", "medians", "network_alone", "nothing"


@or_undecided
def text(sheet: FactSheet) -> Words:
    medians, highs = (
        listed([f"{fact} of {METRIC_OF_SERIES[fact.series or '']}" for fact in sheet.all(name)])
        for name in ("median_utilization", "p95_utilization")
    )
    return sheet.fill(_WORDS[sheet.kind], medians=medians, highs=highs)


_WORDS = {
    NETWORK_ALONE: Words("{node} has samples of its network alone."),
    NOTHING: Words("{node} has samples of no metric that is summed up."),
    MEDIANS: Words("on {node} the medians are {medians}."),
    QUANTILES: Words("on {node} the medians are {medians}, and 95 % of the points are at or below {highs}."),
}
