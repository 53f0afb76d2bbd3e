"""``trainguard params``: what the rules are, which parameters they take, and which a job runs with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Heading, Line
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.services.deployment import Where, connect
from trainguard.cli.services.effective_parameters import (
    SCAN_INTERVAL_US,
    EffectiveParameter,
    effective_parameters,
    value_text,
)
from trainguard.cli.services.names import ALL_RULE_NAMES, OWN_RULES, rule_named, unknown_job
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.errors import RuleConfigError
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults, own_defaults
from trainguard.rules.parameters import PARAMETERS_TYPES, accepted, resolve_parameters
from trainguard.rules.registry import help_of, spec_of

Value = float | int | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamsRequest:
    """What was asked for; without a rule all of them, without a job what holds for any."""

    where: Where
    rule: str | None = None
    job: str | None = None
    defaults: Defaults | None = None
    as_json: bool = False


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in a line; ``changed`` names the parameters that a job has changed, None where no job was asked for."""

    rule: str
    looks_at: str
    fires_when: str
    parameters: list[str]
    changed: list[str] | None
    fault: str | None


class RulesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All rules, with the settings of a job that no rule knows."""

    schema_version: str = SCHEMA_VERSION
    job: str | None
    rules: list[RuleEntry]
    faults: list[str]


class ParameterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a rule; ``setting`` is how it is given, ``in_force`` what a job runs with."""

    name: str
    setting: str
    accepts: str
    unit: str
    documented: Value
    shipped: Value
    meaning: str
    in_force: EffectiveParameter | None


class ParametersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one rule."""

    schema_version: str = SCHEMA_VERSION
    rule: str
    looks_at: str
    fires_when: str
    job: str | None
    fault: str | None
    parameters: list[ParameterEntry]


def params_command(request: ParamsRequest) -> int:
    """Show rules or parameters; return the exit code."""

    def make() -> CommandResult:
        rule = None if request.rule is None else rule_named(request.rule)
        record = None if request.job is None else _record(request.where, request.job)
        return rules_result(record) if rule is None else parameters_result(rule, record, request.defaults)

    return print_result(make, as_json=request.as_json)


def _record(where: Where, job: str) -> JobRecord:
    jobs = connect(where).stores.jobs
    record = jobs.load(job)
    if record is None:
        raise unknown_job(job, jobs)
    return record


def rules_result(record: JobRecord | None) -> CommandResult:
    """Return every rule in a line."""
    running, faults = _resolved(record)
    entries = [_rule_entry(rule, record, running, faults) for rule in ALL_RULE_NAMES]
    unknown = [str(fault) for name, fault in faults.items() if name not in PARAMETERS_TYPES]
    document = RulesDocument(job=None if record is None else record.job, rules=entries, faults=unknown)
    columns = [Column("rule"), Column("looks at", folds=True, drops=1), Column("fires when", folds=True)]
    rows = [[entry.rule, entry.looks_at, entry.fires_when] for entry in entries]
    if record is not None:
        columns.append(Column("changed", folds=True))
        rows = [[*row, entry.fault or ", ".join(entry.changed or [])] for row, entry in zip(rows, entries, strict=True)]
    blocks: list[Block] = [Grid(columns, rows), *(Line(fault, style="bold magenta") for fault in unknown)]
    return CommandResult(document=document, blocks=blocks, notes=[OWN_RULES] if unknown else [])


def _rule_entry(
    rule: str, record: JobRecord | None, running: Mapping[str, Any], faults: Mapping[str, RuleConfigError]
) -> RuleEntry:
    changed = [each.name for each in _in_force(rule, record, running).values() if each.changed]
    spec = spec_of(rule)
    return RuleEntry(
        rule=rule,
        looks_at=spec.looks_at,
        fires_when=spec.fires_when,
        parameters=list(spec.parameters) or [name for name in _ordered(rule) if name != SCAN_INTERVAL_US],
        changed=None if record is None else changed,
        fault=str(faults[rule]) if rule in faults else None,
    )


def parameters_result(rule: str, record: JobRecord | None, defaults: Defaults | None) -> CommandResult:
    """Return the parameters of one rule; ``defaults`` None shows both sets of them."""
    running, faults = _resolved(record)
    fault = str(faults[rule]) if rule in faults else None
    spec, of_job = spec_of(rule), _in_force(rule, record, running)
    entries = [_parameter_entry(rule, name, of_job.get(name)) for name in _ordered(rule)]
    document = ParametersDocument(
        rule=rule,
        looks_at=spec.looks_at,
        fires_when=spec.fires_when,
        job=None if record is None else record.job,
        fault=fault,
        parameters=entries,
    )
    facts = [("looks at", spec.looks_at), ("fires when", spec.fires_when)]
    on = "" if record is None else f" on {record.job}"
    blocks: list[Block] = [Heading(f"{rule}{on}"), Facts(facts)]
    if fault is not None:
        blocks.append(Line(fault, style="bold magenta"))
    return CommandResult(document=document, blocks=[*blocks, Heading("Parameters"), _grid(entries, record, defaults)])


def _grid(entries: list[ParameterEntry], record: JobRecord | None, defaults: Defaults | None) -> Grid:
    # What is deployed has the documented defaults, so the shipped ones say nothing about a job.
    shown = [defaults] if defaults is not None else ["documented"] if record is not None else ["documented", "shipped"]
    columns = [Column("parameter")]
    columns += [Column("in force", right=True), Column("from", folds=True)] if record is not None else []
    columns += [Column(each, right=True, drops=0 if record is None else 2) for each in shown]
    columns += [
        Column("unit", folds=True, drops=3),
        Column("accepts", folds=True, drops=4),
        Column("meaning", folds=True, drops=1),
    ]
    rows = []
    for entry in entries:
        row: list[str | Cell] = [entry.name]
        if record is not None:
            row += _in_force_cells(entry.in_force)
        row += [value_text(entry.documented if each == "documented" else entry.shipped) for each in shown]
        rows.append([*row, entry.unit, entry.accepts, entry.meaning])
    return Grid(columns, rows)


def _in_force_cells(parameter: EffectiveParameter | None) -> list[str | Cell]:
    if parameter is None:
        return ["", ""]
    style = "bold" if parameter.changed else ""
    return [Cell(value_text(parameter.value), style), Cell(parameter.source, style)]


def _ordered(rule: str) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(PARAMETERS_TYPES[rule])]
    return sorted(names, key=lambda name: name == SCAN_INTERVAL_US)


def _parameter_entry(rule: str, name: str, of_job: EffectiveParameter | None) -> ParameterEntry:
    fields = {field.name: field for field in msgspec.structs.fields(PARAMETERS_TYPES[rule])}
    documented = PARAMETERS_TYPES[rule]().in_force()[name]
    said = help_of(rule, name)
    return ParameterEntry(
        name=name,
        setting=f"{rule}_{name}",
        accepts=accepted(fields[name].type),
        unit=said.unit,
        documented=documented,
        shipped=own_defaults(rule, "shipped").get(name, documented),
        meaning=said.meaning,
        in_force=of_job,
    )


def _resolved(record: JobRecord | None) -> tuple[Mapping[str, Any], Mapping[str, RuleConfigError]]:
    if record is None:
        return {}, {}
    running, faults = resolve_parameters(record.rule_settings)
    sources = record.setting_sources
    return running, {rule: fault.given_by(sources.get(fault.field)) for rule, fault in faults.items()}


def _in_force(rule: str, record: JobRecord | None, running: Mapping[str, Any]) -> dict[str, EffectiveParameter]:
    if record is None or rule not in running:
        return {}
    tagged = replayed_job(record.job) is None
    values = running[rule].in_force()
    found = effective_parameters(rule, values, record.rule_settings, tagged=tagged, sources=record.setting_sources)
    return {each.name: each for each in found}
