"""A job's end: every node is told to list once, apply all and close; the last one to close finishes the job."""

from dataclasses import replace

from trainguard.engine.slots import Verdict
from trainguard.ports import Jobs, NodeStates, NodeTask, TaskQueue
from trainguard.records import JOB_NODE, JobRecord, NodeKey, Status


def begin_close(job: JobRecord, *, jobs: Jobs, nodes: NodeStates, tasks: TaskQueue) -> JobRecord:
    """Mark the job as closing and send each of its streams a task; safe to repeat.

    Nodes whose every doorbell was lost are told too: SageMaker names them ``algo-1`` to ``algo-<instance count>``.
    """
    closing = replace(job, closing=True)
    jobs.update_status(closing)
    known = {record.key for record in nodes.of_job(job.job) if record.key.node != JOB_NODE}
    tasks.send([close_task(key) for key in sorted(known | expected_streams(job, known), key=lambda key: key.node_kind)])
    return closing


def final(verdict: Verdict, through: float | None) -> Verdict:
    """Return the last word of a rule on a stream, or a job, that has ended at watermark ``through``.

    One that waits for data when there will be none any more does not apply; the sentence says whether anything was
    written at all.
    """
    judgement = verdict.judgement
    if judgement.status is not Status.WAITING_FOR_DATA:
        return verdict
    reason = f"Ended without what the rule needs: {judgement.reason}"
    if through is None:
        reason = "Ended without a profile: no object of it could be read."
    return replace(verdict, judgement=replace(judgement, status=Status.NOT_APPLICABLE, reason=reason))


def close_task(key: NodeKey) -> NodeTask:
    """Return the task that closes a stream."""
    return NodeTask(job=key.job, node=key.node, stream=key.stream, action="close")


def expected_streams(job: JobRecord, known: set[NodeKey]) -> set[NodeKey]:
    """Return the streams that a job of so many instances has, be they ``known`` from an object or not."""
    names = [f"algo-{number}" for number in range(1, (job.instance_count or 0) + 1)]
    expected = {NodeKey(job.job, name, "system") for name in names}
    if job.framework_expected or any(key.stream == "framework" for key in known):
        expected |= {NodeKey(job.job, name, "framework") for name in names}
    return expected
