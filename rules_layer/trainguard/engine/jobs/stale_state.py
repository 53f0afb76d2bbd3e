"""Clears items and rows of earlier registrations: rows of nodes that the job never had would stay for good."""

from collections.abc import Iterable
from dataclasses import replace

from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.ports import Services
from trainguard.core.records import JobRecord, NodeRecord, RuleRow, Status
from trainguard.engine.family import Families
from trainguard.engine.streams.session import expiry
from trainguard.rules.profiler_report import PROFILER_REPORT

REASON = "What stood here was made of objects that came under the job's name before the job itself was known."


def clear_stale_state(job: JobRecord, services: Services, families: Families, *, now: float) -> None:
    """Clear what earlier registrations left; a job that is not evaluated then becomes inactive. Safe to repeat."""
    expires_at = expiry(None, now)
    for record in services.nodes.of_job(job.job):
        if record.generation < job.generation and record.state:
            _clear(job, record, services, families, expires_at)
    if not job.policy.evaluated:
        services.rows.publish(_rows(job, None, (*families.rule_names, PROFILER_REPORT), expires_at))
        services.jobs.update_status(replace(job, active=False, expires_at=expires_at))


def _clear(job: JobRecord, record: NodeRecord, services: Services, families: Families, expires_at: int) -> None:
    family = families.get(record.key.family)
    if family is not None:
        rules = family.unit_rules(record.key.stream)
        services.rows.publish(_rows(job, record.key.node, rules, expires_at))
    empty = NodeRecord(record.key, version=record.version, closed=True, expires_at=expires_at)
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
