"""A node with more framework objects than its item has room for, and items that an earlier version wrote."""

from dataclasses import replace
from itertools import islice
from typing import Any

from tests.support.memory import MemoryWorld
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.ordering.partition_order import MOST_PENDING
from trainguard.engine.profiler.framework_session import FrameworkSession
from trainguard.engine.streams.session import LISTED_NAMES, Announced
from trainguard.formats.profile.keys import FrameworkKey, parse_key
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.state.codec import decode_state, encode_state

START_US = 1_795_248_000_000_000
SECOND = 1_000_000
ROOT = ProfileRoot("p" * 800 + "/", "job")
ITEM_LIMIT = 400_000


def key_of(number: int, at_s: float) -> str:
    """Return the key of an object of one of three processes, as long as keys may be."""
    return f"{ROOT.framework}2026112108/{START_US + int(at_s * SECOND)}_{number % 3}-algo-1_pythontimeline.json"


class Node:
    """A node's framework stream over an in-memory bucket, from item to item."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.world.objects.now = START_US / SECOND
        self.record = StreamRecord(StreamKey("job", "algo-1", "framework"))

    def put(self, *keys: str) -> None:
        for key in keys:
            self.world.objects.put("b", key, b"[]", "")

    def opened(self) -> FrameworkSession:
        source = ObjectSource(self.world.objects, "b", ROOT, MAX_OBJECT_BYTES)
        return FrameworkSession(self.record, source, FAMILIES.plan(JobRecord("job", "arn", "b", ROOT.prefix)))

    def apply(self, *keys: str, most: int = 10_000, drain: bool = False) -> list[str]:
        """Announce keys, apply as many objects as there is time for, and write the item."""
        session = self.opened()
        session.announce([Announced(key, each) for key in keys if isinstance(each := parse_key(key), FrameworkKey)])
        applied = [each.key for each in islice(session.apply(drain=drain, modified_before=None), most)]
        self.record = session.to_record(closed=False)
        return applied

    @property
    def size(self) -> int:
        """How large the item is: names and numbers of lanes and keys, and the state."""
        numbered = (self.record.cursors, self.record.pending)
        return len(self.record.state) + sum(len(name) + 21 for each in numbered for name in each)


BURST = [key_of(number, 1 + number / 10) for number in range(600)]


def test_waiting_burst_keeps_the_item_small_and_loses_nothing() -> None:
    node = Node()
    node.put(*BURST)
    assert node.apply(*BURST) == []
    assert len(node.record.pending) == MOST_PENDING
    assert node.size < ITEM_LIMIT / 2
    assert node.record.counters[LISTED_NAMES] == 1

    node.put(last := key_of(1, 200))
    assert node.apply(last) == BURST
    assert node.record.pending.keys() == {last}
    assert node.record.counters[LISTED_NAMES] == 1


def test_redelivered_messages_of_a_waiting_burst_write_nothing() -> None:
    node = Node()
    node.put(*BURST)
    node.apply(*BURST)
    session = node.opened()
    session.announce([Announced(key, each) for key in BURST if isinstance(each := parse_key(key), FrameworkKey)])
    assert session.has_changes is False
    session.announce([Announced(key := key_of(1, 0), parse_key(key)), Announced("other", None)])
    assert session.has_changes is True


def test_rest_of_a_partly_applied_burst_is_listed_again() -> None:
    node = Node()
    last, later = key_of(1, 200), key_of(1, 260)
    node.put(*BURST, last)
    assert node.apply(BURST[0], last, most=50) == BURST[:50]
    assert node.size < ITEM_LIMIT / 2
    node.put(later)
    assert node.apply(later) == BURST[50:]


def test_whole_burst_is_applied_at_the_end_of_the_job() -> None:
    node = Node()
    node.put(*BURST)
    node.apply(*BURST)
    assert node.apply(drain=True) == BURST
    assert not node.record.pending


def test_item_of_an_earlier_version_lists_only_newer_objects() -> None:
    node = Node()
    old = [key_of(1, 60 * index) for index in range(1, 8)]
    node.put(*old)
    assert node.apply(*old) == old[:5]
    fields = decode_state("item", 1, node.record.state, dict[str, Any])
    del fields["listed_us"]
    fields["spacing_us"] = {"1/pythontimeline": 60 * SECOND}
    node.record = replace(node.record, state=encode_state(fields))

    node.put(*(new := [key_of(1, 60 * index) for index in range(8, 10)]))
    assert node.apply(*new) == old[5:]
    assert node.opened().stream.state.listed_us == START_US + 420 * SECOND


def test_duplicate_messages_are_counted_once_on_rewrite() -> None:
    node = Node()
    node.put(*(keys := [key_of(1, 60), key_of(2, 300)]))
    assert node.apply(*keys, *keys) == keys[:1]
    session = node.opened()
    session.announce([Announced(keys[0], parse_key(keys[0]))])
    assert [session.to_record(closed=False).counters["duplicates"] for _ in range(2)] == [3, 3]


def test_missing_listing_position_is_that_of_the_processes() -> None:
    node = Node()
    node.put(*(keys := [key_of(1, 60), key_of(2, 300)]))
    node.apply(*keys)
    listed = decode_state("item", 1, node.record.state, dict[str, Any])
    for listed_us, expected in ((listed["listed_us"], listed["listed_us"]), (-1, START_US + 60 * SECOND)):
        node.record = replace(node.record, state=encode_state({**listed, "listed_us": listed_us}), pending={})
        assert node.opened().to_record(closed=False).state
        session = node.opened()
        session.to_record(closed=False)
        assert session.stream.state.listed_us == expected
    assert not node.opened().to_record(closed=False).closed
    assert node.opened().to_record(closed=True).closed
