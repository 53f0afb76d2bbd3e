"""Every rule's verdict as the report has it: findings first, then the others by what a person must know first."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.engine.outbox.rows import parameters_shown
from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.records import JOB_NODE
from trainguard.report.document import Parameter, RuleEntry
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.phrasing import shown_time
from trainguard.report.recommendations import recommendation
from trainguard.rules.registry import ALL_RULES, spec_of

DECIMALS, LEAST_DIGITS = 6, 3
"""Of the numbers shown: microseconds of a time; what lies beyond is rounding of the clocks.

A gradient of 3e-08 keeps so many digits of its own.
"""

NODES_WITH_DETAILS = 256
"""Of a rule ``report.json`` has the details of so many nodes; a page shows no more of them."""

_DEFAULTS = {rule.name: rule.parameters_type() for rule in ALL_RULES}


def rule_entries(judged: EvaluatedJob) -> list[RuleEntry]:
    """Return one entry a rule, in order."""
    ranks = {ranked.rule: place for place, ranked in enumerate(judged.findings)}
    severities = {ranked.rule: ranked.finding.severity for ranked in judged.findings}

    def place(verdict: Verdict) -> tuple[int, int]:
        return ranks.get(verdict.rule, len(ranks)), shown_status(verdict).place

    return [_entry(verdict, severities.get(verdict.rule), judged) for verdict in sorted(judged.verdicts, key=place)]


def changed_parameters(plan: RulePlan, rule: str) -> list[str]:
    """Return the names of the parameters that are not the documented default."""
    parameters, default = plan.parameters.get(rule), _DEFAULTS.get(rule)
    if parameters is None or default is None:
        return []
    values, defaults = msgspec.structs.asdict(parameters), msgspec.structs.asdict(default)
    return [name for name, value in values.items() if value != defaults[name]]


def _entry(verdict: Verdict, severity: str | None, judged: EvaluatedJob) -> RuleEntry:
    result, history = verdict.result, verdict.history
    measure = spec_of(verdict.rule).measure_of(result)
    parameters: dict[str, Parameter] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in parameters_shown(judged.plan, verdict.rule).items()
    }
    details = result.plain_details
    left_out = set(_nodes_of(verdict, details, judged)[NODES_WITH_DETAILS:])
    return RuleEntry(
        rule=verdict.rule,
        status=shown_status(verdict).value,
        severity=severity,
        reason=result.reason,
        recommendation=recommendation(verdict, judged),
        measured=_rounded(result.measured),
        threshold=_rounded(result.threshold),
        unit=(measure.unit or None) if measure is not None else None,
        worst=result.worst,
        times_fired=history.times_fired,
        violations=history.violations,
        data_points=result.data_points,
        fired_at=shown_time(history.fired_at),
        parameters=parameters,
        changed=changed_parameters(judged.plan, verdict.rule),
        details=_rounded({name: held for name, held in details.items() if name not in left_out}),
        nodes_left_out=len(left_out),
    )


def _nodes_of(verdict: Verdict, details: Mapping[str, Any], judged: EvaluatedJob) -> list[str]:
    """Return the nodes that have details, the worst first; a rule over the whole job names its worst alone."""
    ranked = [name for name in verdict.worst_first if name != JOB_NODE]
    worst = (verdict.result.worst or "").partition("/")[0]
    return ranked or sorted(details.keys() & judged.streams.nodes, key=lambda name: (name != worst, len(name), name))


def _rounded(value: Any) -> Any:
    """Round the numbers of a value for people, at any depth."""
    if isinstance(value, float):
        small = value and math.isfinite(value)
        return round(value, max(DECIMALS, LEAST_DIGITS - 1 - math.floor(math.log10(abs(value)))) if small else DECIMALS)
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
