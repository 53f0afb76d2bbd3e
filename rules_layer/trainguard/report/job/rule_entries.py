"""Every rule's verdict as the report has it: findings first, then the others by what a person must know first."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trainguard.core.errors import RuleLoadError
from trainguard.core.records import FIRST_FAMILY, JOB_NODE, Status
from trainguard.core.units import clause, show_duration
from trainguard.engine.diagnosis.text import smaller_instance
from trainguard.engine.outbox import parameters_shown
from trainguard.engine.plan import RulePlan
from trainguard.engine.verdicts.verdict import RuleOutcome, shown_status
from trainguard.formats.profile.snapshots import points_in
from trainguard.render.details import encode_report
from trainguard.render.rule_entry import Parameter, RuleEntry
from trainguard.report.evaluated_job import EvaluatedJob, shown_time
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import ALL_RULES, OWN_NAMES, RULE_NAMES, spec_of
from trainguard.rules.windows import PatienceParameters


def recommendation(verdict: RuleOutcome, judged: EvaluatedJob) -> str | None:
    """Return the rule's own advice, or what to know of a rule that has not fired; None where there is nothing to do."""
    result, status = verdict.result, shown_status(verdict)
    if status is Status.ERROR:
        return _of_error(verdict, judged)
    if result.advice is not None:
        explained = next((each for each in judged.findings if each.rule == verdict.rule and each.explained_by), None)
        return result.advice if explained is None else explained.finding.advice
    if status is Status.OK and result.oversized and smaller_instance(judged) is not None:
        return "Try the job on a smaller instance."
    if status is Status.DISABLED and verdict.rule in judged.plan.disabled:
        return f"Set rule_to_invoke to {PROFILER_REPORT} to run it with the others."
    if status is Status.NOT_APPLICABLE and "framework" in spec_of(verdict.rule).inputs and not judged.framework_nodes:
        return "Collect framework metrics next time: what was not collected says how."
    return _of_short_job(verdict, judged) if status is Status.WARMING_UP and judged.ended else None


def _of_error(verdict: RuleOutcome, judged: EvaluatedJob) -> str:
    fault, reason = judged.plan.faults.get(verdict.rule), clause(verdict.result.reason)
    if fault is not None and not isinstance(fault, RuleLoadError):
        return f"Correct this setting: {reason}."
    if verdict.rule not in OWN_NAMES:
        return f"Correct this custom rule: {reason}. The other rules are not affected."
    return f"Report this fault of TrainGuard: {reason}. The other rules are not affected."


def _of_short_job(verdict: RuleOutcome, judged: EvaluatedJob) -> str | None:
    too_short = spec_of(verdict.rule).too_short
    if too_short is not None:
        return too_short
    parameters = judged.plan.parameters.get(verdict.rule)
    points = verdict.result.data_points
    if not isinstance(parameters, PatienceParameters) or not points:
        return None
    needed = parameters.patience_points(judged.interval_s)
    if points > needed:
        return None
    setting = "patience" if parameters.patience is not None and parameters.patience_s is None else "patience_s"
    return (
        f"Lower {verdict.rule}_{setting} for jobs as short as this one: it is {needed:,} points, which are "
        f"{show_duration(needed * judged.interval_s)} at a point every {judged.interval_s:g} s; there were {points:,}."
    )


# Microseconds of a time: what lies beyond is rounding of the clocks. A gradient of 3e-08 keeps its digits.
DECIMALS, LEAST_DIGITS = 6, 3

# A page shows no more.
NODES_WITH_DETAILS = 256

_DEFAULTS = {rule.name: rule.parameters_type() for rule in ALL_RULES}


def rule_entries(judged: EvaluatedJob) -> list[RuleEntry]:
    ranks = {ranked.rule: place for place, ranked in enumerate(judged.findings)}
    severities = {ranked.rule: ranked.finding.severity for ranked in judged.findings}

    def place(verdict: RuleOutcome) -> tuple[int, int]:
        return ranks.get(verdict.rule, len(ranks)), shown_status(verdict).place

    return [_entry(verdict, severities.get(verdict.rule), judged) for verdict in sorted(judged.verdicts, key=place)]


def changed_parameters(plan: RulePlan, rule: str) -> list[str]:
    """Return the names of the parameters that are not the documented default."""
    parameters, default = plan.parameters.get(rule), _DEFAULTS.get(rule)
    if parameters is None or default is None:
        return []
    values, defaults = msgspec.structs.asdict(parameters), msgspec.structs.asdict(default)
    return [name for name, value in values.items() if value != defaults[name]]


def _entry(verdict: RuleOutcome, severity: str | None, judged: EvaluatedJob) -> RuleEntry:
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


def _nodes_of(verdict: RuleOutcome, details: Mapping[str, Any], judged: EvaluatedJob) -> list[str]:
    """Return the worst first; a rule over the whole job names its worst node alone."""
    ranked = [name for name in verdict.worst_first if name != JOB_NODE]
    worst = (verdict.result.worst or "").partition("/")[0]
    return ranked or sorted(details.keys() & judged.streams.nodes, key=lambda name: (name != worst, len(name), name))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        small = value and math.isfinite(value)
        return round(value, max(DECIMALS, LEAST_DIGITS - 1 - math.floor(math.log10(abs(value)))) if small else DECIMALS)
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


MANAGED_INTERVAL_S = 0.5


def managed_files(verdicts: Sequence[RuleOutcome], plan: RulePlan) -> dict[str, bytes]:
    """Return ``profiler-reports/<Rule>.json`` of every profiler rule, by that name."""
    profiler = {*RULE_NAMES, *(rule.name for rule in plan.rules_of(FIRST_FAMILY))}
    return {
        f"profiler-reports/{verdict.rule}.json": encode_report(_managed(verdict, plan))
        for verdict in verdicts
        if verdict.rule in profiler
    }


def _managed(verdict: RuleOutcome, plan: RulePlan) -> dict[str, Any]:
    """Return the managed report: RuleTriggered counts episodes, Violations evaluations, Datapoints what was judged."""
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
    value, seconds = shown[name], shown.get(f"{name}_s")
    return points_in(seconds, MANAGED_INTERVAL_S) if value is None and isinstance(seconds, float) else value


def _shown(value: float | int | str | None) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
