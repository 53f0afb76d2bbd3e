"""``trainguard params``: the rules, their parameters, and those of a job."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainguard.cli.output.rendering import Block, Cell, Grid, Line, TerminalColumn, TerminalFacts, heading
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.effective_parameters import (
    SCAN_INTERVAL_US,
    EffectiveParameter,
    effective_parameters,
    value_text,
)
from trainguard.cli.services.names import ALL_RULE_NAMES, OWN_RULES
from trainguard.core.records import FIRST_FAMILY, JobRecord
from trainguard.engine.plan import RulePlan
from trainguard.rules.family_rules import OTHER_FAMILIES, bare
from trainguard.rules.parameters import Defaults, accepted, own_defaults, parameters_type_of
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import TITLE, help_of, spec_of

GROUPS = tuple(group for family in OTHER_FAMILIES for group in family.settings)
_DOES_NOT_RUN = "It does not run on the job: the job's settings choose other rules."
_NO_PARAMETERS = "It has no parameters: its thresholds are fixed."


def rules_result(record: JobRecord | None) -> CommandResult:
    """Return every rule in a line, family by family, with groups of settings that no rule owns."""
    plan = None if record is None else _plan(record)
    rules: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    blocks: list[Block] = []
    columns = [
        TerminalColumn("rule"),
        TerminalColumn("looks at", folds=True, drops=1),
        TerminalColumn("fires when", folds=True),
    ]
    columns += [] if record is None else [TerminalColumn("changed", folds=True)]
    others = ((family.title, family.names, family.settings) for family in OTHER_FAMILIES)
    for title, names, settings in ((TITLE, ALL_RULE_NAMES, ()), *others):
        of_family = [_rule_entry(name, record, plan) for name in (*names, *settings)]
        rules += of_family[: len(names)]
        groups += of_family[len(names) :]
        cells = [[each["rule"], each["looks_at"], each["fires_when"], _changed(each)] for each in of_family]
        blocks += [heading(title), Grid(columns, [row[: len(columns)] for row in cells])]
    faults = {} if plan is None else plan.faults
    unknown = [str(fault) for name, fault in faults.items() if parameters_type_of(name) is None]
    job = None if record is None else record.job
    return CommandResult(
        document={"job": job, "rules": rules, "groups": groups, "faults": unknown},
        blocks=[*blocks, *(Line(fault, style="bold magenta") for fault in unknown)],
        notes=[OWN_RULES] if unknown else [],
    )


def _changed(entry: Mapping[str, Any]) -> str:
    return entry["fault"] or (", ".join(entry["changed"] or []) if entry["runs"] else "does not run")


def _about(rule: str, plan: RulePlan | None) -> dict[str, Any]:
    """Return what is said about a rule; ``runs`` is whether the job runs it, None without a job."""
    spec = spec_of(rule)
    return {
        "rule": rule,
        "family": spec.family,
        "looks_at": spec.looks_at,
        "fires_when": spec.fires_when,
        "fault": None if plan is None or rule not in plan.faults else str(plan.faults[rule]),
        "runs": None if plan is None else rule not in (*plan.unchosen, *plan.disabled),
    }


def _rule_entry(rule: str, record: JobRecord | None, plan: RulePlan | None) -> dict[str, Any]:
    changed = [each.name for each in _in_force(rule, record, plan).values() if each.changed]
    return {
        **_about(rule, plan),
        "parameters": list(spec_of(rule).parameters) or [name for name in _ordered(rule) if name != SCAN_INTERVAL_US],
        "changed": None if record is None else changed,
    }


def parameters_result(rule: str, record: JobRecord | None, defaults: Defaults | None) -> CommandResult:
    """Return the parameters of one rule or group of settings; ``defaults`` None shows every set that it has."""
    plan = None if record is None else _plan(record)
    about, spec, of_job = _about(rule, plan), spec_of(rule), _in_force(rule, record, plan)
    entries = [_parameter_entry(rule, name, of_job.get(name)) for name in _ordered(rule)]
    document = {**about, "job": None if record is None else record.job, "parameters": entries}
    on = "" if record is None else f" on {record.job}"
    facts = [("looks at", spec.looks_at), ("fires when", spec.fires_when)]
    blocks: list[Block] = [heading(f"{rule}{on}"), TerminalFacts(facts)]
    if about["fault"] is not None:
        blocks.append(Line(about["fault"], style="bold magenta"))
    if about["runs"] is False:
        blocks.append(Line(_DOES_NOT_RUN))
    if {entry["name"] for entry in entries} == {SCAN_INTERVAL_US} and spec.family != FIRST_FAMILY:
        return CommandResult(document=document, blocks=[*blocks, Line(_NO_PARAMETERS)])
    # What is deployed has the documented defaults, so the shipped ones say nothing about a job.
    both = record is None and spec.family == FIRST_FAMILY
    shown: list[Defaults]
    shown = [defaults] if defaults is not None else ["documented", "shipped"] if both else ["documented"]
    blocks += [heading("Parameters"), _grid(entries, shown, with_job=bool(of_job))]
    return CommandResult(document=document, blocks=blocks)


def _grid(entries: list[dict[str, Any]], shown: list[Defaults], *, with_job: bool) -> Grid:
    columns = [TerminalColumn("parameter")]
    columns += [TerminalColumn("in force", right=True), TerminalColumn("from", folds=True)] if with_job else []
    columns += [TerminalColumn(each, right=True, drops=2 if with_job else 0) for each in shown]
    columns += [
        TerminalColumn("unit", folds=True, drops=3),
        TerminalColumn("accepts", folds=True, drops=4),
        TerminalColumn("meaning", folds=True, drops=1),
    ]
    rows = []
    for entry in entries:
        row: list[str | Cell] = [entry["name"]]
        parameter: EffectiveParameter | None = entry["in_force"]
        if parameter is not None:
            style = "bold" if parameter.changed else ""
            row += [Cell(value_text(parameter.value), style), Cell(parameter.source, style)]
        elif with_job:
            row += ["", ""]
        row += [value_text(entry[each]) for each in shown]
        rows.append([*row, entry["unit"], entry["accepts"], entry["meaning"]])
    return Grid(columns, rows)


def _kind(name: str) -> type[RuleParameters]:
    return parameters_type_of(name) or RuleParameters


def _ordered(rule: str) -> list[str]:
    """Return the parameters that a user may set, those of a rule's own first."""
    kind, parameters_of_rule = _kind(rule), list(spec_of(rule).parameters)
    names = [name for name in kind.__struct_fields__ if name in kind.settable()]
    return sorted(
        names,
        key=lambda name: (
            name == SCAN_INTERVAL_US,
            parameters_of_rule.index(name) if name in parameters_of_rule else len(parameters_of_rule),
        ),
    )


def _parameter_entry(rule: str, name: str, of_job: EffectiveParameter | None) -> dict[str, Any]:
    kind = _kind(rule)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    documented = kind.defaults()[name]
    described = help_of(rule, name)
    return {
        "name": name,
        "setting": f"{bare(rule)}_{name}",
        "accepts": accepted(fields[name].type),
        "unit": described.unit,
        "documented": documented,
        "shipped": own_defaults(rule, "shipped").get(name, documented),
        "meaning": described.meaning,
        "in_force": of_job,
    }


def _plan(record: JobRecord) -> RulePlan:
    # The families' sessions take time to import, which no rule's parameters need.
    from trainguard.engine.installed import FAMILIES

    return FAMILIES.plan(record)


def _in_force(rule: str, record: JobRecord | None, plan: RulePlan | None) -> dict[str, EffectiveParameter]:
    if record is None or plan is None or rule not in plan.parameters:
        return {}
    found = effective_parameters(rule, plan.parameters[rule].as_given(), record)
    return {each.name: each for each in found}
