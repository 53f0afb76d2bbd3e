"""Holds a job's evaluation back while an operator's brake is on it, and lets it go on.

Objects stay in S3, and their messages are dropped. Once the brake is gone a listing finds them, as after a lost
message: every minute is judged, later, and no window or patience sees a gap.
"""

from dataclasses import replace

from trainguard.core.brakes import Brake, Braked
from trainguard.core.canary_name import is_canary
from trainguard.core.finding import Finding
from trainguard.core.ports import NodeTask, Services
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.core.timestamps import iso_time
from trainguard.engine.streams.session import SILENT_S
from trainguard.rules.profiler_report import PROFILER_REPORT

# Statuses that the row of a job that is not evaluated keeps: another one could look like an all-clear.
_KEPT = frozenset({Status.FIRED, Status.ERROR})

# The diagnosis's level of a job of which nothing can be said.
_UNKNOWN = "unknown"


def brake_on(job: JobRecord, services: Services, now: float) -> Brake | None:
    """Return the brake that holds a job's evaluation back; canaries show that evaluation works."""
    if is_canary(job.job, job.arn, job.canary):
        return None
    return services.brakes().on(Braked.EVALUATION, job=job.job, now=now)


def hold(job: JobRecord, brake: Brake, services: Services) -> None:
    """Say in the job's item, and in its row for people, that it is not evaluated; safe to repeat."""
    why = one_line(f"Not evaluated since {brake.since}, by an operator's {brake.words}", LONGEST_SENTENCE)
    if job.braked != why:
        services.jobs.set_braked(job.job, why)
        _say(job, why, services)


def let_go(job: JobRecord, services: Services, now: float) -> list[NodeTask]:
    """Say that a job is evaluated again; return a task for each open stream, to apply what came in the meantime."""
    services.jobs.set_braked(job.job, None)
    if job.closing:
        return []
    _say(job, f"Evaluated again since {iso_time(now)}: what was recorded in the meantime is judged now.", services)
    services.jobs.set_fast_polling(job.job, polled_fast=True)
    return [
        NodeTask(record.key.job, record.key.node, record.key.stream, "flush", now - SILENT_S, job.generation)
        for record in services.nodes.of_job(job.job)
        if not (record.key.is_own or record.closed) and record.generation == job.generation
    ]


def _say(job: JobRecord, reason: str, services: Services) -> None:
    """Write the report's row; the next verdict on the job replaces it."""
    row = services.rows.load(job.job, PROFILER_REPORT)
    if row is None or row.generation != job.generation:
        row = RuleRow(job.job, Finding(PROFILER_REPORT, None, ""), Status.WAITING_FOR_DATA, generation=job.generation)
    status = row.status if row.status in _KEPT else Status.WAITING_FOR_DATA
    finding = replace(row.finding, reason=reason, finding_kind=_UNKNOWN, advice=None)
    services.rows.publish([replace(row, finding=finding, status=status)])
