"""``trainguard status``: what rings on the active jobs, and every rule of one job."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from trainguard.cli.answer import (
    SCHEMA_VERSION,
    Answer,
    Block,
    Cell,
    Column,
    Facts,
    Grid,
    Heading,
    Line,
    Shown,
    give,
    severity_cell,
    status_cell,
)
from trainguard.cli.deployment import Stores, Where, connect
from trainguard.cli.jobs import JobLine, active_records, instances, job_lines, status_of_job, told
from trainguard.cli.names import unknown_job
from trainguard.cli.rows import (
    RuleLine,
    age,
    by_node,
    has_fired,
    iso,
    of_whole_job,
    report_row,
    rule_line,
    told_number,
    told_time,
)
from trainguard.cli.table import stdout_console
from trainguard.cli.tuning import tuning_answer
from trainguard.cli.watch import watch
from trainguard.ports import StoredRow
from trainguard.records import JobRecord, RuleRow, Severity, Status, TuningJobRecord
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.units import show_duration

_AT_ONCE = 16
NODES_SHOWN = 8
"""A person reads so many nodes of a rule one by one; of more, those that are well are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for; ``watch_s`` is the time between two looks, None for one look."""

    where: Where
    job: str | None = None
    nodes: bool = False
    watch_s: float | None = None
    fail_on_fire: bool = False
    as_json: bool = False


class ActiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The active jobs, the gravest first."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    jobs: list[JobLine]


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its rules; ``nodes`` are the rules' rows by node, empty where they were not asked for.

    ``job`` has no more than a name where rows are left of a job whose own item has expired.
    """

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
    rules: list[RuleLine]
    nodes: list[RuleLine]
    evaluated: bool | None
    evaluated_because: str | None
    setting_faults: list[str]
    rules_elsewhere: dict[str, str]
    rule_places: dict[str, str]
    tuning_job: str | None


def status_command(request: Request) -> int:
    """Show the state of jobs; return the exit code."""
    if request.watch_s is None or request.as_json:
        return give(_look(request), as_json=request.as_json, fail_on_fire=request.fail_on_fire)
    return watch(_look(request), console=stdout_console(), every_s=request.watch_s, fail_on_fire=request.fail_on_fire)


def _look(request: Request) -> Callable[[], Answer]:
    """Return what looks at the jobs now; it connects when it is first called."""
    opened: list[Stores] = []

    def look() -> Answer:
        if not opened:
            opened.append(connect(request.where).stores)
        if request.job is None:
            return active_answer(opened[0], now=time.time())
        tuning_job = _tuning_job(opened[0], request.job)
        if tuning_job is not None:
            return tuning_answer(tuning_job, now=time.time())
        return job_answer(opened[0], request.job, nodes=request.nodes, now=time.time())

    return look


def _tuning_job(stores: Stores, name: str) -> TuningJobRecord | None:
    """Return the tuning job of a name that no training job has."""
    return stores.jobs.tuning_job(name) if stores.jobs.load(name) is None else None


def active_answer(stores: Stores, *, now: float) -> Answer:
    """Return what rings on the active jobs."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        records = active_records(stores, pool)
    lines = sorted(job_lines(stores, records, now=now), key=_gravest_first)
    columns = (
        Column("job", folds=True),
        Column("status"),
        Column("instance", drops=3),
        Column("running", right=True, drops=2),
        Column("judged", right=True, drops=1),
        Column("severity"),
        Column("what rings", folds=True),
    )
    rows = [_active_row(line, record, now) for line, record in _paired(lines, records)]
    return Answer(
        document=ActiveDocument(generated_at=str(iso(now)), jobs=lines),
        blocks=[Grid(columns, rows)] if rows else [],
        notes=[] if rows else ["No job is active: `trainguard jobs` lists those that have ended."],
        fired=any(line.fired for line in lines),
    )


def _gravest_first(line: JobLine) -> tuple[int, str]:
    gravity = -1 if line.severity is None else list(Severity).index(line.severity)
    return -gravity, line.job


def _paired(lines: Sequence[JobLine], records: Sequence[JobRecord]) -> list[tuple[JobLine, JobRecord]]:
    by_name = {record.job: record for record in records}
    return [(line, by_name[line.job]) for line in lines]


def _active_row(line: JobLine, record: JobRecord, now: float) -> list[Shown]:
    return [
        line.job,
        status_of_job(line.status, active=line.active),
        instances(line),
        "" if line.duration_s is None else show_duration(line.duration_s),
        f"{age(record.last_object_at, now)} ago" if record.last_object_at is not None else "",
        severity_cell(line.severity),
        told(line),
    ]


def job_answer(stores: Stores, job: str, *, nodes: bool, now: float) -> Answer:
    """Return every rule's state on one job; raises UnknownNameError and UnknownJobError."""
    record, rows = read_job(stores, job)
    whole, of_nodes = of_whole_job(rows), by_node(rows)
    report = report_row(stored.row for stored in rows)
    fired = [stored.row.rule for stored in whole if has_fired(stored.row) and stored.row.rule != PROFILER_REPORT]
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
        verdict=None if report is None else report.reason,
        fired=fired,
        rules=[rule_line(stored) for stored in whole],
        nodes=[rule_line(stored) for of_rule in of_nodes.values() for stored in of_rule] if nodes else [],
        evaluated=None if record is None else record.policy.evaluated,
        evaluated_because=None if record is None else record.policy.why,
        setting_faults=[] if record is None else list(record.setting_faults),
        rules_elsewhere={} if record is None else dict(record.rules_elsewhere),
        rule_places={} if record is None else dict(record.rule_places),
        tuning_job=None if record is None else record.tuning_job,
    )
    blocks: list[Block] = [Heading(job), Facts(_facts(record, report, now))]
    rules = [stored for stored in whole if stored.row.rule != PROFILER_REPORT]
    if rules:
        blocks += [Heading("Rules"), Grid(_COLUMNS, [_rule_row(stored, of_nodes, now) for stored in rules])]
    blocks += _told_fires(rules, now)
    if record is not None:
        blocks += _told_configuration(record)
    if nodes:
        blocks += _node_blocks(of_nodes, [stored.row.rule for stored in rules], now)
    notes = [] if rules else ["No rule has said anything about it yet: its first profile object has not been read."]
    over = record is not None and not record.active
    return Answer(document=document, blocks=blocks, notes=notes, fired=bool(fired), final=over)


def read_job(stores: Stores, job: str) -> tuple[JobRecord | None, list[StoredRow]]:
    """Return a job's item and rows; raises UnknownNameError or UnknownJobError when there is neither."""
    record, rows = stores.jobs.load(job), stores.rows.read(job)
    if record is None and not rows:
        raise unknown_job(job, stores.jobs)
    return record, rows


_COLUMNS = (
    Column("rule"),
    Column("status"),
    Column("measured", right=True),
    Column("threshold", right=True),
    Column("patience", right=True, drops=1),
    Column("points", right=True, drops=3),
    Column("worst", folds=True, drops=2),
    Column("judged", right=True, drops=4),
    Column("fired", folds=True),
)


def _facts(record: JobRecord | None, report: RuleRow | None, now: float) -> list[tuple[str, Shown]]:
    facts: list[tuple[str, Shown]] = []
    if record is not None:
        more = record.secondary_status not in {None, "", record.status.value}
        secondary = f", {record.secondary_status}" if more else ""
        judged = "judged still" if record.active else "judged to its end"
        style = status_of_job(record.status, active=record.active).style
        facts.append(("status", Cell(f"{record.status.value}{secondary}; {judged}", style)))
        if not record.policy.evaluated:
            facts.append(("not evaluated", Cell(record.policy.why, "bold yellow")))
        facts.append(("tuning job", record.tuning_job or ""))
        facts += [("instances", instances(record)), ("started", told_time(record.started_at, now))]
        facts.append(("ended", told_time(record.ended_at, now)))
    if report is not None:
        facts += [("judged through", told_time(report.evaluated_through, now)), ("verdict", report.reason)]
    return [(name, value) for name, value in facts if value]


def _rule_row(stored: StoredRow, of_nodes: Mapping[str, Sequence[StoredRow]], now: float) -> list[Shown]:
    row = stored.row
    return [row.rule, *_state_cells(row, now), _fired_cell(row, of_nodes.get(row.rule, []), now)]


def _state_cells(row: RuleRow, now: float) -> list[Shown]:
    return [
        status_cell(row.status),
        told_number(row.measured),
        told_number(row.threshold),
        row.patience or "",
        f"{row.data_points:,}",
        row.worst or "",
        age(row.evaluated_through, now),
    ]


def _fired_cell(row: RuleRow, nodes: Sequence[StoredRow], now: float) -> str:
    if not has_fired(row):
        return ""
    firing = sum(stored.row.status is Status.FIRED for stored in nodes)
    on = f", on {firing} of {len(nodes)} nodes" if firing and len(nodes) > 1 else ""
    ago = f", {age(row.fired_at, now)} ago" if row.fired_at is not None else ""
    return f"{row.times_fired} x{ago}{on}"


def _told_fires(rules: Sequence[StoredRow], now: float) -> list[Block]:
    """Tell of each rule that has fired, and of each in error, why, what to do, and what was done."""
    blocks: list[Block] = []
    for stored in rules:
        row = stored.row
        if not has_fired(row) and row.status is not Status.ERROR:
            continue
        severity = f" ({row.severity.value})" if row.severity is not None else ""
        blocks += [Heading(f"{row.rule}{severity}"), Line(row.reason, indent=2)]
        if row.advice:
            blocks.append(Line(f"To do: {row.advice}", indent=2))
        if row.cost_lost:
            blocks.append(Line(f"It has cost {row.cost_lost}.", indent=2))
        if stored.action:
            when = f" ({told_time(stored.action_at, now)})" if stored.action_at is not None else ""
            blocks.append(Line(f"Done: {stored.action}{when}", indent=2))
    return blocks


def _told_configuration(record: JobRecord) -> list[Block]:
    """Tell what is wrong with the job's settings, and which of its configured rules run elsewhere, if at all."""
    blocks: list[Block] = []
    if record.setting_faults:
        blocks.append(Heading("Settings that cannot be used"))
        blocks += [Line(fault, indent=2) for fault in record.setting_faults]
    if record.rules_elsewhere:
        blocks.append(Heading("Configured rules that are not evaluated here"))
        blocks.append(Facts(sorted(record.rules_elsewhere.items())))
    if record.rule_places:
        blocks.append(Heading("Places that rule configurations name for their reports; nothing is written there"))
        blocks.append(Facts(sorted(record.rule_places.items())))
    return blocks


def _node_blocks(of_nodes: Mapping[str, Sequence[StoredRow]], rules: Sequence[str], now: float) -> list[Block]:
    """Return a table of nodes a rule: the worst one by one, the others counted where there are many."""
    blocks: list[Block] = []
    for rule in rules:
        nodes = of_nodes.get(rule, [])
        if not nodes:
            continue
        shown, counted = shown_nodes(nodes)
        columns = (Column("node", folds=True), *_COLUMNS[1:])
        rows = [
            [str(stored.row.node), *_state_cells(stored.row, now), _fired_cell(stored.row, [], now)] for stored in shown
        ]
        blocks += [Heading(f"{rule} on {len(nodes)} nodes"), Grid(columns, rows)]
        if counted:
            blocks.append(Line(counted, style="dim"))
    return blocks


def shown_nodes(nodes: Sequence[StoredRow]) -> tuple[Sequence[StoredRow], str]:
    """Return the nodes to show, the worst first, and a sentence on the others; empty when there are none."""
    if len(nodes) <= NODES_SHOWN:
        return nodes, ""
    shown, rest = nodes[:NODES_SHOWN], nodes[NODES_SHOWN:]
    counts = Counter(stored.row.status.value for stored in rest)
    told_counts = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    return shown, f"… and {len(rest)} nodes more: {told_counts}. All of them are in --json."
