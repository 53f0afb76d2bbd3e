"""Places: a folder and a bucket keep the same objects under the same keys."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from trainguard_collector.places import Bucket, Folder, Place


@pytest.fixture(params=["folder", "bucket", "prefix"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "folder":
        yield Folder(str(tmp_path))
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="profiles")
        yield Bucket("s3://profiles" if request.param == "bucket" else "s3://profiles/team/a")


def test_given_a_file_when_put_then_its_bytes_are_read(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "minute"
    path.write_bytes(b"line\n" * 100_000)
    with path.open("rb") as file:
        place.put("run-1/minute.json", file)
    assert place.get("run-1/minute.json") == b"line\n" * 100_000


def test_given_objects_when_put_then_they_are_read_and_listed(place: Place) -> None:
    place.put("run-1/collector/b.status.json", b"1")
    place.put("run-1/collector/b.status.json", b"2")
    place.put("run-1/collector/a.status.json", b"3")
    place.put("run-1/job.json", b"{}")
    assert place.get("run-1/collector/b.status.json") == b"2"
    assert place.get("run-1/collector/c.status.json") is None
    assert place.keys("run-1/collector/") == ["run-1/collector/a.status.json", "run-1/collector/b.status.json"]
    assert place.keys("run-2/collector/") == []
