"""``trainguard status`` of one job: every rule of it, and on its nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trainguard.cli.output.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Grid,
    Heading,
    Line,
    Shown,
    severity_cell,
    status_cell,
)
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult
from trainguard.cli.output.rows import (
    age,
    by_node,
    has_fired,
    iso,
    measured_as,
    of_whole_job,
    report_row,
    row_json,
    stop_entry,
    time_text,
    with_unit,
)
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.job_list import (
    configuration_blocks,
    configuration_of,
    instances,
    read_job,
    shown_nodes,
    status_of_job,
    stop_text,
)
from trainguard.core.finding import Severity
from trainguard.core.records import (
    MOST_TUNED_JOBS,
    JobRecord,
    JobStatus,
    RuleRow,
    Status,
    TunedJob,
    TuningJobRecord,
    unit_title,
)
from trainguard.rules.profiler_report import PROFILER_REPORT


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its rules; ``nodes`` is empty where not asked for, ``job`` only a name where it expired."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    job: str
    status: str | None
    secondary_status: str | None
    active: bool
    instance_type: str | None
    instance_count: int | None
    started_at: str | None
    ended_at: str | None
    evaluated_through: str | None
    verdict: str | None
    fired: list[str]
    rules: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    evaluated: bool | None
    evaluated_because: str | None
    setting_faults: list[str]
    rules_elsewhere: dict[str, str]
    rule_places: dict[str, str]
    staged: list[str]
    muted: list[str]
    tuning_job: str | None


def job_result(stores: Stores, job: str, *, nodes: bool, now: float) -> CommandResult:
    """Return every rule's state on one job; raises UnknownNameError and UnknownJobError."""
    record, rows = read_job(stores, job)
    configuration = configuration_of(record)
    whole, of_nodes = of_whole_job(rows), by_node(rows)
    report = report_row(rows)
    fired = [row.rule for row in whole if has_fired(row) and row.rule != PROFILER_REPORT]
    document = JobDocument(
        generated_at=str(iso(now)),
        job=job,
        status=None if record is None else record.status.value,
        secondary_status=None if record is None else record.secondary_status,
        active=record is not None and record.active,
        instance_type=None if record is None else record.instance_type,
        instance_count=None if record is None else record.instance_count,
        started_at=None if record is None else iso(record.started_at),
        ended_at=None if record is None else iso(record.ended_at),
        evaluated_through=None if report is None else iso(report.evaluated_through),
        verdict=None if report is None else report.finding.reason,
        fired=fired,
        rules=[row_json(row) for row in whole],
        nodes=[row_json(row) for of_rule in of_nodes.values() for row in of_rule] if nodes else [],
        evaluated=None if record is None else record.policy.evaluated,
        evaluated_because=None if record is None else record.policy.why,
        **msgspec.structs.asdict(configuration),
        staged=[] if record is None else list(record.policy.alerts.staged),
        muted=[] if record is None else list(record.policy.alerts.muted),
        tuning_job=None if record is None else record.tuning_job,
    )
    blocks: list[Block] = [Heading(job), Facts(_facts(record, report, now))]
    rules = [row for row in whole if row.rule != PROFILER_REPORT]
    if rules:
        blocks += [Heading("Rules"), Grid(_COLUMNS, [_rule_row(row, of_nodes, now) for row in rules])]
    blocks += _notified_fires(rules, now)
    blocks += configuration_blocks(configuration)
    if nodes:
        blocks += _node_blocks(of_nodes, [row.rule for row in rules], now)
    notes = [] if rules else ["No rule has said anything about it yet: its first profile object has not been read."]
    over = record is not None and not record.active
    return CommandResult(document=document, blocks=blocks, notes=notes, fired=bool(fired), final=over)


_COLUMNS = (
    Column("rule"),
    Column("status"),
    Column("measured", right=True),
    Column("threshold", right=True),
    Column("patience", right=True, drops=1),
    Column("points", right=True, drops=3),
    Column("worst", folds=True, drops=2),
    Column("evaluated", right=True, drops=4),
    Column("fired", folds=True),
)


def _facts(record: JobRecord | None, report: RuleRow | None, now: float) -> list[tuple[str, Shown]]:
    facts: list[tuple[str, Shown]] = []
    if record is not None:
        more = record.secondary_status not in {None, "", record.status.value}
        secondary = f", {record.secondary_status}" if more else ""
        judged = "still evaluated" if record.active else "evaluated to its end"
        style = status_of_job(record.status, active=record.active).style
        facts.append(("status", Cell(f"{record.status.value}{secondary}; {judged}", style)))
        if not record.policy.evaluated:
            facts.append(("not evaluated", Cell(record.policy.why, "bold yellow")))
        facts += [
            ("staged", _named(record.policy.alerts.staged, "recorded, and nothing else comes of them")),
            ("muted", _named(record.policy.alerts.muted, "they raise no alert")),
            ("tuning job", record.tuning_job or ""),
        ]
        facts += [("instances", instances(record)), ("started", time_text(record.started_at, now))]
        facts.append(("ended", time_text(record.ended_at, now)))
    if report is not None:
        facts += [("evaluated through", time_text(report.evaluated_through, now)), ("verdict", report.finding.reason)]
    return [(name, value) for name, value in facts if value]


def _named(rules: Sequence[str], meaning: str) -> str:
    return f"{', '.join(rules)}: {meaning}" if rules else ""


def _rule_row(row: RuleRow, of_nodes: Mapping[str, Sequence[RuleRow]], now: float) -> list[Shown]:
    return [row.rule, *_state_cells(row, now), _fired_cell(row, of_nodes.get(row.rule, []), now)]


def _state_cells(row: RuleRow, now: float) -> list[Shown]:
    _, unit = measured_as(row)
    return [
        status_cell(row.status),
        with_unit(row.finding.measured, unit),
        with_unit(row.finding.threshold, unit),
        row.patience or "",
        f"{row.data_points:,}",
        row.worst or "",
        age(row.evaluated_through, now),
    ]


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
        blocks += [Heading(f"{row.rule}{severity}"), Line(row.finding.reason, indent=2)]
        if row.finding.held:
            blocks.append(Line(f"It held {row.finding.held[-1].sentence}.", indent=2))
        if row.finding.advice:
            blocks.append(Line(f"To do: {row.finding.advice}", indent=2))
        if row.finding.cost:
            blocks.append(Line(f"It has cost {row.finding.cost}.", indent=2))
        if row.action:
            when = f" ({time_text(row.action_at, now)})" if row.action_at is not None else ""
            blocks.append(Line(f"Done: {row.action}{when}", indent=2))
        if stop := stop_text(stop_entry(row), row.fire_id, now):
            blocks.append(Line(stop, indent=2))
    return blocks


def _node_blocks(of_nodes: Mapping[str, Sequence[RuleRow]], rules: Sequence[str], now: float) -> list[Block]:
    """Return a table of nodes a rule: the worst one by one, the others counted where there are many."""
    blocks: list[Block] = []
    for rule in rules:
        nodes = of_nodes.get(rule, [])
        if not nodes:
            continue
        shown, counted = shown_nodes(nodes)
        columns = (Column("node", folds=True), *_COLUMNS[1:])
        rows = [
            [
                unit_title(str(row.node)),
                *_state_cells(row, now),
                _fired_cell(row, [], now),
            ]
            for row in shown
        ]
        blocks += [Heading(f"{rule} on {len(nodes)} nodes"), Grid(columns, rows)]
        if counted:
            blocks.append(Line(counted, style="dim"))
    return blocks


class TunedJobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tuning job; ``findings`` counts the rules that have fired, ``finding`` is the most severe."""

    job: str
    status: JobStatus
    finished: bool
    findings: int
    finding: str | None
    severity: Severity | None


class TuningDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning job, its jobs with the worst first; ``more`` says that there are jobs that are not named."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    tuning_job: str
    seen: int
    finished: int
    with_findings: int
    more: bool
    jobs: list[TunedJobLine]


def tuning_result(record: TuningJobRecord, *, now: float) -> CommandResult:
    """Return the jobs of a tuning job with their findings."""
    document = TuningDocument(
        generated_at=str(iso(now)),
        tuning_job=record.name,
        seen=len(record.jobs),
        finished=record.finished,
        with_findings=record.with_findings,
        more=record.more,
        jobs=[_line(name, job) for name, job in record.worst_first],
    )
    blocks: list[Block] = [Heading(record.name), Facts(_tuning_facts(document))]
    if document.jobs:
        blocks += [Heading("Jobs"), Grid(_TUNING_COLUMNS, [_row(line) for line in document.jobs])]
    notes = []
    if record.more:
        notes.append(f"Only {MOST_TUNED_JOBS:,} jobs are here: `trainguard jobs --tuning {record.name}` has all.")
    return CommandResult(document=document, blocks=blocks, notes=notes, fired=document.with_findings > 0)


_TUNING_COLUMNS = (
    Column("job", folds=True),
    Column("status"),
    Column("evaluated", drops=1),
    Column("severity"),
    Column("finding", folds=True),
)


def _line(name: str, job: TunedJob) -> TunedJobLine:
    return TunedJobLine(
        job=name,
        status=job.status,
        finished=job.finished,
        findings=job.findings,
        finding=job.rule,
        severity=job.severity,
    )


def _tuning_facts(document: TuningDocument) -> list[tuple[str, Shown]]:
    more = " and more" if document.more else ""
    facts: list[tuple[str, Shown]] = [
        ("jobs", f"{document.seen:,}{more}, {document.finished:,} of them evaluated to their end"),
        ("with findings", f"{document.with_findings:,}"),
    ]
    worst = document.jobs[0] if document.jobs else None
    if worst is not None and worst.finding is not None:
        facts.append(("worst", Cell(f"{worst.finding} ({worst.severity}) on {worst.job}")))
    return facts


def _row(line: TunedJobLine) -> list[Shown]:
    others = f" and {line.findings - 1} more" if line.findings > 1 else ""
    return [
        line.job,
        line.status.value,
        "to its end" if line.finished else "still",
        severity_cell(line.severity),
        f"{line.finding}{others}" if line.finding is not None else "no finding",
    ]
