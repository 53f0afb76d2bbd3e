"""A profile in S3, on moto: found as on disk, fetched ahead, and its errors in words."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from tests.support.small_job import BUCKET, JOB, uploads
from tests.unit.local.places import write
from trainguard.aws.clients import Clients
from trainguard.core.errors import NoProfileError, ObjectMissingError, ProfileSourceError
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.local.bucket import open_bucket
from trainguard.local.engine import evaluate_profile
from trainguard.local.pool import WorkerPool, fetched
from trainguard.local.profile import NodeFiles, read_profile
from trainguard.local.sources import FilesAsBucket, open_folder
from trainguard.managed.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

KNOWN = JobRecord(JOB, "unknown", "", "")
OBJECTS = uploads()[:24]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> "Iterator[S3Client]":
    """Return a client of an S3 that holds the small job under ``jobs/``."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = Clients().s3
        client.create_bucket(Bucket=BUCKET)
        for upload in OBJECTS:
            client.put_object(Bucket=BUCKET, Key=f"jobs/{upload.key}", Body=upload.body)
        yield client


@pytest.mark.parametrize("path", [f"jobs/{JOB}/profiler-output/", f"jobs/{JOB}", "jobs/", ""])
def test_prefix_at_or_above_a_profile_is_found(s3: "S3Client", path: str) -> None:
    source = open_bucket(f"s3://{BUCKET}/{path}")
    assert source.place == f"s3://{BUCKET}/jobs/{JOB}/profiler-output"
    assert source.job == JOB
    names = {upload.key.removeprefix(f"{JOB}/profiler-output/"): upload.body for upload in OBJECTS}
    assert set(source.sizes) == set(names)
    some = next(name for name in names if name.endswith(".json"))
    assert (source.read(some), source.sizes[some]) == (names[some], len(names[some]))


@pytest.mark.parametrize(("prefix", "job"), [("copies/copied", "copied"), ("copied", "copied"), ("", "plain")])
def test_profile_below_a_prefix_of_its_own_name_is_of_that_job(s3: "S3Client", prefix: str, job: str) -> None:
    s3.create_bucket(Bucket="plain")
    key = OBJECTS[0].key.partition("profiler-output/")[2]
    for name in (key, "job.json"):
        s3.put_object(Bucket="plain", Key=f"{prefix}/{name}".lstrip("/"), Body=b"{}")
    source = open_bucket(f"s3://plain/{prefix}")
    assert (source.job, source.beside("job.json", 10)) == (job, b"{}")


def test_partial_name_as_prefix_holds_nothing(s3: "S3Client") -> None:
    with pytest.raises(ProfileSourceError, match="holds no object"):
        open_bucket(f"s3://{BUCKET}/jobs/{JOB[:-2]}")


def test_two_profiles_under_a_prefix_are_named(s3: "S3Client") -> None:
    s3.put_object(Bucket=BUCKET, Key="jobs/other/profiler-output/system/training_job_end.ts", Body=b"")
    with pytest.raises(ProfileSourceError, match="holds 2 profiles"):
        open_bucket(f"s3://{BUCKET}/jobs")


def test_managed_service_results_are_no_profile(s3: "S3Client") -> None:
    s3.put_object(Bucket=BUCKET, Key="r/job/rule-output/x/profiler-output/system/incremental/1.json", Body=b"")
    with pytest.raises(NoProfileError):
        open_bucket(f"s3://{BUCKET}/r")


@pytest.mark.parametrize(
    ("place", "said"), [("s3://", "names no bucket"), ("s3://no-such-bucket-here/x", "NoSuchBucket")]
)
def test_missing_bucket_is_reported(s3: "S3Client", place: str, said: str) -> None:
    with pytest.raises(ProfileSourceError, match=said):
        open_bucket(place)


def test_missing_aws_profile_of_the_environment_is_reported(s3: "S3Client", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ProfileSourceError, match="nobody"):
        open_bucket(f"s3://{BUCKET}/jobs")


def test_given_no_credentials_when_opened_then_the_error_says_so(
    s3: "S3Client", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ProfileSourceError, match="credentials"):
        open_bucket(f"s3://{BUCKET}/jobs")


@pytest.mark.parametrize("workers", [0, 2])
def test_vanished_object_is_counted_and_others_are_used(s3: "S3Client", workers: int) -> None:
    profile = read_profile(open_bucket(f"s3://{BUCKET}/jobs"))
    gone = next(iter(profile.nodes["algo-1"].minutes))
    s3.delete_object(Bucket=BUCKET, Key=f"jobs/{gone}")
    with WorkerPool(workers) as pool:
        evaluation = evaluate_profile(KNOWN, FAMILIES.plan(KNOWN), profile, pool)
    counters = {record.key.node_kind: record.counters for record in evaluation.records}
    assert counters["algo-1#system"]["bad_objects"] == 1
    assert counters["algo-2#system"]["lines"] > 0
    assert counters["algo-1#framework"]["events"] > 0


def test_parts_of_an_s3_object_are_its_bytes(s3: "S3Client") -> None:
    profile = read_profile(open_bucket(f"s3://{BUCKET}/jobs"))
    objects = FilesAsBucket(NodeFiles(profile, "algo-1", profile.source.read))
    key = next(iter(profile.nodes["algo-1"].framework))
    whole = objects.get(profile.source.place, key, 1_000_000)
    assert objects.get_range(profile.source.place, key, 3, 7) == whole[3:10]
    with objects.open_stream(profile.source.place, key) as stream:
        assert stream.read(5) + stream.read(1_000_000) == whole


def test_bucket_replayed_as_compatible_matches_the_folder(s3: "S3Client", tmp_path: Path) -> None:
    folder, bucket = open_folder(str(write(tmp_path, OBJECTS))), open_bucket(f"s3://{BUCKET}/jobs")
    in_folder = replay(list(folder.sizes), folder.read)
    assert replay(list(bucket.sizes), bucket.read).reports == in_folder.reports
    assert in_folder.windows > 0


def test_fetched_items_are_in_order_with_errors_in_place() -> None:
    def read(item: int) -> int:
        if item == 30:
            raise ObjectMissingError("bucket", str(item))
        return item

    results = fetched(read, range(60))
    assert [next(results) for _ in range(30)] == list(range(30))
    with pytest.raises(ObjectMissingError):
        next(results)
