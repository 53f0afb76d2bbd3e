"""The deployed stack stops a hung job: from the objects of the collector to StopTrainingJob, at the emulator's pace."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.localstack.stack import Job, Stack
from tests.verdicts.labelled import profile_files
from tests.verdicts.labelled.catalogue.collector import HANGS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.verdicts.labelled import description

pytestmark = pytest.mark.localstack

RULE = "HungJob"
HANG_MIN, MINUTES = 12, 20


def hang(name: str) -> description.Job:
    """Return a labelled hang in a collective, shorter and sampled less often."""
    job = next(each for each in HANGS if each.name == "collected-hang-in-a-collective")
    assert job.steps is not None
    pieces = tuple(replace(piece, start_min=min(piece.start_min, HANG_MIN)) for piece in job.pieces)
    steps = replace(job.steps, last_min=HANG_MIN, step_s=3.0)
    return replace(job, name=name, minutes=MINUTES, pieces=pieces, interval_s=5.0, steps=steps)


@pytest.mark.thorough
def test_hung_job_fires_the_rule_and_is_stopped(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = (int(time.time()) // 60 - MINUTES - 1) * 60
    monkeypatch.setattr(profile_files, "START", begin + 17.0)
    job = Job(stack, "cpu_bottleneck", "hangs-in-a-collective", start=begin, allowed=True, tags={"stop-rules": RULE})
    folder = profile_files.write_job(hang(job.name), tmp_path)
    assert job.feed.upcoming is not None
    root = job.feed.upcoming.key.partition("profiler-output/")[0]
    s3 = stack.emulator.client("s3")
    for file in sorted((folder / "profiler-output").rglob("*.json")):
        key = f"{root}{file.relative_to(folder).as_posix()}"
        s3.put_object(Bucket=stack.deployment.bucket, Key=key, Body=file.read_bytes())

    row = job.await_row(RULE, StopDecision="stop", StopMade=True)
    assert "steps have stopped" in row["Reason"]
    assert "looked busy" in row["Reason"]
    stack.await_quiet()
    assert [each.status for each in job.fires(RULE)] == ["SUCCEEDED"]
    (alert,) = [each for each in job.alerts(RULE) if each["kind"] == "fire"]
    assert alert["stop"]["made"] is True
    job.feed.stop()
    job.await_closed()
    assert (job.stops(), job.status()) == ([None], "Stopped")
