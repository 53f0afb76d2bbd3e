"""`python -m demo.profile`: what it writes is a profile that can be judged, as of a job that has just ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from demo.make_recordings import RECORDINGS
from demo.profile import write_profile
from demo.recording import Recording
from tests.support.analyses import analyzed
from tests.support.delivery import Network
from tests.support.small_job import Upload
from trainguard.core.records import JobStatus, Status
from trainguard.engine.jobs.job_file import read_job_file

NOW = 1_795_273_000.0
# The slow data loader, and what it does to the GPUs.
FAULT = {"Dataloader", "LowGPUUtilization"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the written profile of the job whose data loader is slow."""
    own = tmp_path_factory.mktemp("profiles") / "my-job"
    written = write_profile(Recording.load(RECORDINGS / "slow_data_loader.npz"), own, ended_at=NOW)
    assert written == sum(path.is_file() for path in (own / "profiler-output").rglob("*"))
    return own


def test_job_file_of_a_written_profile_ended_in_the_last_minute(
    folder: Path,
) -> None:
    described = read_job_file("my-job/job.json", (folder / "job.json").read_bytes(), "my-job")
    assert (described.job, described.status, described.instance_count) == ("my-job", JobStatus.COMPLETED, 2)
    assert described.ended_at is not None
    assert NOW - 60.0 < described.ended_at <= NOW


def test_fault_of_a_written_profile_is_found(folder: Path) -> None:
    outcome = analyzed(str(folder))
    assert {line["rule"] for line in outcome.rules if line["status"] == Status.FIRED} == FAULT


def test_profile_copied_into_the_bucket_fires_each_rule_once(
    folder: Path,
) -> None:
    """What the README promises: a first alert without a training job."""
    network = Network(now=NOW)
    for number, file in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        upload = Upload(NOW + 0.05 * number, str(file.relative_to(folder.parent)), file.read_bytes())
        network.put(upload)
        network.announce(upload, upload.at + 1.0)
    for minute in (1, 2):
        network.run_until(NOW + 60.0 * minute, batch_s=20.0)
        network.run_scheduler()
    fires = [each for each in network.world.executions.started.values() if each["kind"] == "fire"]
    assert sorted((fire["job"], fire["rule"]) for fire in fires) == sorted(("my-job", rule) for rule in FAULT)
    rows = {row.target: row.status for row in network.world.rows.of_job("my-job")}
    assert {rows[rule] for rule in FAULT} == {Status.FIRED}


@pytest.mark.parametrize("words", [["no_such_recording", "new"], ["healthy", "."], []])
def test_unwritable_demo_says_what_would_be_right(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "demo.profile", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: python -m demo.profile" in done.stderr
