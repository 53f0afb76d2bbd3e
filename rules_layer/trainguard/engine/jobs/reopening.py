"""A job that was closed and goes on: its streams are open again, and what comes is evaluated as of a job that runs.

Silence is no proof. A job outside SageMaker whose silence was taken for its end may write on: it waited for a machine,
or a step took longer than a day. One that says in its own file that it was started again goes on, too.

The streams are opened first. What dies in between is repeated with the message, while the job is still closed.
"""

from dataclasses import replace

from trainguard.records import JobRecord
from trainguard.stores import Jobs, NodeStates


def goes_on(job: JobRecord, written_at: float | None) -> bool:
    """Whether a job that was left has written something since, at ``written_at`` (epoch seconds on S3's clock).

    A message that comes again or late is about an object from before, which the closed streams take in.
    """
    return job.left_at is not None and not job.active and written_at is not None and written_at > job.left_at


def reopen(job: JobRecord, *, jobs: Jobs, nodes: NodeStates) -> JobRecord:
    """Let a job that was closed go on; return its item. Raises StateConflictError when a stream is being written."""
    open_streams(job, nodes)
    opened = replace(
        job,
        active=True,
        closing=False,
        urgent=True,
        close_asks=0,
        close_asked_at=None,
        left_at=None,
        expires_at=None,
    )
    jobs.update_status(opened)
    return opened


def open_streams(job: JobRecord, nodes: NodeStates) -> None:
    """Open the streams of a job that has ended and goes on; raises StateConflictError as `reopen` does."""
    for record in nodes.of_job(job.job):
        if record.closed and record.generation == job.generation:
            nodes.save(replace(record, closed=False, expires_at=None))
