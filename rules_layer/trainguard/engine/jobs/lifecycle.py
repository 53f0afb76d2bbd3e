"""Follows a job's changes of state; an event only makes the job be described, so repeats do no harm.

While an operator's brake holds a job's evaluation back, objects stay in S3, and their messages are dropped. Once the
brake is gone a listing finds them, as after a lost message: every minute is judged, later, and no window or patience
sees a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainguard.core.brakes import Brake
from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Journal, ReadableObjects, Services, StreamTask, TrainingJobDescription
from trainguard.core.records import JobRecord, RuleRow, Status, StreamKey, StreamRecord
from trainguard.core.stores import Jobs, NodeStates
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.core.timestamps import iso_time
from trainguard.engine.family import Families
from trainguard.engine.jobs.job_description import as_open, is_another, lies_elsewhere, profile_place, with_description
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.engine.streams.session import STREAM_SILENT_S, expiry
from trainguard.rules.profiler_report import PROFILER_REPORT

# Streams of which none has answered are asked to close again.
ASK_AGAIN_S = 300.0

# Streams of a job that names a source are asked to close this long after its end: the last poll is over then.
LAST_READ_S = 240.0

# Without an answer to so many, within a day, the job is given up.
MOST_ASKS = 8


def request_close(job: JobRecord, registry: JobRegistry) -> JobRecord:
    """Mark the job as closing and send each of its streams a task, unless that was done just now; safe to repeat."""
    closing, now = replace(job, closing=True), registry.now()
    registry.services.jobs.update_status(closing)
    # The last poll of a job's source comes a little after its end.
    is_still_read = bool(job.policy.source) and job.ended_at is not None and now - job.ended_at < LAST_READ_S
    if is_still_read or not _is_over(job, now):
        return closing
    met = [record for record in registry.services.nodes.of_job(job.job) if not record.key.is_own]
    known = {record.key for record in met if record.generation == job.generation}
    streams = known | registry.families.expected(job, {record.key for record in met})
    registry.services.tasks.send([close_task(job, key) for key in sorted(streams, key=lambda key: key.node_kind)])
    asked = replace(closing, close_asks=job.close_asks + 1, close_asked_at=now)
    registry.services.jobs.update_status(asked)
    return asked


def given_up(job: JobRecord, now: float) -> bool:
    """Whether the streams of a job were asked to close as often as they ever are, and long ago."""
    return job.close_asks >= MOST_ASKS and _is_over(job, now)


def _is_over(job: JobRecord, now: float) -> bool:
    if job.close_asked_at is None:
        return True
    return now - job.close_asked_at >= ASK_AGAIN_S * 2.0 ** (job.close_asks - 1)


def close_task(job: JobRecord, key: StreamKey) -> StreamTask:
    return StreamTask(job=key.job, node=key.node, stream=key.stream, action="close", generation=job.generation)


def reopen(job: JobRecord, *, jobs: Jobs, nodes: NodeStates) -> JobRecord:
    """Let a job that was closed go on; return its item. Raises StateConflictError when a stream is being written."""
    open_streams(job, nodes)
    opened = replace(as_open(job), polled_fast=True)
    jobs.update_status(opened)
    return opened


def open_streams(job: JobRecord, nodes: NodeStates) -> None:
    """Open the streams of a job that has ended and goes on; raises StateConflictError as `reopen` does."""
    for record in nodes.of_job(job.job):
        if record.closed and record.generation == job.generation:
            nodes.save(replace(record, closed=False, expires_at=None))


# A node writes its status object every three minutes and when it ends; the collector uses the same limit.
NO_STATUS_S = 600.0

_SUFFIX = ".status.json"


def are_all_silent(objects: ReadableObjects, bucket: str, root: ProfileRoot, now: float) -> bool:
    """Whether no node's status object is newer than ten minutes, and there are some; raises PortUnavailableError."""
    found = False
    for each in objects.list(bucket, root.collector, ""):
        if each.key.endswith(_SUFFIX):
            if now - each.last_modified < NO_STATUS_S:
                return False
            found = True
    return found


def follow_sagemaker(job: str, bucket: str, registry: JobRegistry) -> JobRecord | None:
    """Bring the job's item up to date, and close its streams when it has ended; None for a foreign job."""
    description = registry.services.training_jobs.describe(job)
    if description is None:
        registry.services.journal.count("unknown_jobs", job=job, reason="SageMaker does not know it")
        return None
    known = _known(description, bucket, registry)
    if known is None:
        registry.services.journal.count("jobs_elsewhere", job=job, reason=f"its profile is not in bucket {bucket}")
        return None
    if is_another(known, description):
        reason = "SageMaker gave the name to a later job, which is not followed"
        registry.services.journal.count("names_given_again", job=job, reason=reason)
    current = with_description(known, description)
    if current.status.is_final and current.active:
        return request_close(current, registry)
    if current != known:
        registry.services.jobs.update_status(current)
    return current


def _known(description: TrainingJobDescription, bucket: str, registry: JobRegistry) -> JobRecord | None:
    """Return the job's item; None for a foreign profile, whose earlier item of that name is closed."""
    stored = registry.services.jobs.load(description.job)
    if stored is None:
        place = profile_place(description)
        if place is None or place[0] != bucket:
            return None
        return registry.register(description, bucket=bucket, root=place[1])
    if not stored.is_outside or not lies_elsewhere(description, stored.bucket):
        return registry.adopt(stored, description)
    if stored.active:
        request_close(stored, registry)
    return None


def job_of(event: object, journal: Journal) -> str | None:
    """Return the job of a state change event; None for one of another shape, which is counted."""
    detail = event.get("detail") if isinstance(event, Mapping) else None
    name = detail.get("TrainingJobName") if isinstance(detail, Mapping) else None
    if isinstance(name, str) and name.isprintable():
        return name
    reason = f"TrainingJobName is {one_line(repr(name), LONGEST_SENTENCE)}, expected a training job's state change"
    journal.count("malformed_events", reason=reason)
    return None


REASON = "Cleared: this was judged from objects that came under the job's name before the job was registered again."


def clear_stale_state(job: JobRecord, services: Services, families: Families, *, now: float) -> None:
    """Clear what earlier registrations left; a job that is not evaluated then becomes inactive. Safe to repeat."""
    expires_at = expiry(None, now)
    for record in services.nodes.of_job(job.job):
        if record.generation < job.generation and record.state:
            _clear(job, record, services, families, expires_at)
    if not job.policy.evaluated:
        services.rows.publish(_rows(job, None, (*families.rule_names, PROFILER_REPORT), expires_at))
        services.jobs.update_status(replace(job, active=False, expires_at=expires_at))


def _clear(job: JobRecord, record: StreamRecord, services: Services, families: Families, expires_at: int) -> None:
    family = families.get(record.key.family)
    if family is not None:
        rules = family.unit_rules(record.key.stream)
        services.rows.publish(_rows(job, record.key.node, rules, expires_at))
    empty = StreamRecord(record.key, version=record.version, closed=True, expires_at=expires_at)
    try:
        services.nodes.save(replace(empty, generation=record.generation))
    except StateConflictError:
        return  # the job owns it by now, or the next scheduler run closes it


def _rows(job: JobRecord, node: str | None, rules: Iterable[str], expires_at: int) -> list[RuleRow]:
    return [
        RuleRow(
            job=job.job,
            finding=Finding(rule=rule, node=node, reason=REASON),
            status=Status.NOT_APPLICABLE,
            expires_at=expires_at,
            generation=job.generation,
        )
        for rule in rules
    ]


# Statuses that the row of a job that is not evaluated keeps: another one could look like an all-clear.
_KEPT = frozenset({Status.FIRED, Status.ERROR})


def pause(job: JobRecord, brake: Brake, services: Services) -> None:
    """Say in the job's item, and in its row for people, that it is not evaluated; safe to repeat."""
    why = one_line(f"Not evaluated since {brake.since}, by an operator's {brake.words}", LONGEST_SENTENCE)
    if job.braked != why:
        services.jobs.set_braked(job.job, why)
        _say(job, why, services)


def resume(job: JobRecord, services: Services, now: float) -> list[StreamTask]:
    """Say that a job is evaluated again; return a task for each open stream, to apply what came in the meantime."""
    services.jobs.set_braked(job.job, None)
    if job.closing:
        return []
    _say(job, f"Evaluated again since {iso_time(now)}: what was recorded in the meantime is judged now.", services)
    services.jobs.set_fast_polling(job.job, polled_fast=True)
    return [
        StreamTask(record.key.job, record.key.node, record.key.stream, "flush", now - STREAM_SILENT_S, job.generation)
        for record in services.nodes.of_job(job.job)
        if not (record.key.is_own or record.closed) and record.generation == job.generation
    ]


def _say(job: JobRecord, reason: str, services: Services) -> None:
    """Write the report's row; the next verdict on the job replaces it."""
    row = services.rows.load(job.job, PROFILER_REPORT)
    if row is None or row.generation != job.generation:
        row = RuleRow(job.job, Finding(PROFILER_REPORT, None, ""), Status.WAITING_FOR_DATA, generation=job.generation)
    status = row.status if row.status in _KEPT else Status.WAITING_FOR_DATA
    finding = replace(row.finding, reason=reason, finding_kind="unknown", advice=None)
    services.rows.publish([replace(row, finding=finding, status=status)])
