"""Run files of W&B that land in the bucket: each version is read behind the last one."""

import pytest

from tests.support.memory import MemoryWorld
from tests.support.wandb_files import ended, history, run, run_file, stats
from trainguard.core.layout import ProfileRoot
from trainguard.stack.polling.run_files import MAX_FILE_BYTES, RunFiles, run_file_key

AT = 1_800_000_000.0
BUCKET = "profiles"
KEY = "jobs/bert/wandb/run-20261123_081500-abc123/run-abc123.wandb"


def file(minutes: int, *, over: bool = False, host: str = "host-1") -> bytes:
    """Return a run file with a sample each 30 s, as it is after ``minutes``."""
    records = [run(at=AT, host=host)]
    for number in range(2 * minutes):
        at = AT + 30.0 * number
        records += [stats(at, {"gpu.0.gpu": 40.0}), history(number, at, {"loss": 1.0, "_timestamp": at})]
    return run_file([*records, *([ended(0)] if over else [])])


class Bucket:
    """A bucket and what reads its run files."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.objects = self.world.objects
        self.files = RunFiles(self.objects, self.world.services.journal)

    def sync(self, body: bytes, key: str = KEY) -> None:
        self.objects.put(BUCKET, key, body, "application/octet-stream")
        self.files.take(BUCKET, key, at=AT + 3_600.0)

    def names(self, below: str = "profiler-output/") -> list[str]:
        return [each.key.rpartition("/")[2] for each in self.objects.list(BUCKET, f"jobs/bert/{below}", "")]


def test_growing_run_file_gives_whole_minutes_once_and_an_end() -> None:
    bucket = Bucket()
    bucket.sync(file(3))
    assert bucket.names() == [f"{int(AT) + 60 * minute}.host-1.abc123.json" for minute in range(2)]
    first = list(bucket.objects.list(BUCKET, "jobs/bert/profiler-output/", ""))
    bucket.sync(file(5))
    assert len(bucket.names()) == 4
    assert list(bucket.objects.list(BUCKET, "jobs/bert/profiler-output/", ""))[:2] == first
    bucket.sync(file(6, over=True))
    assert bucket.names()[-1] == "training_job_end.ts"
    assert len(bucket.names()) == 7


def test_late_older_version_changes_nothing() -> None:
    bucket = Bucket()
    bucket.sync(file(6))
    before = bucket.names()
    bucket.sync(file(2))
    assert bucket.names() == before


def test_two_runs_of_a_host_write_separate_minutes() -> None:
    bucket = Bucket()
    bucket.sync(file(3))
    bucket.sync(file(3), KEY.replace("abc123", "def456"))
    assert len(bucket.names()) == 4
    assert len(bucket.names("live-source/")) == 2


@pytest.mark.parametrize("body", [b"", b"PK\x03\x04", b":W&B" + b"\xff" * 100])
def test_invalid_run_file_says_why_in_the_status(body: bytes) -> None:
    bucket = Bucket()
    bucket.objects.put(BUCKET, KEY, body, "application/octet-stream")
    status = bucket.files.take(BUCKET, KEY, at=AT)
    assert status is not None
    assert "run file" in status.fault
    assert not bucket.names()


def test_oversized_run_file_is_named_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_FILE_BYTES >= 64 * 1024 * 1024
    monkeypatch.setattr("trainguard.stack.polling.run_files.MAX_FILE_BYTES", 1_000)
    bucket = Bucket()
    bucket.objects.put(BUCKET, KEY, file(60), "application/octet-stream")
    status = bucket.files.take(BUCKET, KEY, at=AT)
    assert status is not None
    assert "over 1,000 bytes" in status.fault


def test_missing_run_file_does_nothing() -> None:
    assert Bucket().files.take(BUCKET, KEY, at=AT) is None


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (KEY, (ProfileRoot("jobs/", "bert"), "abc123")),
        ("bert/wandb/run-a1.wandb", (ProfileRoot("", "bert"), "a1")),
        ("bert/wandb/offline-run-1-a1/run-a1.wandb", (ProfileRoot("", "bert"), "a1")),
        ("bert/run-a1.wandb", None),
        ("bert/rule-output/wandb/run-a1.wandb", None),
        ("bert/wandb/run-a/b.wandb", None),
        ("bert/wandb/run-a\n1.wandb", None),
        ("../wandb/run-a1.wandb", None),
    ],
)
def test_given_a_key_when_read_then_it_is_a_run_file_or_none(key: str, named: tuple[ProfileRoot, str] | None) -> None:
    assert run_file_key(key) == named
