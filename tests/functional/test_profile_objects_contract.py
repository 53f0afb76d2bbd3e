"""ProfileObjects: bytes up to a limit, and listings in S3's order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.strategies import on_each_world
from tests.functional.worlds import BUCKET, World
from trainguard.core.errors import ObjectMissingError

# What S3 takes as a key and a listing can carry; "." and ".." as a segment are resolved by HTTP on the way.
_KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="."), min_size=1, max_size=20)


def _put(world: World, key: str, body: bytes = b"") -> None:
    world.objects.put(BUCKET, key, body, "application/json")


def _names(world: World, prefix: str = "", start_after: str = "") -> list[str]:
    return [entry.key for entry in world.objects.list(BUCKET, prefix, start_after)]


@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(9, b"01234567"), (8, b"01234567"), (7, b"01234567"), (4, b"01234")]
)
def test_object_read_stops_one_byte_above_the_limit(world: World, max_bytes: int, expected: bytes) -> None:
    _put(world, "key", b"01234567")
    assert world.objects.get(BUCKET, "key", max_bytes) == expected


def test_given_an_empty_object_when_read_then_it_is_empty(world: World) -> None:
    _put(world, "training_job_end.ts")
    assert world.objects.get(BUCKET, "training_job_end.ts", 100) == b""


def test_given_no_object_when_read_then_the_error_names_it(world: World) -> None:
    with pytest.raises(ObjectMissingError, match="object s3://profiles/no such é does not exist"):
        world.objects.get(BUCKET, "no such é", 100)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 4, b"0123"), (4, 4, b"4567"), (6, 100, b"67"), (7, 1, b"7"), (8, 1, b""), (800, 5, b"")],
)
def test_range_read_returns_what_the_object_has_of_it(world: World, start: int, length: int, expected: bytes) -> None:
    _put(world, "key", b"01234567")
    assert world.objects.get_range(BUCKET, "key", start, length) == expected


def test_empty_object_gives_an_empty_range_and_stream(world: World) -> None:
    _put(world, "empty")
    assert world.objects.get_range(BUCKET, "empty", 0, 10) == b""
    with world.objects.open_stream(BUCKET, "empty") as stream:
        assert stream.read(10) == b""


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, 0), (0, -1)])
def test_invalid_range_is_reported(world: World, start: int, length: int) -> None:
    _put(world, "key", b"01234567")
    with pytest.raises(ValueError, match=f"range of {length} bytes from {start}, expected at least 1 byte"):
        world.objects.get_range(BUCKET, "key", start, length)


@on_each_world
@given(body=st.binary(max_size=200), sizes=st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_streamed_pieces_are_the_object_bytes_in_order(world: World, body: bytes, sizes: list[int]) -> None:
    key = world.new_job()
    _put(world, key, body)
    with world.objects.open_stream(BUCKET, key) as stream:
        pieces = [stream.read(size) for size in sizes]
        assert all(len(piece) <= size for piece, size in zip(pieces, sizes, strict=True))
        rest = iter(lambda: stream.read(64), b"")
        assert b"".join([*pieces, *rest]) == body
        assert stream.read(1) == b""


def test_range_or_stream_of_a_missing_object_names_it(world: World) -> None:
    with pytest.raises(ObjectMissingError, match="object s3://profiles/none does not exist"):
        world.objects.get_range(BUCKET, "none", 0, 1)
    with pytest.raises(ObjectMissingError, match="object s3://profiles/none does not exist"):
        world.objects.open_stream(BUCKET, "none")


def test_rewritten_object_is_replaced_whole(world: World) -> None:
    _put(world, "key", b"a longer one")
    world.objects.put(BUCKET, "key", b"short", "text/html")
    assert world.objects.get(BUCKET, "key", 100) == b"short"
    assert [entry.size for entry in world.objects.list(BUCKET, "key", "")] == [5]
    assert world.content_type("key") == "text/html"


@on_each_world
@given(keys=st.lists(_KEYS, unique=True, min_size=1, max_size=6), body=st.binary(max_size=50))
def test_keys_are_listed_in_utf8_order_and_readable(world: World, keys: list[str], body: bytes) -> None:
    root = world.new_job() + "/"
    for key in keys:
        _put(world, root + key, body)
    expected = [root + key for key in sorted(keys, key=str.encode)]
    assert _names(world, root) == expected
    assert _names(world, root, expected[0]) == expected[1:]
    assert all(world.objects.get(BUCKET, key, 100) == body for key in expected)


def test_given_a_prefix_when_listed_then_only_keys_under_it_come(world: World) -> None:
    for key in ("a/1", "a/2", "ab", "b/1", "a"):
        _put(world, key)
    assert _names(world, "a/") == ["a/1", "a/2"]
    assert _names(world, "c/") == []


@pytest.mark.parametrize(
    ("start_after", "expected"),
    [("a/0", ["a/1", "a/3"]), ("a/1", ["a/3"]), ("a/2", ["a/3"]), ("a/3", []), ("b", []), ("A", ["a/1", "a/3"])],
)
def test_start_after_lists_only_greater_keys(world: World, start_after: str, expected: list[str]) -> None:
    for key in ("a/1", "a/3", "b"):
        _put(world, key)
    assert _names(world, "a/", start_after) == expected


def test_keys_beyond_one_page_are_listed_once_in_order(world: World) -> None:
    keys = [f"p/{number:05d}" for number in range(1003)]
    world.put_empty(reversed(keys))
    assert _names(world, "p/") == keys
    assert _names(world, "p/", keys[0]) == keys[1:]


def test_listed_objects_have_sizes_and_ordered_times(world: World) -> None:
    _put(world, "first", b"1")
    _put(world, "second", b"22")
    first, second = world.objects.list(BUCKET, "", "")
    assert (first.size, second.size) == (1, 2)
    assert first.last_modified <= second.last_modified


def test_folders_are_listed_once_in_order(world: World) -> None:
    for key in ("a/2026010112/x", "a/2026010111/x", "a/2026010111/y/z", "a/loose", "ab/2026010113/x"):
        _put(world, key)
    assert list(world.objects.folders(BUCKET, "a/")) == ["2026010111", "2026010112"]
    assert list(world.objects.folders(BUCKET, "c/")) == []


def test_folders_beyond_one_page_are_all_listed(world: World) -> None:
    names = [f"{number:010d}" for number in range(1_003)]
    world.put_empty(f"p/{name}/object" for name in names)
    assert list(world.objects.folders(BUCKET, "p/")) == names


def test_only_named_objects_are_deleted(world: World) -> None:
    keys = [f"p/{number:05d}" for number in range(1_003)]
    world.put_empty([*keys, "q"])
    world.objects.delete(BUCKET, [*keys[1:], "p/never there"])
    assert _names(world) == [keys[0], "q"]
    world.objects.delete(BUCKET, [])
