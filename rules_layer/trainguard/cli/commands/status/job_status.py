"""``trainguard status`` of one job: every rule of it, and on its nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from trainguard.cli.output.rendering import (
    Block,
    Cell,
    Line,
    Shown,
    TerminalColumn,
    TerminalFacts,
    heading,
    severity_cell,
    status_cell,
    table,
)
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import (
    age,
    by_node,
    has_fired,
    iso,
    measured_as,
    of_whole_job,
    report_row,
    row_json,
    time_text,
    with_unit,
)
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.job_list import (
    configuration_blocks,
    expired_record,
    instances,
    read_job,
    shown_nodes,
    status_of_job,
    stop_text,
)
from trainguard.core.records import MOST_TUNED_JOBS, JobRecord, RuleRow, Status, TunedJob, TuningJobRecord, unit_title
from trainguard.rules.profiler_report import PROFILER_REPORT

_OF_RECORD = ("status", "secondary_status", "instance_type", "instance_count", "tuning_job", "platform", "queue")
_Cells = Mapping[TerminalColumn, Callable[[RuleRow], Shown]]


def job_result(stores: Stores, job: str, *, nodes: bool, now: float) -> CommandResult:
    """Return every rule's state on one job; raises UnknownNameError and UnknownJobError."""
    record, rows = read_job(stores, job)
    known = record or expired_record(job)
    policy = None if record is None else record.policy
    whole, of_nodes = of_whole_job(rows), by_node(rows)
    report = report_row(rows)
    fired = [row.rule for row in whole if has_fired(row) and row.rule != PROFILER_REPORT]
    document = {
        "generated_at": iso(now),
        "job": job,
        **{name: None if record is None else getattr(record, name) for name in _OF_RECORD},
        "owners": dict(known.owners),
        "active": known.active,
        "started_at": iso(known.started_at),
        "ended_at": iso(known.ended_at),
        "evaluated_through": None if report is None else iso(report.evaluated_through),
        "verdict": None if report is None else report.finding.reason,
        "fired": fired,
        "rules": [row_json(row) for row in whole],
        "nodes": [row_json(row) for of_rule in of_nodes.values() for row in of_rule] if nodes else [],
        "evaluated": None if policy is None else policy.evaluated,
        "evaluated_because": None if policy is None else policy.why,
        "braked": known.braked,
        "outlook": known.outlook,
        "setting_faults": known.faults,
        "rules_elsewhere": known.rules_elsewhere,
        "rule_places": known.rule_places,
        "staged": known.policy.alerts.staged,
        "muted": known.policy.alerts.muted,
    }
    blocks: list[Block] = [heading(job), TerminalFacts(_facts(record, report, now))]
    rules = [row for row in whole if row.rule != PROFILER_REPORT]
    if rules:
        blocks += [
            heading("Rules"),
            table(rules, {TerminalColumn("rule"): lambda row: row.rule, **_state(of_nodes, now)}),
        ]
    blocks += _notified_fires(rules, now)
    blocks += configuration_blocks(known)
    if nodes:
        blocks += _node_blocks(of_nodes, [row.rule for row in rules], now)
    notes = [] if rules else ["No rule has a result yet: the job's first profile object has not been read."]
    over = record is not None and not record.active
    return CommandResult(document=document, blocks=blocks, notes=notes, fired=bool(fired), final=over)


def _state(of_nodes: Mapping[str, Sequence[RuleRow]], now: float) -> _Cells:
    """Return the cells of a rule's row, which says on how many of its nodes the rule fires."""
    return {
        TerminalColumn("status"): lambda row: status_cell(row.status),
        TerminalColumn("measured", right=True): lambda row: with_unit(row.finding.measured, measured_as(row)[1]),
        TerminalColumn("threshold", right=True): lambda row: with_unit(row.finding.threshold, measured_as(row)[1]),
        TerminalColumn("patience", right=True, drops=1): lambda row: row.patience or "",
        TerminalColumn("points", right=True, drops=3): lambda row: f"{row.data_points:,}",
        TerminalColumn("worst", folds=True, drops=2): lambda row: row.worst or "",
        TerminalColumn("evaluated", right=True, drops=4): lambda row: age(row.evaluated_through, now),
        TerminalColumn("fired", folds=True): lambda row: _fired_cell(row, of_nodes.get(row.rule, []), now),
    }


def _facts(record: JobRecord | None, report: RuleRow | None, now: float) -> list[tuple[str, Shown]]:
    facts: list[tuple[str, Shown]] = []
    if record is not None:
        more = record.secondary_status not in {None, "", record.status.value}
        secondary = f", {record.secondary_status}" if more else ""
        judged = "still evaluated" if record.active else "evaluated to its end"
        style = status_of_job(record.status, active=record.active).style
        is_left_out = record.braked is not None or not record.policy.evaluated
        facts += [
            ("status", Cell(f"{record.status.value}{secondary}; {judged}", style)),
            ("not evaluated", Cell(record.braked or record.policy.why, "bold yellow") if is_left_out else ""),
            ("staged", _named(record.policy.alerts.staged, "recorded, without alerts or stops")),
            ("muted", _named(record.policy.alerts.muted, "they raise no alert")),
            ("tuning job", record.tuning_job or ""),
            ("platform", ", ".join(filter(None, (record.platform, record.queue)))),
            *record.owners.items(),
            ("instances", instances(record.instance_type, record.instance_count)),
            ("started", time_text(record.started_at, now)),
            ("ended", time_text(record.ended_at, now)),
            ("outlook", record.outlook or "" if record.active else ""),
        ]
    if report is not None:
        facts += [("evaluated through", time_text(report.evaluated_through, now)), ("verdict", report.finding.reason)]
    return [(name, value) for name, value in facts if value]


def _named(rules: Sequence[str], meaning: str) -> str:
    return f"{', '.join(rules)}: {meaning}" if rules else ""


def _fired_cell(row: RuleRow, nodes: Sequence[RuleRow], now: float) -> str:
    if not has_fired(row):
        return ""
    firing = sum(row.status is Status.FIRED for row in nodes)
    on = f", on {firing} of {len(nodes)} nodes" if firing and len(nodes) > 1 else ""
    ago = f", {age(row.fired_at, now)} ago" if row.fired_at is not None else ""
    return f"{row.times_fired} x{ago}{on}"


def _notified_fires(rules: Sequence[RuleRow], now: float) -> list[Block]:
    """Say for each rule that has fired, and for each in error, why, what to do, and what was done."""
    blocks: list[Block] = []
    for row in rules:
        if not has_fired(row) and row.status is not Status.ERROR:
            continue
        severity = f" ({row.finding.severity.value})" if row.finding.severity is not None else ""
        finding, when = row.finding, "" if row.action_at is None else f" ({time_text(row.action_at, now)})"
        texts = (
            finding.reason,
            f"It held {finding.held[-1].sentence}." if finding.held else "",
            f"To do: {finding.advice}" if finding.advice else "",
            f"It has cost {finding.cost}." if finding.cost else "",
            f"Done: {row.action}{when}" if row.action else "",
            stop_text(row, row.fire_id, now),
        )
        blocks += [heading(f"{row.rule}{severity}"), *(Line(text, indent=2) for text in texts if text)]
    return blocks


def _node_blocks(of_nodes: Mapping[str, Sequence[RuleRow]], rules: Sequence[str], now: float) -> list[Block]:
    """Return a table of nodes a rule: the worst one by one, the others counted where there are many."""
    blocks: list[Block] = []
    for rule in rules:
        nodes = of_nodes.get(rule, [])
        if not nodes:
            continue
        shown, counted = shown_nodes(nodes)
        cells: _Cells = {TerminalColumn("node", folds=True): lambda row: unit_title(str(row.node)), **_state({}, now)}
        blocks += [heading(f"{rule} on {len(nodes)} nodes"), table(shown, cells)]
        if counted:
            blocks.append(Line(counted, style="dim"))
    return blocks


_TUNED: Mapping[TerminalColumn, Callable[[tuple[str, TunedJob]], Shown]] = {
    TerminalColumn("job", folds=True): lambda named: named[0],
    TerminalColumn("status"): lambda named: named[1].status.value,
    TerminalColumn("evaluated", drops=1): lambda named: "to its end" if named[1].finished else "still",
    TerminalColumn("severity"): lambda named: severity_cell(named[1].severity),
    TerminalColumn("finding", folds=True): lambda named: (
        "no finding"
        if named[1].rule is None
        else named[1].rule + (f" and {named[1].findings - 1} more" if named[1].findings > 1 else "")
    ),
}


def tuning_result(record: TuningJobRecord, *, now: float) -> CommandResult:
    """Return the jobs of a tuning job with their findings, the worst first."""
    more = " and more" if record.more else ""
    facts: list[tuple[str, Shown]] = [
        ("jobs", f"{len(record.jobs):,}{more}, {record.finished:,} of them evaluated to their end"),
        ("with findings", f"{record.with_findings:,}"),
    ]
    for name, job in record.worst_first[:1]:
        if job.rule is not None:
            facts.append(("worst", Cell(f"{job.rule} ({job.severity}) on {name}")))
    blocks: list[Block] = [heading(record.name), TerminalFacts(facts)]
    if record.jobs:
        blocks += [heading("Jobs"), table(record.worst_first, _TUNED)]
    notes = []
    if record.more:
        notes.append(f"Only {MOST_TUNED_JOBS:,} jobs are here: `trainguard jobs --tuning {record.name}` has all.")
    document = {
        "generated_at": iso(now),
        "tuning_job": record.name,
        "seen": len(record.jobs),
        "finished": record.finished,
        "with_findings": record.with_findings,
        "more": record.more,
        "jobs": [{"job": name, **asdict(job)} for name, job in record.worst_first],
    }
    return CommandResult(document=document, blocks=blocks, notes=notes, fired=record.with_findings > 0)
