"""``trainguard jobs``: every job of the deployment, the newest first, with what was found on it."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import msgspec

from trainguard.cli.output.blocks import Block, Column, Grid, Shown, severity_cell
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.output.rows import iso
from trainguard.cli.services.deployment import Stores, Where, connect
from trainguard.cli.services.job_list import (
    AT_ONCE,
    JobLine,
    active_records,
    begun,
    finding_text,
    instances,
    read_lines,
    status_of_job,
)
from trainguard.records import JobRecord, JobStatus
from trainguard.rules.units import show_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs: not closed ones, of a status, of a tuning job, begun in the last ``since_s`` seconds, that fired."""

    active: bool = False
    status: JobStatus | None = None
    since_s: float | None = None
    fired: bool = False
    tuning_job: str | None = None
    limit: int = 50


class JobsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, the newest first; ``more`` says that the limit left some out."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    jobs: list[JobLine]
    more: bool


def jobs_command(where: Where, wanted: JobFilter, *, as_json: bool) -> int:
    """List jobs; return the exit code."""
    return print_result(lambda: jobs_result(connect(where).stores, wanted, now=time.time()), as_json=as_json)


def jobs_result(stores: Stores, wanted: JobFilter, *, now: float) -> CommandResult:
    """List the jobs that are wanted."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        records = sorted(_records(stores, wanted, now, pool), key=_newest_first)
        lines = (line for line in read_lines(stores, records, now, pool) if line.fired or not wanted.fired)
        found = list(islice(lines, wanted.limit + 1))
    shown = found[: wanted.limit]
    document = JobsDocument(generated_at=str(iso(now)), jobs=shown, more=len(found) > len(shown))
    notes = [] if shown else ["No job is like that."]
    if document.more:
        notes.append(f"Only the newest {wanted.limit:,} are shown: pass --limit for more.")
    return CommandResult(document=document, blocks=_blocks(shown), notes=notes, fired=any(line.fired for line in shown))


def _records(stores: Stores, wanted: JobFilter, now: float, pool: ThreadPoolExecutor) -> Iterable[JobRecord]:
    records = active_records(stores, pool) if wanted.active else stores.jobs.all()
    for record in records:
        at = begun(record)
        recent = wanted.since_s is None or (at is not None and now - at <= wanted.since_s)
        if recent and wanted.status in {None, record.status} and wanted.tuning_job in {None, record.tuning_job}:
            yield record


def _newest_first(record: JobRecord) -> tuple[float, str]:
    return -(begun(record) or 0.0), record.job


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
        finding_text(line),
    ]
