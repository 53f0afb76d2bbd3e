"""The rules' thresholds as lines in the charts of what they are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.records import Status
from trainguard.report.document import RuleEntry
from trainguard.report.html.sections.settings import setting

_DRAWN = (
    ("utilization", "LowGPUUtilization", "threshold_p95", "p95"),
    ("utilization", "LowGPUUtilization", "threshold_p5", "p5"),
    ("utilization", "BatchSize", "gpu_threshold_p95", "p95"),
    ("utilization", "CPUBottleneck", "gpu_threshold", "a GPU waits"),
    ("utilization", "IOBottleneck", "gpu_threshold", "a GPU waits"),
    ("memory", "BatchSize", "gpu_memory_threshold_p95", "p95"),
    ("cpu", "CPUBottleneck", "cpu_threshold", "a core is busy"),
    ("cpu", "BatchSize", "cpu_threshold_p95", "p95 of the mean"),
    ("io_wait", "IOBottleneck", "io_threshold", "a core waits"),
)
_NOT_JUDGED = {Status.DISABLED, Status.NOT_APPLICABLE}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A line: in which chart, at which percentage, and whose it is; ``short`` names one rule, a fired one first."""

    chart: str
    value: float
    label: str
    short: str


def thresholds_of(rules: Sequence[RuleEntry], fired: Sequence[str]) -> list[Threshold]:
    """Return the thresholds in force of the rules that judge; those of one value in one chart are one line."""
    entries = {entry.rule: entry for entry in rules if entry.status not in _NOT_JUDGED}
    lines: dict[tuple[str, float], list[tuple[str, str]]] = {}
    for chart, rule, parameter, what in _DRAWN:
        value = setting(entries[rule], parameter) if rule in entries else None
        if value is not None:
            lines.setdefault((chart, value), []).append((rule, what))
    return [Threshold(chart, value, _label(names), _short(names, fired)) for (chart, value), names in lines.items()]


def _short(names: Sequence[tuple[str, str]], fired: Sequence[str]) -> str:
    rule, what = min(names, key=lambda each: each[0] not in fired)
    return f"{rule} {what}" if what.startswith("p") else rule


def _label(names: Sequence[tuple[str, str]]) -> str:
    """Write ``LowGPUUtilization p95``; rules that mean the same by a value share the words."""
    by_words: dict[str, list[str]] = {}
    for rule, what in names:
        by_words.setdefault(what, []).append(rule)
    return "; ".join(f"{', '.join(rules)}: {what}" for what, rules in by_words.items())
