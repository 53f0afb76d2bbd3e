"""The small job's objects, handed to a network one after the other: its first node's, or all."""

from collections.abc import Sequence

from tests.support.delivery import Network
from tests.support.small_job import JOB, Upload, describe, uploads
from trainguard.core.records import JobStatus, RuleRow, StreamKey

UPLOADS = uploads()
SYSTEM_1 = [upload for upload in UPLOADS if "system/incremental" in upload.key and "algo-1" in upload.key]
NODE_1 = StreamKey(JOB, "algo-1", "system")


def deliver(network: Network, chosen: Sequence[Upload], *, until: float | None = None) -> None:
    """Let objects appear with their events, each at its time; with the mark of its end the job has completed."""
    for upload in chosen:
        if upload.key.endswith("training_job_end.ts"):
            network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(upload.at, batch_s=0.0)
    network.run_until(until or chosen[-1].at + 1_000.0, batch_s=0.0)


def row(network: Network, target: str) -> RuleRow:
    """Return the row of a rule, or of a rule on a node, as in ``LowGPUUtilization#algo-1``."""
    return next(row for row in network.world.rows.of_job(JOB) if row.target == target)
