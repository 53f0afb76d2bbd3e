"""Jobs as ``jobs`` and ``status`` list them: a line each, with the most severe finding."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from trainguard.cli.output.blocks import Cell
from trainguard.cli.output.rows import has_fired, iso, report_row, ringing
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.job_rows import has_many_nodes
from trainguard.errors import StateCodecError
from trainguard.finding import Severity
from trainguard.records import JobRecord, JobStatus, RuleRow

AT_ONCE = 16
"""Jobs whose rows are read at once."""

_VERDICT_CHARACTERS = 120


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job; times are ISO 8601 in UTC.

    ``finding`` is the rule with the gravest finding, ``severity`` and ``cost_lost`` are that finding's, ``ringing`` are
    the rules that fire now, ``fired`` those that have fired. ``fault`` says why the rows could not be read.
    """

    job: str
    status: JobStatus
    active: bool
    instance_type: str | None
    instance_count: int | None
    started_at: str | None
    ended_at: str | None
    duration_s: float | None
    verdict: str | None
    finding: str | None
    severity: Severity | None
    cost_lost: str | None
    ringing: list[str]
    fired: list[str]
    evaluated_through: str | None
    tuning_job: str | None
    fault: str | None = None


def active_records(stores: Stores, pool: ThreadPoolExecutor) -> list[JobRecord]:
    """Return the jobs that are not closed, in order of their names."""
    return [record for record in pool.map(stores.jobs.load, stores.jobs.active()) if record is not None]


def begun(record: JobRecord) -> float | None:
    """Return when a job began, as well as that is known: one that SageMaker does not know has its objects alone."""
    known = (record.started_at, record.created_at, record.last_object_at)
    return next((at for at in known if at is not None), None)


def instances(line: JobLine | JobRecord) -> str:
    """Return for example ``2 x ml.p4d.24xlarge``."""
    if line.instance_type is None:
        return ""
    return line.instance_type if line.instance_count in {None, 1} else f"{line.instance_count} x {line.instance_type}"


def read_lines(stores: Stores, records: Sequence[JobRecord], now: float, pool: ThreadPoolExecutor) -> Iterator[JobLine]:
    """Read the rows of some jobs at a time, as far as lines are asked for."""

    def line(record: JobRecord) -> JobLine:
        try:
            many = has_many_nodes(record)
            rows = stores.rows.of_whole_job(record.job) if many else stores.rows.of_job(record.job)
            return _line(record, rows, now)
        except StateCodecError as fault:
            return msgspec.structs.replace(_line(record, [], now), fault=str(fault))

    for start in range(0, len(records), AT_ONCE):
        yield from pool.map(line, records[start : start + AT_ONCE])


def _line(record: JobRecord, rows: Sequence[RuleRow], now: float) -> JobLine:
    report, firing = report_row(rows), ringing(rows)
    top = firing[0] if firing else None
    fired = [row.rule for row in rows if row.node is None and has_fired(row) and row is not report]
    until = record.ended_at or (now if record.active else record.last_object_at)
    begin = record.started_at or record.created_at
    return JobLine(
        job=record.job,
        status=record.status,
        active=record.active,
        instance_type=record.instance_type,
        instance_count=record.instance_count,
        started_at=iso(record.started_at),
        ended_at=iso(record.ended_at),
        duration_s=None if begin is None or until is None else max(until - begin, 0.0),
        verdict=None if report is None else report.finding.reason,
        finding=None if top is None else top.rule,
        severity=None if top is None else top.finding.severity,
        cost_lost=None if top is None else top.finding.cost,
        ringing=[row.rule for row in firing],
        fired=fired,
        evaluated_through=None if report is None else iso(report.evaluated_through),
        tuning_job=record.tuning_job,
    )


def status_of_job(status: JobStatus, *, active: bool) -> Cell:
    """Return a job's status in its colour; one that is still evaluated is marked."""
    style = {JobStatus.FAILED: "red", JobStatus.STOPPED: "yellow", JobStatus.COMPLETED: "dim"}.get(status, "")
    return Cell(status.value, style if not active else style or "cyan")


def finding_text(line: JobLine) -> str:
    """Return what was found in a few words: what fires and what it has cost, else the verdict."""
    if line.fault is not None:
        return line.fault
    if not line.ringing:
        over = f"Over now: {', '.join(line.fired)}." if line.fired else ""
        return over or _shortened(line.verdict or "No verdict yet.")
    others = f", {', '.join(line.ringing[1:])}" if len(line.ringing) > 1 else ""
    lost = f"; {line.cost_lost}" if line.cost_lost else ""
    return f"{line.ringing[0]}{others}{lost}"


def _shortened(sentence: str) -> str:
    if len(sentence) <= _VERDICT_CHARACTERS:
        return sentence
    return sentence[:_VERDICT_CHARACTERS].rsplit(" ", 1)[0] + " …"
