"""What agents ask about in S3 and in the stack: the right kind of reading, or what a person can do about none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.hangs.simulated import Fault
from tests.hangs.simulated import Job as HangJob
from tests.stragglers.simulated import Job as ParallelJob
from tests.support.deployed_stack import PREFIX, REGION, DeployedStack, deployed_stack
from tests.support.kernel_traces import TraceWriter
from tests.support.small_job import BUCKET, JOB
from trainguard.cli.options import Where
from trainguard.cli.services.readings import read
from trainguard.core.errors import NoProfileError, RequestError, TrainGuardError
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.document import KernelProfiles
from trainguard.local.settings import given_settings
from trainguard.report.document import Report
from trainguard.stragglers.verdict import StragglerVerdict

PLACE = f"s3://{BUCKET}"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    with deployed_stack(monkeypatch) as deployed:
        bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        hang = HangJob(4, fault=Fault(kind="killed", ranks=(3,), step=5))
        hang.run()
        (tmp_path / "hang").mkdir()
        hang.write(tmp_path / "hang", as_json=True, only_active=False)
        bodies = {f"hang/{each.name}": each.read_bytes() for each in (tmp_path / "hang").iterdir()}
        bodies["parallel/operations.csv"] = ParallelJob().csv()
        bodies["traces/rank0.pt.trace.json"] = trace()
        bodies["other/readme.txt"] = b"nothing to judge"
        for name, body in bodies.items():
            bucket.put_object(BUCKET, name, body)
        yield deployed


def trace() -> bytes:
    made = TraceWriter()
    for number in range(4):
        made.step(number, 1_000.0 * number, 900.0)
        made.kernel("sgemm", 1_000.0 * number + 100.0, 700.0, launch=1_000.0 * number + 10.0)
    return made.text()


def reading(source: str, *, timelines: bool = False) -> Any:
    where = Where(stack="TrainGuard", region=REGION)
    return read(source, where, given_settings(None, None, None), timelines=timelines)


@pytest.mark.parametrize(
    ("source", "kind", "verdict"),
    [
        (JOB, Report, "wasted"),
        (f"{PLACE}/{PREFIX}{JOB}", Report, "unknown"),
        (f"{PLACE}/hang", HangVerdict, "wasted"),
        (f"{PLACE}/parallel", StragglerVerdict, "healthy"),
        (f"{PLACE}/traces", KernelProfiles, None),
    ],
)
def test_what_lies_elsewhere_is_read_as_what_it_is(
    source: str, kind: type, verdict: str | None, stack: DeployedStack
) -> None:
    stack.live_job()
    found = reading(source)
    assert isinstance(found.what, kind)
    assert verdict in {None, found.verdict.verdict}
    # Without its item it is uncertain whether a job still runs.
    assert ("newer_data" in found.verdict.missing) is (verdict == "unknown")


def test_time_lines_of_a_job_come_from_its_profile(stack: DeployedStack) -> None:
    stack.live_job()
    with_lines, without = reading(JOB, timelines=True), reading(JOB)
    assert (with_lines.what.timelines is not None, without.what.timelines) == (True, None)
    assert with_lines.verdict.verdict == without.verdict.verdict
    bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for key in [key for key in bucket.buckets[BUCKET].keys if key.startswith(PREFIX)]:
        bucket.delete_object(BUCKET, key)
    gone = reading(JOB, timelines=True).what
    assert gone.timelines is None
    assert any("without time lines" in each.unknown for each in gone.not_collected)


@pytest.mark.parametrize(
    ("source", "fault", "says"),
    [
        ("unknown-job", RequestError, "unknown-job"),
        (JOB, RequestError, f"Ask about its profile: {PLACE}/{PREFIX}{JOB}"),
        (f"{PLACE}/other", NoProfileError, "other"),
        (f"{PLACE}/nowhere", TrainGuardError, "nowhere"),
    ],
)
def test_what_cannot_be_read_says_what_to_ask(
    source: str, fault: type[TrainGuardError], says: str, stack: DeployedStack
) -> None:
    stack.live_job(state=False)
    with pytest.raises(fault) as raised:
        reading(source)
    assert says in f"{raised.value} {getattr(raised.value, 'remedy', '')}"
