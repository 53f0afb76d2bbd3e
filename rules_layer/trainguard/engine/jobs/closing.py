"""A job's end: every node gets a task: list once, apply all, close; the last one to close finishes the job.

Nodes whose every message was lost are told too: SageMaker names them ``algo-1`` to ``algo-<instance count>``. While no
node has answered, all are told again, each time after twice the time: 5, 10, 20 minutes and so on. After the last time
the job ends without a profile, as one does whose objects lie where nobody here can read them.
"""

from dataclasses import replace

from trainguard.engine.family import Families
from trainguard.ports import NodeTask, TaskQueue
from trainguard.records import JobRecord, StreamKey
from trainguard.stores import Jobs, NodeStates

ASK_AGAIN_S = 300.0
"""After this long the streams of a job of which none has answered are asked to close once more."""

LAST_READ_S = 240.0
"""Streams of a job that names a source are asked to close this long after its end: the last poll is over then."""

MOST_ASKS = 8
"""After so many times without any answer, within a day, the job is given up."""


def begin_close(
    job: JobRecord, families: Families, *, jobs: Jobs, nodes: NodeStates, tasks: TaskQueue, now: float
) -> JobRecord:
    """Mark the job as closing and send each of its streams a task, unless that was done just now; safe to repeat.

    ``now`` is in epoch seconds. That the tasks were sent is noted when they are: what dies in between sends them again.
    """
    closing = replace(job, closing=True)
    jobs.update_status(closing)
    if not _is_over(job, now) or _is_still_read(job, now):
        return closing
    met = [record for record in nodes.of_job(job.job) if not record.key.is_own]
    known = {record.key for record in met if record.generation == job.generation}
    streams = known | families.expected(job, {record.key for record in met})
    tasks.send([close_task(job, key) for key in sorted(streams, key=lambda key: key.node_kind)])
    asked = replace(closing, close_asks=job.close_asks + 1, close_asked_at=now)
    jobs.update_status(asked)
    return asked


def _is_still_read(job: JobRecord, now: float) -> bool:
    """Whether a job has just ended, whose source is read a little behind its time."""
    return bool(job.policy.source) and job.ended_at is not None and now - job.ended_at < LAST_READ_S


def given_up(job: JobRecord, now: float) -> bool:
    """Whether the streams of a job were asked to close as often as they ever are, and long ago."""
    return job.close_asks >= MOST_ASKS and _is_over(job, now)


def _is_over(job: JobRecord, now: float) -> bool:
    """Whether the time is over within which the streams that were asked may answer."""
    if job.close_asked_at is None:
        return True
    return now - job.close_asked_at >= ASK_AGAIN_S * 2.0 ** (job.close_asks - 1)


def close_task(job: JobRecord, key: StreamKey) -> NodeTask:
    """Return the task that closes a stream of the job."""
    return NodeTask(job=key.job, node=key.node, stream=key.stream, action="close", generation=job.generation)
