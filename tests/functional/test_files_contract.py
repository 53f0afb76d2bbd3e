"""Files: each adapter, of a bucket on moto and its twin, of a folder and in memory, answers alike."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.functional.worlds import BUCKET, World
from trainguard.core.errors import ObjectMissingError
from trainguard.core.ports import BucketFiles, Files
from trainguard.local.sources import FilesAsBucket, FolderFiles, MemoryFiles

BODIES = {"a/1": b"01234567", "a/2": b"", "a-b": b"x", "c": b"yz"}


def _in_bucket(world: World) -> Files:
    for name, body in {**{f"jobs/job/{name}": body for name, body in BODIES.items()}, "jobs/other": b""}.items():
        world.objects.put(BUCKET, name, body, "application/json")
    return BucketFiles(world.objects, BUCKET, "jobs/job/")


def _in_folder(folder: Path, bodies: Mapping[str, bytes]) -> Files:
    paths = {name: folder / name for name in bodies}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bodies[name])
    return FolderFiles(str(folder), paths)


@pytest.fixture(params=["bucket", "folder", "memory", "as bucket"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Return the same files behind each adapter."""
    if request.param == "bucket":
        return _in_bucket(request.getfixturevalue("moto_world"))
    if request.param == "folder":
        return _in_folder(tmp_path, BODIES)
    memory = MemoryFiles("memory", BODIES)
    return memory if request.param == "memory" else BucketFiles(FilesAsBucket(memory), "any", "")


@pytest.mark.parametrize(("most", "expected"), [(9, b"01234567"), (7, b"01234567"), (4, b"01234")])
def test_whole_file_stops_one_byte_above_the_limit(files: Files, most: int, expected: bytes) -> None:
    assert files.get("a/1", most) == expected
    assert files.get("a/2", most) == b""


@pytest.mark.parametrize(("start", "length", "expected"), [(0, 4, b"0123"), (6, 100, b"67"), (8, 1, b""), (80, 5, b"")])
def test_range_has_what_the_file_has_of_it(files: Files, start: int, length: int, expected: bytes) -> None:
    assert files.get_range("a/1", start, length) == expected


def test_range_of_no_bytes_is_reported(files: Files) -> None:
    with pytest.raises(ValueError, match="expected at least 1 byte"):
        files.get_range("a/1", 0, 0)


def test_stream_is_read_from_the_front(files: Files) -> None:
    with files.open_stream("a/1") as stream:
        assert (stream.read(3), stream.read(100), stream.read(1)) == (b"012", b"34567", b"")


def test_missing_file_is_named(files: Files) -> None:
    for read in (lambda: files.get("b", 1), lambda: files.get_range("b", 0, 1), lambda: files.open_stream("b")):
        with pytest.raises(ObjectMissingError, match="b does not exist"):
            read()


@pytest.mark.parametrize(
    ("prefix", "after", "expected"),
    [
        ("", "", ["a-b", "a/1", "a/2", "c"]),
        ("a/", "", ["a/1", "a/2"]),
        ("a", "a/1", ["a/2"]),
        ("", "a/2", ["c"]),
        ("d", "", []),
    ],
)
def test_listing_is_in_order_below_the_prefix(files: Files, prefix: str, after: str, expected: list[str]) -> None:
    listed = list(files.list(prefix, after))
    assert [each.key for each in listed] == expected
    assert [each.size for each in listed] == [len(BODIES[name]) for name in expected]
