"""The spool on disk: bounded, whole lines only, and one sampler at a time."""

import gzip
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainguard_collector import settings
from trainguard_collector.spool import Spool, SpoolInUseError, pack_minutes

LINE = b'{"a":1}\n'


def test_last_minute_is_ready_once_the_next_begins(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000)
    spool.add(1_800_000_000, LINE)
    assert spool.ready() == []
    spool.add(1_800_000_060, LINE)
    assert [path.name for path in spool.ready()] == ["1800000000.json"]


def test_full_spool_drops_and_counts_the_oldest_minute(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 5 * len(LINE))
    for number in range(20):
        spool.add(1_800_000_000 + 60 * number, LINE * 2)
    kept = [int(path.stem) for path in spool.ready()]
    assert kept == sorted(kept)
    assert kept[-1] == 1_800_000_000 + 60 * 18
    assert spool.dropped_minutes == 19 - len(kept)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5 * len(LINE)


def test_partial_disk_write_loses_the_whole_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_minute_of_a_killed_sampler_goes_on_at_its_last_line(
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


def test_minute_that_was_compressed_goes_on_as_plain_lines(tmp_path: Path) -> None:
    for begun in (Spool(tmp_path, 10_000), None):
        spool = begun or Spool(tmp_path, 10_000)
        spool.add(1_800_000_000, LINE * 100)
        spool.close_minute()
        for _ in range(2):
            pack_minutes(tmp_path)
        os.close(spool._lock)
    (packed,) = spool.ready()
    assert packed.stat().st_size < len(LINE) * 20
    assert gzip.decompress(packed.read_bytes()) == LINE * 200


def test_broken_compressed_minute_begins_again(tmp_path: Path) -> None:
    (tmp_path / "1800000000.json").write_bytes(gzip.compress(LINE)[:-9])
    spool = Spool(tmp_path, 1_000)
    spool.add(1_800_000_000, LINE)
    spool.close_minute()
    assert spool.ready()[0].read_bytes() == LINE


def test_minute_that_cannot_be_compressed_stays_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minute = tmp_path / "1800000000.json"
    minute.write_bytes(LINE)
    (tmp_path / "1800000000.packing").mkdir()
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    pack_minutes(tmp_path)
    assert minute.read_bytes() == LINE


def test_spool_in_use_is_refused_until_closed(tmp_path: Path) -> None:
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
def test_spool_in_a_shared_temp_folder_is_private_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object] | None, private: bool
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / f"trainguard-collector-{os.getuid()}"
    if make is not None:
        make(folder)
    assert Path(settings.default_spool()) == (folder if private else tmp_path / "home/.cache/trainguard-collector")
    assert not private or (folder.stat().st_mode & 0o077) == 0


def test_folder_of_another_user_is_not_chosen_as_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    owner = os.getuid()
    (tmp_path / f"trainguard-collector-{owner + 1}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert ".cache" in settings.default_spool()
