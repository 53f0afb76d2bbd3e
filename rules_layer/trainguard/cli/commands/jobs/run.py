"""``trainguard jobs``: every job of the deployment, the newest first, with what was found on it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import msgspec

from trainguard.cli.output.rendering import (
    SCHEMA_VERSION,
    Answer,
    Block,
    Cell,
    Column,
    Grid,
    Shown,
    give,
    severity_cell,
)
from trainguard.cli.output.rows import has_fired, iso, report_row, ringing
from trainguard.cli.services.deployment import Stores, Where, connect
from trainguard.cli.services.job_rows import has_many_nodes
from trainguard.errors import StateCodecError
from trainguard.records import JobRecord, JobStatus, RuleRow, Severity
from trainguard.rules.units import show_duration

_AT_ONCE = 16
_VERDICT_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs: not closed ones, of a status, of a tuning job, begun in the last ``since_s`` seconds, that fired."""

    active: bool = False
    status: JobStatus | None = None
    since_s: float | None = None
    fired: bool = False
    tuning_job: str | None = None
    limit: int = 50


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


class JobsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, the newest first; ``more`` says that the limit left some out."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    jobs: list[JobLine]
    more: bool


def jobs_command(where: Where, wanted: Wanted, *, as_json: bool) -> int:
    """List jobs; return the exit code."""
    return give(lambda: jobs_answer(connect(where).stores, wanted, now=time.time()), as_json=as_json)


def jobs_answer(stores: Stores, wanted: Wanted, *, now: float) -> Answer:
    """List the jobs that are wanted."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        records = sorted(_records(stores, wanted, now, pool), key=_newest_first)
        lines = (line for line in _lines(stores, records, now, pool) if line.fired or not wanted.fired)
        found = list(islice(lines, wanted.limit + 1))
    shown = found[: wanted.limit]
    document = JobsDocument(generated_at=str(iso(now)), jobs=shown, more=len(found) > len(shown))
    notes = [] if shown else ["No job is like that."]
    if document.more:
        notes.append(f"Only the newest {wanted.limit:,} are shown: pass --limit for more.")
    return Answer(document=document, blocks=_blocks(shown), notes=notes, fired=any(line.fired for line in shown))


def job_lines(stores: Stores, records: Sequence[JobRecord], *, now: float) -> list[JobLine]:
    """Return the lines of jobs, in order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(_lines(stores, records, now, pool))


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


def _records(stores: Stores, wanted: Wanted, now: float, pool: ThreadPoolExecutor) -> Iterable[JobRecord]:
    records = active_records(stores, pool) if wanted.active else stores.jobs.all()
    for record in records:
        at = begun(record)
        recent = wanted.since_s is None or (at is not None and now - at <= wanted.since_s)
        if recent and wanted.status in {None, record.status} and wanted.tuning_job in {None, record.tuning_job}:
            yield record


def _newest_first(record: JobRecord) -> tuple[float, str]:
    return -(begun(record) or 0.0), record.job


def _lines(stores: Stores, records: Sequence[JobRecord], now: float, pool: ThreadPoolExecutor) -> Iterator[JobLine]:
    """Read the rows of some jobs at a time, as far as lines are asked for."""

    def line(record: JobRecord) -> JobLine:
        try:
            many = has_many_nodes(record)
            rows = stores.rows.of_whole_job(record.job) if many else stores.rows.of_job(record.job)
            return _line(record, rows, now)
        except StateCodecError as fault:
            return msgspec.structs.replace(_line(record, [], now), fault=str(fault))

    for start in range(0, len(records), _AT_ONCE):
        yield from pool.map(line, records[start : start + _AT_ONCE])


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
        verdict=None if report is None else report.reason,
        finding=None if top is None else top.rule,
        severity=None if top is None else top.severity,
        cost_lost=None if top is None else top.cost_lost,
        ringing=[row.rule for row in firing],
        fired=fired,
        evaluated_through=None if report is None else iso(report.evaluated_through),
        tuning_job=record.tuning_job,
    )


def _blocks(lines: Sequence[JobLine]) -> list[Block]:
    if not lines:
        return []
    columns = (
        Column("job", folds=True),
        Column("status"),
        Column("instance", drops=3),
        Column("started", drops=1),
        Column("ran", right=True, drops=2),
        Column("severity"),
        Column("finding and verdict", folds=True),
    )
    return [Grid(columns, [_row(line) for line in lines])]


def _row(line: JobLine) -> list[Shown]:
    return [
        line.job,
        status_of_job(line.status, active=line.active),
        instances(line),
        "" if line.started_at is None else f"{line.started_at[:16].replace('T', ' ')}Z",
        "" if line.duration_s is None else show_duration(line.duration_s),
        severity_cell(line.severity),
        told(line),
    ]


def status_of_job(status: JobStatus, *, active: bool) -> Cell:
    """Return a job's status in its colour; one that is judged still is marked."""
    style = {JobStatus.FAILED: "red", JobStatus.STOPPED: "yellow", JobStatus.COMPLETED: "dim"}.get(status, "")
    return Cell(status.value, style if not active else style or "cyan")


def told(line: JobLine) -> str:
    """Return what was found in a few words: what rings and what it has cost, else the verdict."""
    if line.fault is not None:
        return line.fault
    if not line.ringing:
        over = f"Over now: {', '.join(line.fired)}." if line.fired else ""
        return over or _shortened(line.verdict or "Not judged yet.")
    others = f", {', '.join(line.ringing[1:])}" if len(line.ringing) > 1 else ""
    lost = f"; {line.cost_lost}" if line.cost_lost else ""
    return f"{line.ringing[0]}{others}{lost}"


def _shortened(sentence: str) -> str:
    if len(sentence) <= _VERDICT_CHARACTERS:
        return sentence
    return sentence[:_VERDICT_CHARACTERS].rsplit(" ", 1)[0] + " …"
