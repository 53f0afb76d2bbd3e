"""Every rule's verdict as the report has it: findings first, then the others by what a person must know first."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.rows import parameters_shown
from trainguard.engine.slots import Verdict, shown_status
from trainguard.report.document import Parameter, RuleEntry
from trainguard.report.judged import JudgedJob
from trainguard.report.recommendations import recommendation
from trainguard.report.words import shown_time
from trainguard.rules.low_gpu_utilization import LowGPUUtilization
from trainguard.rules.registry import ALL_RULES, spec_of
from trainguard.rules.step_outlier import StepOutlier

PERCENT, MINUTES = "%", "min"
DECIMALS = 6
"""Of the numbers shown: microseconds of a time; what lies beyond is rounding of the clocks."""

_DEFAULTS = {rule.name: rule.parameters_type() for rule in ALL_RULES}


def rule_entries(judged: JudgedJob) -> list[RuleEntry]:
    """Return one entry a rule, in order."""
    ranks = {finding.rule: place for place, finding in enumerate(judged.findings)}
    severities = {finding.rule: finding.severity.value for finding in judged.findings}

    def place(verdict: Verdict) -> tuple[int, int]:
        return ranks.get(verdict.rule, len(ranks)), shown_status(verdict).place

    return [_entry(verdict, severities.get(verdict.rule), judged) for verdict in sorted(judged.verdicts, key=place)]


def unit_of(verdict: Verdict) -> str | None:
    """Return the unit of what a rule measured; two rules measure either of two things."""
    if verdict.judgement.measured is None:
        return None
    details = _details_of_worst(verdict)
    if verdict.rule == LowGPUUtilization.name and "finding" in details:
        return MINUTES
    if verdict.rule == StepOutlier.name and _by_time(details):
        return PERCENT
    measure = spec_of(verdict.rule).measure_of(verdict.judgement)
    return (measure.unit or None) if measure is not None else None


def changed_parameters(plan: RulePlan, rule: str) -> list[str]:
    """Return the names of the parameters that are not the documented default."""
    parameters, default = plan.parameters.get(rule), _DEFAULTS.get(rule)
    if parameters is None or default is None:
        return []
    values, defaults = msgspec.structs.asdict(parameters), msgspec.structs.asdict(default)
    return [name for name, value in values.items() if value != defaults[name]]


def _entry(verdict: Verdict, severity: str | None, judged: JudgedJob) -> RuleEntry:
    judgement, episode = verdict.judgement, verdict.episode
    parameters: dict[str, Parameter] = parameters_shown(judged.plan, verdict.rule)
    return RuleEntry(
        rule=verdict.rule,
        status=shown_status(verdict).value,
        severity=severity,
        reason=judgement.reason,
        recommendation=recommendation(verdict, judged),
        measured=_rounded(judgement.measured),
        threshold=_rounded(judgement.threshold),
        unit=unit_of(verdict),
        worst=judgement.worst,
        times_fired=episode.times_fired,
        violations=episode.violations,
        data_points=judgement.data_points,
        fired_at=shown_time(episode.fired_at),
        parameters=parameters,
        changed=changed_parameters(judged.plan, verdict.rule),
        details=_rounded(judgement.details),
    )


def _details_of_worst(verdict: Verdict) -> Mapping[str, Any]:
    details = verdict.judgement.details
    of_node = details.get((verdict.judgement.worst or "").partition("/")[0])
    return of_node if isinstance(of_node, Mapping) else details


def _by_time(details: Mapping[str, Any]) -> bool:
    """Tell whether slow steps fire for the time that they cost and not for their number."""
    series = details.get("series") or [{}]
    worst = series[0]
    return bool(worst.get("fired")) and worst["number_of_outliers"] <= worst["plausible_outliers"]


def _rounded(value: Any) -> Any:
    """Round the numbers of a value for people, at any depth."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
