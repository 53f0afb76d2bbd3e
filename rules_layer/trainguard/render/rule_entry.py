"""A rule's verdict as reports hold it, and pages show it."""

from typing import Any

import msgspec

from trainguard.render.numbers import number
from trainguard.render.plots.strips import Limit

Parameter = bool | float | int | str | list[str | float | int] | None


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's verdict with all that it was made of.

    ``parameters`` are those in force; ``changed`` names those that are not the default. ``recommendation`` is one
    sentence for this case: the advice of a rule that has fired, or what to know of one that has not. ``unit`` is that
    of ``measured`` and ``threshold``; a plain number has none. ``times_fired`` counts how often it fired, the last
    time at ``fired_at``; a fire may have several episodes. ``details`` are the rule's own numbers, by node where it
    judges nodes; the rule's page says what they mean. Of a job with many nodes they are those of the worst, and
    ``nodes_left_out`` counts the others, which are in ``profiler-reports/<rule>.json``.
    """

    rule: str
    status: str
    severity: str | None
    reason: str
    recommendation: str | None
    measured: float | None
    threshold: float | None
    unit: str | None
    worst: str | None
    times_fired: int
    violations: int
    data_points: int
    fired_at: str | None
    parameters: dict[str, Parameter]
    changed: list[str]
    details: dict[str, Any]
    nodes_left_out: int = 0


def setting(entry: RuleEntry, parameter: str) -> float | None:
    value = entry.parameters.get(parameter)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def limit_of(entry: RuleEntry, parameter: str, label: str = "threshold", unit: str = " %") -> list[Limit]:
    """Return the limit that a parameter sets, labelled with its value; none when it sets none."""
    value = setting(entry, parameter)
    return [] if value is None else [Limit(value, f"{label} {number(value)}{unit}")]
