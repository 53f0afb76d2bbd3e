"""``trainguard status``: what fires on the active jobs, or one job, or a tuning job."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from trainguard.cli.commands.status.job_status import job_result
from trainguard.cli.commands.status.tuning_status import tuning_result
from trainguard.cli.output.blocks import Column, Grid, Shown, severity_cell
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.output.rows import age, iso
from trainguard.cli.output.terminal import stdout_console
from trainguard.cli.output.watch import watch
from trainguard.cli.services.deployment import Stores, Where, connect
from trainguard.cli.services.job_list import (
    AT_ONCE,
    JobLine,
    active_records,
    finding_text,
    instances,
    read_lines,
    status_of_job,
)
from trainguard.finding import severity_rank
from trainguard.records import JobRecord, TuningJobRecord
from trainguard.rules.units import show_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest:
    """What was asked for; ``watch_s`` is the time between two looks, None for one look."""

    where: Where
    job: str | None = None
    nodes: bool = False
    watch_s: float | None = None
    fail_on_fire: bool = False
    as_json: bool = False


class ActiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The active jobs, the most severe first."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    jobs: list[JobLine]


def status_command(request: StatusRequest) -> int:
    """Show the state of jobs; return the exit code."""
    if request.watch_s is None or request.as_json:
        return print_result(_look(request), as_json=request.as_json, fail_on_fire=request.fail_on_fire)
    return watch(_look(request), console=stdout_console(), every_s=request.watch_s, fail_on_fire=request.fail_on_fire)


def _look(request: StatusRequest) -> Callable[[], CommandResult]:
    """Return what looks at the jobs now; it connects when it is first called."""
    opened: list[Stores] = []

    def look() -> CommandResult:
        if not opened:
            opened.append(connect(request.where).stores)
        if request.job is None:
            return active_result(opened[0], now=time.time())
        tuning_job = _tuning_job(opened[0], request.job)
        if tuning_job is not None:
            return tuning_result(tuning_job, now=time.time())
        return job_result(opened[0], request.job, nodes=request.nodes, now=time.time())

    return look


def _tuning_job(stores: Stores, name: str) -> TuningJobRecord | None:
    """Return the tuning job of a name that no training job has."""
    return stores.jobs.tuning_job(name) if stores.jobs.load(name) is None else None


def active_result(stores: Stores, *, now: float) -> CommandResult:
    """Return what fires on the active jobs."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        records = active_records(stores, pool)
        lines = sorted(read_lines(stores, records, now, pool), key=_gravest_first)
    columns = (
        Column("job", folds=True),
        Column("status"),
        Column("instance", drops=3),
        Column("running", right=True, drops=2),
        Column("evaluated", right=True, drops=1),
        Column("severity"),
        Column("what fires", folds=True),
    )
    rows = [_active_row(line, record, now) for line, record in _paired(lines, records)]
    return CommandResult(
        document=ActiveDocument(generated_at=str(iso(now)), jobs=lines),
        blocks=[Grid(columns, rows)] if rows else [],
        notes=[] if rows else ["No job is active: `trainguard jobs` lists those that have ended."],
        fired=any(line.fired for line in lines),
    )


def _gravest_first(line: JobLine) -> tuple[int, str]:
    return -severity_rank(line.severity), line.job


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
        finding_text(line),
    ]
