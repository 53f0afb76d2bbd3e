"""Rows of RuleState for commands: which rules fire, in which order, and each row as a line."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from trainguard.core.finding import finding_fields, severity_rank
from trainguard.core.records import RuleRow, Status
from trainguard.core.timestamps import iso_from_epoch
from trainguard.core.units import show_duration, show_number
from trainguard.engine.verdicts.verdict import JUDGED
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of

if TYPE_CHECKING:
    from trainguard.report.document import Report

_FIXED_BELOW = 10.0
_FIXED_UNITS = {"%": " %", "": ""}
_UNSHOWN = ("job", "finding", "quantity", "unit", "expires_at", "generation", "cost")


def row_json(row: RuleRow) -> dict[str, Any]:
    """Return a row for machines: its fields beside those of its finding; times are ISO 8601 in UTC."""
    values = {"rule": row.rule, "node": row.node} | {field.name: getattr(row, field.name) for field in fields(row)}
    values |= finding_fields(row.finding)
    values |= {
        "cost_lost": row.finding.cost,
        "patience": row.patience,
        "evaluated_through": iso(row.evaluated_through),
        "fired_at": iso(row.fired_at),
        "action_at": iso(row.action_at),
        "stop": None if row.stop is None else {**asdict(row.stop), "at": iso(row.stop.at)},
    }
    return {name: value for name, value in values.items() if name not in _UNSHOWN}


def row_fields(row: RuleRow, names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row_json(row).items() if name in names}


def iso(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else iso_from_epoch(epoch_s)


def time_text(epoch_s: float | None, now: float) -> str:
    """Return a time for people, with how long ago it was; empty where it is not known."""
    if epoch_s is None:
        return ""
    return f"{iso_from_epoch(epoch_s)[:19].replace('T', ' ')}Z, {age(epoch_s, now)} ago"


def age(epoch_s: float | None, now: float) -> str:
    """Return how long ago a time was; a clock that is behind makes no future of it."""
    return "" if epoch_s is None else show_duration(max(round(now - epoch_s), 0))


def with_unit(value: float | None, unit: str | None) -> str:
    """Return a number for people with its unit, for example ``62.5 %``; empty where there is none."""
    if value is None:
        return ""
    # To two decimals below ten, where a distance of 0.31 must not become 0.3.
    number = f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < _FIXED_BELOW else show_number(value)
    return number + _FIXED_UNITS.get(unit or "", f" {unit}")


def measured_as(row: RuleRow) -> tuple[str | None, str]:
    """Return a row's quantity and unit; where the row has none, those of a rule with only one."""
    measures = spec_of(row.rule).measures
    if row.quantity is None and row.unit is None and len(measures) == 1:
        return measures[0].what, measures[0].unit
    return row.quantity, row.unit or ""


def has_fired(row: RuleRow) -> bool:
    """Whether the rule has fired, be it over by now."""
    return row.status is Status.FIRED or row.times_fired > 0


def report_row(rows: Iterable[RuleRow]) -> RuleRow | None:
    """Return the report's row, which has the verdict on the whole job."""
    return next((row for row in rows if row.node is None and row.rule == PROFILER_REPORT), None)


def of_whole_job(rows: Sequence[RuleRow]) -> list[RuleRow]:
    """Return the rows of the whole job: what fires first and the most severe on top, the report last."""
    return sorted((row for row in rows if row.node is None), key=_rank)


def ringing(rows: Iterable[RuleRow]) -> list[RuleRow]:
    """Return the job's rows of the rules that fire now, the most severe first."""
    firing = [r for r in rows if r.node is None and r.status is Status.FIRED and r.rule != PROFILER_REPORT]
    return sorted(firing, key=_rank)


def by_node(rows: Iterable[RuleRow]) -> Mapping[str, list[RuleRow]]:
    """Return the nodes' rows by rule, the worst node on top."""
    nodes: defaultdict[str, list[RuleRow]] = defaultdict(list)
    for row in rows:
        if row.node is not None:
            nodes[row.rule].append(row)
    return {rule: sorted(of_rule, key=_rank) for rule, of_rule in nodes.items()}


def _rank(row: RuleRow) -> tuple[bool, int, int, float, str, tuple[int, str]]:
    """Order rows: what fires first, of that the most severe, of those the one that lost most."""
    gravity = severity_rank(row.finding.severity)
    wasted = row.wasted_percent or 0.0
    node = row.node or ""
    return row.rule == PROFILER_REPORT, row.status.place, -gravity, -wasted, row.rule, (len(node), node)


def is_evaluated(report: "Report") -> bool:
    return has_verdict((rule.rule, rule.status, rule.times_fired) for rule in report.rules)


def has_verdict(rules: Iterable[tuple[str, str, int]]) -> bool:
    """Return whether any rule has judged; one that only informs, and ProfilerReport, do not count."""
    return any(
        fired > 0 or status in JUDGED
        for name, status, fired in rules
        if name != PROFILER_REPORT and not spec_of(name).informs_only
    )
