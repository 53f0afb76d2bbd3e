"""Listings that the nodes of a job share: made again when they may lack something, and never without bound."""

from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.layout import ProfileRoot
from trainguard.engine.profiler import listing
from trainguard.engine.profiler.listing import MARGIN_US, UPLOAD_US, SharedNames

START_US = 1_795_248_000_000_000
SECOND = 1_000_000
ROOT = ProfileRoot("", "job")


def key_of(node: int, at_s: int, root: ProfileRoot = ROOT) -> str:
    return f"{root.framework}2026112108/{START_US + at_s * SECOND}_7-algo-{node}_pythontimeline.json"


class Bucket:
    """A bucket whose listings are counted, and the names that are shared of it."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.world.objects.now = START_US / SECOND
        self.names = SharedNames(self.world.objects)

    def put(self, *keys: str) -> None:
        for key in keys:
            self.world.objects.put("b", key, b"", "")

    def of(self, node: int, from_s: int | None, to_s: int | None, *having: str, root: ProfileRoot = ROOT) -> list[str]:
        from_us, to_us = (None if at is None else START_US + at * SECOND for at in (from_s, to_s))
        names = self.names.of_node("b", root, f"algo-{node}", from_us, to_us, having or None)
        return [key for key, _, _ in names]

    @property
    def listings(self) -> int:
        """How many pages were listed."""
        return self.world.faults.calls.count("ReadableObjects.list")


def test_nodes_asking_for_the_same_time_list_s3_once() -> None:
    bucket = Bucket()
    keys = {node: [key_of(node, at) for at in (60, 120, 180, 240)] for node in range(50)}
    for each in keys.values():
        bucket.put(*each)
    for node, own in keys.items():
        assert bucket.of(node, 60, 120, own[0], own[1]) == own
    assert bucket.listings == 1


def test_object_newer_than_the_listing_lists_s3_again() -> None:
    bucket = Bucket()
    bucket.put(*(key_of(1, at) for at in (60, 240)))
    bucket.of(1, 0, 60, key_of(1, 60))
    bucket.put(before := key_of(1, 80), known := key_of(1, 90))
    assert {before, known} <= set(bucket.of(1, 60, 90, known))
    assert bucket.listings == 2


@pytest.mark.parametrize(("newest_s", "listings"), [(120 + UPLOAD_US // SECOND, 1), (119 + UPLOAD_US // SECOND, 2)])
def test_listing_less_than_a_minute_ahead_is_refreshed(newest_s: int, listings: int) -> None:
    bucket = Bucket()
    bucket.put(key_of(1, 100), key_of(1, newest_s))
    bucket.of(1, 0, 30, key_of(1, 100))
    bucket.of(1, 0, 120, key_of(1, 100))
    assert bucket.listings == listings


@pytest.mark.parametrize(
    ("from_s", "listings"), [(300 - MARGIN_US // SECOND, 1), (299 - MARGIN_US // SECOND, 2), (None, 2)]
)
def test_node_further_back_lists_s3_again(from_s: int | None, listings: int) -> None:
    bucket = Bucket()
    keys = [key_of(1, at) for at in (10, 250, 310, 500)]
    bucket.put(*keys)
    assert bucket.of(1, 300, 310, keys[2]) == keys[1:]
    assert set(bucket.of(1, from_s, 310, keys[2])) >= {
        key for key in keys if from_s is None or key >= key_of(1, from_s)
    }
    assert bucket.listings == listings


def test_ending_stream_asks_s3_whatever_is_cached() -> None:
    bucket = Bucket()
    bucket.put(key_of(1, 60), key_of(1, 240))
    bucket.of(1, 0, 60, key_of(1, 60))
    bucket.put(key_of(1, 100), key_of(2, 100))
    assert bucket.of(1, 0, None) == [key_of(1, 60), key_of(1, 100), key_of(1, 240)]


def test_too_many_names_of_a_job_hold_only_those_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "MOST_NAMES", 10)
    bucket = Bucket()
    own: list[Any] = [key_of(1, at) for at in range(60, 360, 20)]
    bucket.put(*own, *(key_of(2, at) for at in range(61, 361, 20)))
    assert bucket.of(1, 0, 60, own[0]) == own
    assert bucket.of(2, 0, 61, key_of(2, 61)) == [key_of(2, at) for at in range(61, 361, 20)]
    assert bucket.listings == 2


def test_only_the_newest_of_many_jobs_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_NAMES", 7)
    bucket = Bucket()
    roots = [ProfileRoot("", f"job-{number}") for number in range(4)]
    for root in roots:
        bucket.put(key_of(1, 60, root), key_of(1, 240, root))
        bucket.of(1, 0, 60, key_of(1, 60, root), root=root)
    for root, listings in ((roots[3], 4), (roots[1], 4), (roots[0], 5)):
        bucket.of(1, 0, 60, key_of(1, 60, root), root=root)
        assert bucket.listings == listings
