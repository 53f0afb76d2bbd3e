"""The files of the managed service's report: one a rule, with its five fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainguard.engine.outbox.rows import parameters_shown
from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.records import FIRST_FAMILY
from trainguard.report.encode import encode_report
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.registry import RULE_NAMES, spec_of
from trainguard.rules.units import points_in

MANAGED_INTERVAL_S = 0.5
"""The managed service's default sampling."""


def managed_files(verdicts: Sequence[Verdict], plan: RulePlan) -> dict[str, bytes]:
    """Return ``profiler-reports/<Rule>.json`` of every profiler rule, by that name."""
    profiler = {*RULE_NAMES, *(rule.name for rule in plan.rules_of(FIRST_FAMILY))}
    return {
        f"profiler-reports/{verdict.rule}.json": encode_report(_managed(verdict, plan))
        for verdict in verdicts
        if verdict.rule in profiler
    }


def _managed(verdict: Verdict, plan: RulePlan) -> dict[str, Any]:
    """Return the five fields of the managed service's report, in its order.

    RuleTriggered counts episodes of firing, Violations evaluations at which the condition held, Datapoints judged
    snapshots or steps.
    """
    return {
        "RuleTriggered": verdict.history.times_fired,
        "Violations": verdict.history.violations,
        "Details": verdict.result.plain_details,
        "Datapoints": verdict.result.data_points,
        "RuleParameters": parameters_text(verdict.rule, parameters_shown(plan, verdict.rule)),
    }


def parameters_text(rule: str, shown: Mapping[str, float | int | str | None]) -> str:
    """Return ``name:value``, a line each: the managed parameters at their places, then what is set and added here."""
    if not shown:
        return ""
    spec = spec_of(rule)
    managed = [(name, _at_its_place(shown, spec.managed_aliases.get(name, name))) for name in spec.managed_parameters]
    in_points = {f"{name}_s" for name in spec.managed_parameters if name in shown and shown[name] is None}
    places = {name for name, _ in managed} | UNSHOWN | in_points
    added = [(name, value) for name, value in shown.items() if name not in places and value is not None]
    return "\n".join(f"{name}:{_shown(value)}" for name, value in (*managed, *added))


def _at_its_place(shown: Mapping[str, float | int | str | None], name: str) -> float | int | str | None:
    """Return a parameter; a patience or a window in seconds as the points that the managed service has in that time."""
    value, seconds = shown[name], shown.get(f"{name}_s")
    return points_in(seconds, MANAGED_INTERVAL_S) if value is None and isinstance(seconds, float) else value


def _shown(value: float | int | str | None) -> str:
    """Write a whole number as one: 70, not 70.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
