"""A job's end: every node is told to list once, apply all and close; the last one to close finishes the job."""

from dataclasses import replace

from trainguard.ports import Jobs, NodeStates, NodeTask, TaskQueue
from trainguard.records import JOB_NODE, JobRecord, NodeKey


def begin_close(job: JobRecord, *, jobs: Jobs, nodes: NodeStates, tasks: TaskQueue) -> JobRecord:
    """Mark the job as closing and send each of its streams a task; safe to repeat.

    Nodes whose every doorbell was lost are told too: SageMaker names them ``algo-1`` to ``algo-<instance count>``.
    """
    closing = replace(job, closing=True)
    jobs.update_status(closing)
    known = {record.key for record in nodes.of_job(job.job) if record.key.node != JOB_NODE}
    tasks.send([close_task(key) for key in sorted(known | expected_streams(job, known), key=lambda key: key.node_kind)])
    return closing


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
