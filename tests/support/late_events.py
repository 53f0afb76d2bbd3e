"""A network whose SageMaker lists a job late, and the ways in which that is noticed."""

from dataclasses import replace

from tests.support.delivery import Network
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB, Upload, uploads
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, RuleRow
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.jobs.job_registry import JobRegistry, describe_record
from trainguard.engine.jobs.lifecycle import follow_sagemaker
from trainguard.engine.reconcile import STALE_EVERY

END_MARK = uploads()[-1]


def outside() -> Network:
    """Return a network whose SageMaker does not know the job yet."""
    network = Network()
    network.world.training_jobs.forget(JOB)
    return network


def claimed_name(prefix: str, file: bytes, bucket: str = BUCKET) -> JobRecord:
    """Return the item that an older version made of a job file below a prefix: under the name by itself."""
    described = read_job_file(f"{prefix}{JOB}/job.json", file, JOB)
    record = describe_record(described, MemoryWorld().settings, bucket=bucket, root=ProfileRoot(prefix, JOB))
    return replace(record, job=JOB, arn=f"unknown:{JOB}")


def arrive(network: Network, chosen: list[Upload]) -> None:
    """Let objects appear with their events, each at its time."""
    for upload in chosen:
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(max(upload.at, network.now), batch_s=0.0)


def settle(network: Network, minutes: int) -> None:
    """Let time pass, with a run of the scheduler every minute."""
    for _ in range(minutes):
        network.run_scheduler()
        network.run_until(network.now + 60.0, batch_s=0.0)


def registry(network: Network) -> JobRegistry:
    """Return what registers jobs."""
    return JobRegistry(network.world.services, FAMILIES, lambda: network.now)


def told_by_event(network: Network) -> JobRecord | None:
    """Let a state change event of the job arrive; return its item."""
    return follow_sagemaker(JOB, BUCKET, registry(network))


def found_by_tick(network: Network) -> None:
    """Let as many ticks come as it takes until SageMaker is asked."""
    settle(network, STALE_EVERY)


def rung_by_end_mark(network: Network) -> None:
    """Deliver the event of an end mark."""
    arrive(network, [replace(END_MARK, at=network.now)])


def rung_by_own_file(network: Network) -> None:
    """Deliver the event of a file of the job's own."""
    arrive(network, [Upload(network.now, f"{JOB}/job.json", b'{"name": "small-job"}')])


WAYS = (told_by_event, found_by_tick, rung_by_end_mark, rung_by_own_file)


def row(network: Network, target: str) -> RuleRow:
    """Return a row, which must exist."""
    return next(each for each in network.world.rows.of_job(JOB) if each.target == target)
