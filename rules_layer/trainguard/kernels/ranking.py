"""The order of findings, the same on page, terminal, list and report: sure causes that win most alone come first."""

from typing import Any

from trainguard.core.finding import Severity, severity_rank

# What they find has a cause; where that is found, it stands before them.
SYMPTOMS = frozenset({"GpuBusyLow", "GpuGap"})

INFORMING = frozenset({"QueueFull", "TraceQuality"})
_CAUSE, _SYMPTOM, _WITHOUT_GAIN = range(3)


def place_of(
    rule: str, *, sure: bool, gain_share: float, severity: Severity | None, gain_ns: float = 0.0
) -> tuple[Any, ...]:
    """Return what findings are sorted by; ``rule`` is with or without its family, gains are compared in percents."""
    name, won = rule.rpartition("/")[2], round(gain_share, 2)
    group = _WITHOUT_GAIN if won <= 0 else _SYMPTOM if name in SYMPTOMS else _CAUSE
    return name in INFORMING, not sure, group, -won, -severity_rank(severity), name in SYMPTOMS, -gain_ns, name
