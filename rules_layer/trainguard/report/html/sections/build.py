"""The sections of a page: every rule that has something to show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from trainguard.records import Status
from trainguard.report.document import FindingEntry, Report, RuleEntry
from trainguard.report.html.blocks import Block
from trainguard.report.html.numbers import money, share
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
from trainguard.report.words import listed

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
    """A rule's section; ``is_open`` tells whether it is shown without a click.

    ``shared`` says how the verdict counts what the finding has in common with others.
    """

    entry: RuleEntry
    finding: FindingEntry | None
    title: str
    anchor: str
    blocks: Sequence[Block]
    shared: str | None = None

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
    shared = shared_loss(report)
    sections = []
    for number, entry in enumerate(report.rules):
        blocks = _blocks(entry)
        if blocks or has_fired(entry):
            title = TITLES.get(entry.rule, entry.rule)
            anchor, finding = anchor_of(entry.rule, number), findings.get(entry.rule)
            sections.append(Section(entry, finding, title, anchor, blocks, shared.get(entry.rule)))
    return sections


def shared_loss(report: Report) -> dict[str, str]:
    """Say of each finding that shares the verdict's loss with others how it is counted there."""
    explained = {each.rule: each.explained_by for each in report.findings if each.wasted_share is not None}
    group = [rule for rule in explained if _root(rule, explained) == report.verdict.rule]
    if len(group) < 2:
        return {}
    lost = report.verdict.lost
    amount = "" if lost is None else f", {money(lost, report.cost.currency)}"
    said = (
        f"once for {listed(group)}, which see one loss from different sides: {share(report.verdict.wasted_share)} in "
        f"all{amount}"
    )
    return dict.fromkeys(group, said)


def _root(rule: str, explained: Mapping[str, str | None]) -> str:
    seen = {rule}
    while (cause := explained.get(rule)) is not None and cause not in seen:
        rule = cause
        seen.add(rule)
    return rule


def anchor_of(rule: str, number: int) -> str:
    """Return where a rule is on the page: ``rule-LowGPUUtilization``, or by its number when the name is unknown."""
    return f"rule-{rule}" if rule in SECTIONS or rule == "ProfilerReport" else f"rule-{number + 1}"


def _blocks(entry: RuleEntry) -> list[Block]:
    """Return what a section shows; details of a shape that it does not know are listed as they are.

    A node of which a rule has nothing to tell is passed over.
    """
    entry = replace(entry, details={name: held for name, held in entry.details.items() if held != {}})
    write = SECTIONS.get(entry.rule)
    if write is None:
        return fallback.blocks(entry.details)
    try:
        return write(entry)
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        return fallback.blocks(entry.details)
