"""The deployed stack judges captures of kernel traces, end to end: from traces in the bucket to row, page and alert."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.localstack.emulator_kit import until
from tests.localstack.stack import PATIENCE_S, Job, Stack
from tests.support.kernel_ranks import documents
from trainguard.core.ports import StreamTask
from trainguard.engine.messages import encode_task
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.stack.captures.plan import INLINE_ITEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.localstack

WORK_US = 9_000.0
HELD_UP_US = 2_000.0
LATE = "kernels/LateRank"
STREAM = f"{ALL_RANKS}#{KERNELS}"


def send_capture(job: Job, ranks: int, late: int) -> list[str]:
    """Put a capture's traces below the job's prefix, with one rank that is late; return their keys."""
    s3, bucket, at = job.stack.emulator.client("s3"), job.stack.deployment.bucket, round(time.time() * 1_000)
    keys = []
    for rank, document in enumerate(documents([WORK_US] * ranks, delay_us={late: HELD_UP_US}, steps=5)):
        keys.append(f"{job.name}/kernel-traces/host_{rank}.{at + rank}.pt.trace.json")
        s3.put_object(Bucket=bucket, Key=keys[-1], Body=json.dumps(document).encode())
    return keys


def settle(job: Job) -> None:
    """Ask for a look at the capture, as the scheduler does when a minute has passed without another trace."""
    until(lambda: job.node(STREAM), timeout_s=PATIENCE_S, what=f"the captures of {job.name}")
    job.stack.await_quiet()
    job.stack.announce(encode_task(StreamTask(job.name, ALL_RANKS, KERNELS, "flush", time.time() + 1.0)))


def left_in(job: Job, folder: str) -> Sequence[str]:
    """Return the names of the objects in a folder of the job's report."""
    prefix = f"{job.name}/rule-output/TrainGuardReport/{folder}"
    listed = job.stack.emulator.client("s3").list_objects_v2(Bucket=job.stack.deployment.bucket, Prefix=prefix)
    return [each["Key"].removeprefix(prefix) for each in listed.get("Contents", [])]


@pytest.mark.parametrize(
    ("ranks", "late"),
    [
        pytest.param(4, 2, id="inline-map"),
        pytest.param(INLINE_ITEMS + 1, 17, id="distributed-map", marks=pytest.mark.thorough),
    ],
)
def test_traces_of_a_late_rank_fire_and_the_page_names_it(stack: Stack, ranks: int, late: int) -> None:
    job = Job(stack, "slow_steps", f"traced-{ranks}")
    job.await_applied(job.upload(until_minute=3.2))
    send_capture(job, ranks, late)
    settle(job)

    row = job.await_row(f"{LATE}#{ALL_RANKS}", Status="FIRED")
    stack.await_quiet()
    assert f"rank {late}" in row["Reason"].lower()
    (execution,) = stack.executions(job.name, "KernelsStateMachineArn")
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")

    page = job.stack.emulator.client("s3").get_object(
        Bucket=stack.deployment.bucket, Key=f"{job.name}/rule-output/TrainGuardReport/kernels.json"
    )
    document = json.loads(page["Body"].read())
    assert len(document["ranks"]) == ranks
    assert "html" in left_in(job, "kernels.")
    # The execution's own lists of traces are gone; digests stay for the next execution of the capture.
    assert left_in(job, "kernels/runs/") == []

    job.end()
    report = job.report()
    assert report is not None
    assert LATE in report["fired"]
