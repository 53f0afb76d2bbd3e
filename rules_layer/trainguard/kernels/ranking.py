"""The order of findings, the same on page, terminal, list and report: sure causes that win most alone come first."""

from typing import Any

from trainguard.core.finding import Severity, severity_rank
from trainguard.rules.family_rules import KERNELS, bare
from trainguard.rules.spec import LOW_GPUS, RuleSpec

_CAUSE, _SYMPTOM, _WITHOUT_GAIN = range(3)


def _spec(rule: str) -> RuleSpec | None:
    return KERNELS.specs().get(f"{KERNELS.family}/{bare(rule)}")


def is_symptom(rule: str) -> bool:
    """Whether what a rule finds has a cause; where that is found, it stands before it."""
    spec = _spec(rule)
    return spec is not None and spec.symptom == LOW_GPUS


def place_of(
    rule: str, *, sure: bool, gain_share: float, severity: Severity | None, gain_ns: float = 0.0
) -> tuple[Any, ...]:
    """Return what findings are sorted by; ``rule`` is with or without its family, gains are compared in percents."""
    spec, won = _spec(rule), round(gain_share, 2)
    informs, symptom = spec is not None and spec.informs_only, is_symptom(rule)
    group = _WITHOUT_GAIN if won <= 0 else _SYMPTOM if symptom else _CAUSE
    return informs, not sure, group, -won, -severity_rank(severity), symptom, -gain_ns, bare(rule)
