"""A fire as the fire path reads it."""

from typing import Any

from trainguard.core.finding import Finding
from trainguard.core.records import JOB_NODE, OutboxEntry
from trainguard.stack.actions.request import StopCase


def fire_of(
    job: str,
    job_arn: str,
    rule: str,
    *,
    at: float,
    fire_id: str = "f1",
    episode: int = 0,
    node: str = JOB_NODE,
    **more: Any,
) -> StopCase:
    """Return a fire at ``at``, epoch seconds; ``more`` are fields of its case."""
    entry = OutboxEntry(fire_id, episode, at, Finding(rule, None if node == JOB_NODE else node, "low."))
    return StopCase(job=job, job_arn=job_arn, entry=entry, report_uri="s3://profiles/report.json", **more)
