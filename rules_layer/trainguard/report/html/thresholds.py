"""The rules' thresholds as lines in the charts of what they are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.records import Status
from trainguard.report.document import RuleEntry
from trainguard.report.html.sections.settings import setting
from trainguard.rules.registry import spec_of

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
    for rule, entry in entries.items():
        for line in spec_of(rule).chart_lines:
            value = setting(entry, line.parameter)
            if value is not None:
                lines.setdefault((line.chart, value), []).append((rule, line.words))
    return [Threshold(chart, value, _label(names), _short(names, fired)) for (chart, value), names in lines.items()]


def _short(names: Sequence[tuple[str, str]], fired: Sequence[str]) -> str:
    rule, what = min(names, key=lambda each: each[0] not in fired)
    return f"{rule} {what}" if what.startswith("p") else rule


def _label(names: Sequence[tuple[str, str]]) -> str:
    """Write ``<rule>: p95``; rules that mean the same by a value share the words."""
    by_words: dict[str, list[str]] = {}
    for rule, what in names:
        by_words.setdefault(what, []).append(rule)
    return "; ".join(f"{', '.join(rules)}: {what}" for what, rules in by_words.items())
