"""`job.json` beside a profile: what local commands know of a job without options, and what a damaged file does."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws
from typer.testing import CliRunner

from tests.support.small_job import BUCKET, JOB, MINUTES, START, uploads
from tests.unit.local.places import write
from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.cli.main import app
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ByteStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

ABOUT = {
    "schema_version": 1,
    "name": JOB,
    "status": "Completed",
    "instance_type": "ml.g4dn.12xlarge",
    "instance_count": 4,
    "started_at": START - 3_600,
    "ended_at": START + 60 * MINUTES,
}
BEGIN = uploads()[:24]
COMMANDS = pytest.mark.parametrize("command", ["analyze", "report"])


def told(command: str, place: object, out: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the report that a command writes, and the document that it prints."""
    result = CliRunner().invoke(app, [command, str(place), "--out", str(out), "--json", *words])
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.stderr.split("\n") == [*document["notes"], ""]
    return json.loads((out / "report.json").read_text("utf-8")), document


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the folder of a job's first minutes on two nodes with two GPUs each, without a file beside its profile."""
    return write(tmp_path / "jobs", BEGIN)


def tell(job: Path, *, without: str = "", **changes: Any) -> None:
    about = {name: value for name, value in (ABOUT | changes).items() if name != without}
    (job / "job.json").write_text(json.dumps(about), encoding="utf-8")


@COMMANDS
def test_job_file_gives_type_start_and_count(job: Path, tmp_path: Path, command: str) -> None:
    tell(job)
    report, printed = told(command, job, tmp_path / "out")
    assert (report["job"]["instance_type"], report["job"]["instance_count"]) == ("ml.g4dn.12xlarge", 4)
    assert (report["job"]["status"], report["job"]["started_at"]) == ("Completed", "2026-11-21T07:00:00.000Z")
    assert report["cost"]["currency"] == "USD"
    assert report["cost"]["instance_hours"] == pytest.approx(4 * (1 + MINUTES / 60), abs=0.02)
    assert report["cost"]["spent"] == pytest.approx(4.89 * report["cost"]["instance_hours"], abs=0.01)
    assert "4 nodes for 1.23 h at USD 4.89 an hour (AWS price list for SageMaker" in report["cost"]["note"]
    assert printed["notes"] == []


@COMMANDS
def test_gpu_count_that_differs_from_the_type_is_shown_once(job: Path, tmp_path: Path, command: str) -> None:
    tell(job, instance_count=2)
    report, _ = told(command, job, tmp_path / "out")
    remark = (
        "An instance of ml.g4dn.12xlarge has 4 GPUs, and in the profile algo-1 and algo-2 show 2 GPUs: the whole "
        "instance is what was paid for."
    )
    assert report["cost"]["note"].endswith(f"). {remark}")
    assert json.dumps(report).count(remark) == 1
    assert report["job"]["gpus_of_type"] == 4


@COMMANDS
def test_option_overrides_the_job_file(job: Path, tmp_path: Path, command: str) -> None:
    tell(job)
    report, _ = told(command, job, tmp_path / "out", "--instance-type", "ml.p3.2xlarge")
    assert report["job"]["instance_type"] == "ml.p3.2xlarge"
    assert report["job"]["instance_count"] == 4
    assert "at USD 3.825 an hour" in report["cost"]["note"]
    assert "price of 2025-05-01" in report["cost"]["note"]


@COMMANDS
def test_job_file_without_a_type_gives_the_rest(job: Path, tmp_path: Path, command: str) -> None:
    tell(job, without="instance_type")
    report, _ = told(command, job, tmp_path / "out")
    assert report["job"]["instance_count"] == 4
    assert report["cost"]["note"] == "No cost: the job's instance type is not known."


@COMMANDS
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "JSON"),
        (json.dumps(ABOUT | {"instance_count": "many"}).encode(), "field instance_count is 'many'"),
        (json.dumps({**ABOUT, "gpu": 8}).encode(), "field gpu is 8"),
        (b" " * 70_000, "over 65,536 bytes long"),
        (b"[" * 60_000, "JSON"),
        (None, "cannot be read"),
    ],
    ids=["cut off", "a wrong value", "an unknown field", "too long", "too deep", "a folder"],
)
def test_damaged_job_file_is_counted_and_the_profile_is_judged(
    job: Path, tmp_path: Path, command: str, body: bytes | None, why: str
) -> None:
    if body is None:
        (job / "job.json").mkdir()
    else:
        (job / "job.json").write_bytes(body)
    report, printed = told(command, job, tmp_path / "out")
    (note,) = printed["notes"]
    assert note.startswith("Not used: ")
    assert "job.json" in note
    assert why in note
    assert report["job"]["instance_type"] is None
    assert printed.get("unread", {"bad_job_files": 1}) == {"bad_job_files": 1}
    assert any(rule["data_points"] for rule in report["rules"])


@COMMANDS
def test_job_file_overrides_the_folder_name_and_both_are_shown(job: Path, tmp_path: Path, command: str) -> None:
    tell(job)
    copy = job.rename(job.with_name("my-copy"))
    report, printed = told(command, copy, tmp_path / "out")
    assert report["job"]["instance_type"] == "ml.g4dn.12xlarge"
    assert printed["notes"] == [f"job.json beside the profile is of job {JOB}, and the folder is called my-copy."]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> "Iterator[S3Client]":
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = Clients().s3
        client.create_bucket(Bucket=BUCKET)
        yield client


def upload(s3: "S3Client", prefix: str) -> str:
    """Put a small job below a prefix, and return its place."""
    for each in BEGIN:
        s3.put_object(Bucket=BUCKET, Key=f"{prefix}{each.key}", Body=each.body)
    return f"s3://{BUCKET}/{prefix}{JOB}"


@COMMANDS
@pytest.mark.parametrize("prefix", ["", "jobs/"])
def test_s3_job_file_gives_the_type_or_none_if_missing(
    s3: "S3Client", tmp_path: Path, command: str, prefix: str
) -> None:
    place = upload(s3, prefix)
    report, printed = told(command, place, tmp_path / "without")
    assert (report["job"]["instance_type"], printed["notes"]) == (None, [])
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}{JOB}/job.json", Body=json.dumps(ABOUT).encode())
    report, printed = told(command, f"{place}/profiler-output", tmp_path / "with")
    assert (report["job"]["instance_type"], printed["notes"]) == ("ml.g4dn.12xlarge", [])


@COMMANDS
def test_denied_s3_job_file_is_named_and_the_profile_is_judged(
    s3: "S3Client", tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, open_stream = upload(s3, ""), S3ProfileObjects.open_stream

    def denied(objects: S3ProfileObjects, bucket: str, key: str) -> ByteStream:
        if key.endswith("job.json"):
            raise PortUnavailableError("S3", "GetObject", "AccessDenied: not this one")
        return open_stream(objects, bucket, key)

    monkeypatch.setattr(S3ProfileObjects, "open_stream", denied)
    report, printed = told(command, place, tmp_path)
    assert printed["notes"] == [
        "Not used: job.json beside the profile: S3.GetObject failed: AccessDenied: not this one."
    ]
    assert printed.get("unread", {"bad_job_files": 1}) == {"bad_job_files": 1}
    assert any(rule["data_points"] for rule in report["rules"])
