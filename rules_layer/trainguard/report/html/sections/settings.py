"""Thresholds of a rule as plots draw them."""

from trainguard.report.document import RuleEntry
from trainguard.report.html.numbers import number
from trainguard.report.html.plots.strips import Limit


def setting(entry: RuleEntry, parameter: str) -> float | None:
    """Return a parameter in force if it is a number."""
    value = entry.parameters.get(parameter)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def limit_of(entry: RuleEntry, parameter: str, label: str = "threshold", unit: str = " %") -> list[Limit]:
    """Return the limit that a parameter sets, labelled with its value; none when it sets none."""
    value = setting(entry, parameter)
    return [] if value is None else [Limit(value, f"{label} {number(value)}{unit}")]
