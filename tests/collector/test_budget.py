"""One limit for minutes and objects of all jobs of a user, and what one sampler has left is sent by the next."""

import os
import time
from pathlib import Path

import pytest

from trainguard_collector import objects, outgoing
from trainguard_collector.objects import Handover, TimelineFile, objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.places import Folder
from trainguard_collector.recorder.harmless import Faults
from trainguard_collector.recorder.timeline import EventLog
from trainguard_collector.sender import KEPT_S, Leftovers, Sender
from trainguard_collector.spool import Budget, Spool

MINUTE = 1_800_000_000
HEADER = b'{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1800000000000000}},\n'


def put(path: Path, size: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def used(root: Path) -> int:
    return sum(each.stat().st_size for each in root.rglob("*") if each.is_file())


def test_full_disk_removes_the_oldest_file_of_all_spools(
    tmp_path: Path,
) -> None:
    oldest = put(tmp_path / f"b.n.objects/{MINUTE * 10**9}.key.object", 400)
    older = put(tmp_path / f"a.n/{MINUTE + 60}.json", 400)
    newer = put(tmp_path / f"b.n/{MINUTE + 120}.json", 400)
    written = put(tmp_path / f"a.n/{MINUTE}.part", 100)
    foreign = put(tmp_path / "notes/1.json", 10_000)
    budget = Budget(tmp_path / "a.n", 1_000)
    assert budget.make_room(50)
    assert [each.exists() for each in (oldest, older, newer, written, foreign)] == [False, True, True, True, True]
    assert budget.make_room(500)
    assert [older.exists(), newer.exists()] == [False, True]
    assert (budget.dropped_objects, budget.dropped_minutes) == (1, 1)
    assert not budget.make_room(1_001)


def test_snapshots_under_a_limit_rarely_recount_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "a.n", 10_000_000)
    looks: list[Budget] = []

    def count(budget: Budget) -> list[object]:
        looks.append(budget)
        return []

    monkeypatch.setattr(Budget, "_files", count)
    for _ in range(50):
        spool.add(MINUTE, b"{}\n")
    assert len(looks) == 1


def test_unsent_timelines_keep_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "ROTATE_S", 0.0)
    folder, limit = objects_folder(str(tmp_path), "j", "n"), 100_000
    budget = Budget(tmp_path / "j.n", limit)
    taken = Outgoing(folder, "j", "n", budget)
    timeline = TimelineFile(Handover(folder, limit), "1", lambda: HEADER)
    for number in range(8):
        names = (os.urandom(40).hex().encode() for _ in range(400))
        line = b'{"name":"%s","ph":"X","pid":1,"tid":0,"ts":%d,"dur":5},\n'
        timeline.append(b"".join(line % (name, number) for name in names))
        taken.prepare(final=False)
        assert used(tmp_path) <= limit
    assert budget.dropped_objects > 0
    assert taken.ready()


def test_untaken_timelines_share_a_limit_and_count_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "ROOM_STEP", 1_000)
    monkeypatch.setattr(objects, "LARGEST_TIMELINE", 15_000)
    folder, limit = objects_folder(str(tmp_path), "j", "n"), 40_000
    put(folder / "1.debug-output%2Fa.object", 5_000)
    faults = Faults()

    def log_of(rank: int) -> EventLog:
        return EventLog(lambda header: TimelineFile(Handover(folder, limit), f"rank{rank}", header), faults)

    logs = [log_of(rank) for rank in range(4)]
    for number in range(600):
        for log in logs:
            log.add(("Phases", "a", log.monotonic_ns(time.time_ns()), time.monotonic_ns(), "", number))
            log.flush(time.monotonic_ns())
    sizes = [path.stat().st_size for path in folder.glob("*.timeline")]
    assert sum(sizes) <= limit + 4 * 1_000
    assert min(sizes) > 5_000, "one process takes the room of another"
    assert max(sizes) <= 15_000
    assert not (folder / "1.debug-output%2Fa.object").exists()
    lines = sum(path.read_bytes().count(b'"ph":"X"') for path in folder.glob("*.timeline"))
    assert lines + sum(log.dropped for log in logs) == 4 * 600
    assert "too many for a spool" in faults.newest["timeline"] or "nothing takes it" in faults.newest["timeline"]


def test_sampler_of_another_job_sends_what_was_left(
    tmp_path: Path,
) -> None:
    left = Spool(tmp_path / "spool/old.node-1", 10_000)
    left.say_where_it_belongs(str(tmp_path / "out"), "old", "node-1")
    left.add(MINUTE, b"{}\n")
    Handover(objects_folder(str(tmp_path / "spool"), "old", "node-1"), 10_000).put("debug-output/a", b"1")
    own = Spool(tmp_path / "spool/new.node-1", 10_000)
    orphan_spools = Leftovers(tmp_path / "spool/new.node-1", Folder)
    assert orphan_spools.send() == 0  # its sampler runs
    os.close(left._lock)  # it is killed
    sender = Sender(own, lambda: Folder(str(tmp_path / "out")), "new", "node-1", orphan_spools=orphan_spools)
    sender.start()
    for _ in range(100):
        if sender.sent_orphan_spools == 2:
            break
        time.sleep(0.02)
    sender.finish(5.0)
    assert (tmp_path / "out/old/debug-output/a").read_bytes() == b"1"
    assert list((tmp_path / "out/old/profiler-output/system").rglob(f"{MINUTE}.node-1.json"))
    assert sorted(each.name for each in (tmp_path / "spool").iterdir()) == ["new.node-1"]


def test_old_spool_without_a_destination_is_deleted(tmp_path: Path) -> None:
    nameless, recent = put(tmp_path / f"a.n/{MINUTE}.json", 10), put(tmp_path / f"b.n/{MINUTE}.json", 10)
    for path in (nameless, nameless.parent):
        os.utime(path, (time.time() - KEPT_S - 60.0,) * 2)
    assert Leftovers(tmp_path / "own.n", Folder).send() == 0
    assert (nameless.parent.exists(), recent.exists()) == (False, True)
