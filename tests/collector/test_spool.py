"""The spool on disk: bounded, whole lines only, and one sampler at a time."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainguard_collector import settings
from trainguard_collector.spool import Spool, SpoolInUseError

LINE = b'{"a":1}\n'


def test_given_minutes_when_the_next_begins_then_the_last_is_ready(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000)
    spool.add(1_800_000_000, LINE)
    assert spool.ready() == []
    spool.add(1_800_000_060, LINE)
    assert [path.name for path in spool.ready()] == ["1800000000.json"]


def test_given_a_full_spool_when_added_then_the_oldest_minute_is_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 5 * len(LINE))
    for number in range(20):
        spool.add(1_800_000_000 + 60 * number, LINE * 2)
    kept = [int(path.stem) for path in spool.ready()]
    assert kept == sorted(kept)
    assert kept[-1] == 1_800_000_000 + 60 * 18
    assert spool.dropped_minutes == 19 - len(kept)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5 * len(LINE)


def test_given_a_disk_that_takes_a_part_when_added_then_the_snapshot_is_lost_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, 1_000)
    spool.add(1_800_000_000, LINE)
    write = os.write
    monkeypatch.setattr("trainguard_collector.spool.os.write", lambda file, data: write(file, data[:3]))
    spool.add(1_800_000_000, LINE)
    monkeypatch.undo()
    spool.add(1_800_000_000, LINE)
    spool.close_minute()
    assert spool.ready()[0].read_bytes() == LINE * 2
    assert spool.lost_snapshots == 1


def test_given_a_sampler_that_was_killed_when_the_next_begins_then_its_minute_goes_on_after_its_last_whole_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "1800000000.part").write_bytes(LINE + b'{"a":')
    (tmp_path / "1799999940.part").write_bytes(LINE)
    spool = Spool(tmp_path, 1_000)
    spool.add(1_800_000_000, LINE)
    spool.close_minute()
    assert {path.name: path.read_bytes() for path in spool.ready()} == {
        "1799999940.json": LINE,
        "1800000000.json": LINE * 2,
    }


def test_given_a_spool_in_use_when_opened_again_then_it_is_refused_until_closed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "job.node", 1_000)
    with pytest.raises(SpoolInUseError):
        Spool(tmp_path / "job.node", 1_000)
    spool.close()
    assert not (tmp_path / "job.node").exists()
    Spool(tmp_path / "job.node", 1_000).close()


def own(folder: Path) -> None:
    folder.mkdir(mode=0o700)


def writable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("make", "private"), [(None, True), (own, True), (writable, False), (link, False), (Path.touch, False)]
)
def test_given_a_shared_folder_for_temporary_files_when_a_spool_is_chosen_then_only_its_user_may_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object] | None, private: bool
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / f"trainguard-collector-{os.getuid()}"
    if make is not None:
        make(folder)
    assert Path(settings.default_spool()) == (folder if private else tmp_path / "home/.cache/trainguard-collector")
    assert not private or (folder.stat().st_mode & 0o077) == 0


def test_given_a_folder_of_another_user_when_a_spool_is_chosen_then_it_is_not_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    owner = os.getuid()
    (tmp_path / f"trainguard-collector-{owner + 1}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert ".cache" in settings.default_spool()
