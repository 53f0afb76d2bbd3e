"""Sending: what cannot be sent stays, and goes later in order."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainguard_collector.objects import Handover
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.places import Body
from trainguard_collector.sender import Sender
from trainguard_collector.spool import Spool


class Away:
    """A place that refuses its first ``failures`` objects."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.keys_put: list[str] = []

    def put(self, key: str, body: Body) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no route to host")
        self.keys_put.append(key)

    def get(self, key: str) -> bytes | None:
        return None

    def keys(self, prefix: str) -> list[str]:
        return []

    def delete(self, key: str) -> None:
        raise AssertionError(key)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path, 10_000)
    for number in range(3):
        spool.add(1_800_000_000 + 60 * number, b"{}\n")
    return spool


def until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("did not come true within 10 s")


def test_returned_destination_gets_minutes_in_order(spool: Spool) -> None:
    place = Away(failures=1)
    sender = Sender(spool, lambda: place, "job", "node-1")
    sender.start()
    until(lambda: sender.sent_minutes == 2)
    spool.close_minute()
    assert sender.finish(5.0) is place
    assert place.keys_put == [
        f"job/profiler-output/system/incremental/2027011508/{1_800_000_000 + 60 * number}.node-1.json"
        for number in range(3)
    ]
    assert (sender.failures, spool.ready()) == (1, [])


def test_training_objects_are_sent_once_and_in_order(spool: Spool, tmp_path: Path) -> None:
    handover = Handover(tmp_path / "objects", 10_000)
    for name in ("events/2", "index/1", "last"):
        handover.put(name, b"x")
    place = Away(failures=1)
    sender = Sender(spool, lambda: place, "job", "node-1", Outgoing(tmp_path / "objects", "job", "node-1"))
    sender.start()
    until(lambda: sender.sent_objects == 3)
    assert sender.finish(5.0) is place
    assert [key for key in place.keys_put if "system" not in key] == ["job/events/2", "job/index/1", "job/last"]


def test_unsent_minutes_are_compressed_on_disk(spool: Spool) -> None:
    sender = Sender(spool, lambda: Away(failures=10_000), "job", "node-1")
    sender.start()
    sender.finish(1.0)
    assert [gzip.decompress(path.read_bytes()) for path in spool.ready()] == [b"{}\n"] * 2


def test_missing_destination_ends_in_time_and_keeps_minutes(spool: Spool) -> None:
    sender = Sender(spool, lambda: Away(failures=10_000), "job", "node-1")
    sender.start()
    began = time.monotonic()
    assert sender.finish(1.0) is None
    assert time.monotonic() - began < 3.0
    assert len(spool.ready()) == 2
    assert sender.faults["upload"] == "ConnectionError: no route to host"


def test_profile_and_end_are_sent_without_status_permission(
    spool: Spool,
) -> None:
    class ProfilesOnly(Away):
        def put(self, key: str, body: Body) -> None:
            if "/collector/" in key:
                raise PermissionError(key)
            super().put(key, body)

    place = ProfilesOnly(failures=0)
    sender = Sender(spool, lambda: place, "job", "node-1")
    sender.note("job/collector/node-1.status.json", b"{}")
    sender.note("job/job.json", b"{}")
    sender.start()
    assert sender.finish(5.0) is place
    assert place.keys_put[-1] == "job/job.json"
    assert sender.sent_minutes == 2
    assert sender.faults["note"].startswith("PermissionError")
