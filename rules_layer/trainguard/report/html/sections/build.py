"""The sections of a page: every rule that has something to show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.records import Status
from trainguard.report.document import FindingEntry, Report, RuleEntry
from trainguard.report.html.blocks import Block
from trainguard.report.html.sections import (
    batch_size,
    bottlenecks,
    dataloader,
    fallback,
    gpu_memory_increase,
    load_balancing,
    low_gpu_utilization,
    max_initialization_time,
    overall_framework_metrics,
    overall_system_usage,
    step_outlier,
)

SECTIONS: Mapping[str, Callable[[RuleEntry], list[Block]]] = {
    "LowGPUUtilization": low_gpu_utilization.blocks,
    "CPUBottleneck": bottlenecks.blocks,
    "IOBottleneck": bottlenecks.blocks,
    "BatchSize": batch_size.blocks,
    "GPUMemoryIncrease": gpu_memory_increase.blocks,
    "LoadBalancing": load_balancing.blocks,
    "StepOutlier": step_outlier.blocks,
    "Dataloader": dataloader.blocks,
    "MaxInitializationTime": max_initialization_time.blocks,
    "OverallSystemUsage": overall_system_usage.blocks,
    "OverallFrameworkMetrics": overall_framework_metrics.blocks,
}

TITLES: Mapping[str, str] = {
    "LowGPUUtilization": "GPU utilization",
    "CPUBottleneck": "CPU bottlenecks",
    "IOBottleneck": "I/O bottlenecks",
    "BatchSize": "Batch size",
    "GPUMemoryIncrease": "GPU memory increase",
    "LoadBalancing": "Workload balance",
    "StepOutlier": "Step durations",
    "Dataloader": "Data loading",
    "MaxInitializationTime": "Initialization",
    "OverallSystemUsage": "System usage",
    "OverallFrameworkMetrics": "Framework time",
}

OVERVIEWS = frozenset({"OverallSystemUsage", "OverallFrameworkMetrics"})
"""Rules that never fire: what they show is meant to be read in any case."""


@dataclass(frozen=True, slots=True)
class Section:
    """A rule's section; ``is_open`` tells whether it is shown without a click."""

    entry: RuleEntry
    finding: FindingEntry | None
    title: str
    anchor: str
    blocks: Sequence[Block]

    @property
    def fired(self) -> bool:
        """Whether the rule has fired, be it over by now."""
        return has_fired(self.entry)

    @property
    def is_open(self) -> bool:
        """Whether the section is shown without a click."""
        return self.fired or self.entry.rule in OVERVIEWS or self.entry.status == Status.ERROR


def has_fired(entry: RuleEntry) -> bool:
    """Whether a rule has fired, be it over by now."""
    return entry.times_fired > 0 or entry.status == Status.FIRED


def sections_of(report: Report) -> list[Section]:
    """Return the sections in the report's order of rules; a rule that has nothing to show has none."""
    findings = {finding.rule: finding for finding in report.findings}
    sections = []
    for number, entry in enumerate(report.rules):
        blocks = _blocks(entry)
        if blocks or has_fired(entry):
            title = TITLES.get(entry.rule, entry.rule)
            sections.append(Section(entry, findings.get(entry.rule), title, anchor_of(entry.rule, number), blocks))
    return sections


def anchor_of(rule: str, number: int) -> str:
    """Return where a rule is on the page: ``rule-LowGPUUtilization``, or by its number when the name is unknown."""
    return f"rule-{rule}" if rule in SECTIONS or rule == "ProfilerReport" else f"rule-{number + 1}"


def _blocks(entry: RuleEntry) -> list[Block]:
    """Return what a section shows; details of a shape that it does not know are listed as they are."""
    write = SECTIONS.get(entry.rule)
    if write is None:
        return fallback.blocks(entry.details)
    try:
        return write(entry)
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        return fallback.blocks(entry.details)
