"""A word in a tone, as pages show severities and states."""

from collections.abc import Mapping

from trainguard.core.finding import Severity

SEVERITIES: Mapping[str, str] = {
    Severity.CRITICAL: "bad",
    Severity.HIGH: "high",
    Severity.MEDIUM: "warn",
    Severity.LOW: "low",
}

# A word in a tone, whose icon says the same as its colour.
Badge = tuple[str, str]


def severity_badge(severity: str) -> Badge:
    return severity, SEVERITIES.get(severity, "idle")
