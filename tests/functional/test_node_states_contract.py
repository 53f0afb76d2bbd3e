"""NodeStates: one conditional write moves everything."""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given

from tests.functional.strategies import node_records, on_each_world
from tests.functional.worlds import MotoUnderTest, World
from trainguard.core.errors import StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.records import OutboxEntry, StreamKey, StreamRecord

if TYPE_CHECKING:
    from collections.abc import MutableMapping

KEY = StreamKey("job", "algo-1", "system")


def _entry(fire_id: str, *, sent: bool = False) -> OutboxEntry:
    return OutboxEntry(fire_id, 0, 60.0, Finding("LowGPUUtilization", "algo-1", "The GPU idles.", 23.0, 70.0), sent)


def test_given_no_item_when_loaded_then_there_is_none(world: World) -> None:
    assert world.nodes.load(KEY) is None
    assert world.nodes.of_job("job") == []


def test_given_a_new_record_when_saved_then_its_version_is_one(world: World) -> None:
    assert world.nodes.save(StreamRecord(KEY)).version == 1


@on_each_world
@given(drawn=node_records())
def test_saved_record_loads_with_only_its_version_moved(world: World, drawn: StreamRecord) -> None:
    record = replace(drawn, key=replace(drawn.key, job=drawn.key.job + world.new_job()))
    saved = world.nodes.save(record)
    assert saved == replace(record, version=1)
    assert world.nodes.load(record.key) == saved
    assert world.nodes.of_job(record.key.job) == [saved]


def test_save_with_the_current_version_replaces_the_item(world: World) -> None:
    first = world.nodes.save(
        StreamRecord(KEY, cursors={"minute": 1}, pending={"key": 2}, watermark_s=60.0, expires_at=9)
    )
    second = world.nodes.save(replace(first, cursors={"minute": 2}, pending={}, watermark_s=None, expires_at=None))
    assert second == StreamRecord(KEY, version=2, cursors={"minute": 2})
    assert world.nodes.load(KEY) == second


@pytest.mark.parametrize("version", [0, 1, 3], ids=["never-read", "overtaken", "from-the-future"])
def test_save_with_another_version_conflicts(world: World, version: int) -> None:
    stored = world.nodes.save(world.nodes.save(StreamRecord(KEY)))
    with pytest.raises(StateConflictError, match=rf"NodeState/job/algo-1#system no longer has Version {version}"):
        world.nodes.save(StreamRecord(KEY, version=version, cursors={"minute": 9}))
    assert world.nodes.load(KEY) == stored


def test_save_of_a_later_version_without_an_item_conflicts(world: World) -> None:
    with pytest.raises(StateConflictError):
        world.nodes.save(StreamRecord(KEY, version=1))
    assert world.nodes.load(KEY) is None


def test_only_named_entries_are_marked_sent_at_the_same_version(world: World) -> None:
    outbox = {name: _entry(name) for name in ("a", "b", "c")}
    saved = world.nodes.save(StreamRecord(KEY, outbox=outbox, cursors={"minute": 1}))
    world.nodes.mark_sent(KEY, ["a", "c"])
    expected = {"a": _entry("a", sent=True), "b": _entry("b"), "c": _entry("c", sent=True)}
    assert world.nodes.load(KEY) == replace(saved, outbox=expected)


def test_marking_sent_keeps_the_save_of_an_earlier_loader_valid(world: World) -> None:
    loaded = world.nodes.save(StreamRecord(KEY, outbox={"a": _entry("a")}))
    world.nodes.mark_sent(KEY, ["a"])
    assert world.nodes.save(loaded).version == 2


def test_missing_entries_do_not_prevent_marking_others_sent(world: World) -> None:
    saved = world.nodes.save(StreamRecord(KEY, outbox={"kept": _entry("kept")}))
    world.nodes.mark_sent(KEY, ["gone", "kept"])
    assert world.nodes.load(KEY) == replace(saved, outbox={"kept": _entry("kept", sent=True)})


def test_given_no_item_when_marked_sent_then_none_appears(world: World) -> None:
    world.nodes.mark_sent(KEY, ["a"])
    assert world.nodes.load(KEY) is None


def test_items_of_one_job_are_listed_in_sort_key_order(world: World) -> None:
    kinds = ["algo-2#system", "*#job", "algo-10#system", "algo-1#framework", "algo-1#system"]
    for kind in kinds:
        world.nodes.save(StreamRecord(StreamKey.parse("job", kind)))
    world.nodes.save(StreamRecord(StreamKey("job-of-another", "algo-1", "system")))
    assert [record.key.node_kind for record in world.nodes.of_job("job")] == sorted(kinds)


def test_items_beyond_one_page_are_all_listed(world: World) -> None:
    # A page of a query ends at 1 MB: five items of 300 kB make two.
    keys = [StreamKey("job", f"algo-{number}", "system") for number in range(5)]
    for key in keys:
        world.nodes.save(StreamRecord(key, state=bytes(300_000)))
    assert [record.key for record in world.nodes.of_job("job")] == keys


def test_stored_record_is_immutable(world: World) -> None:
    mine = {"minute": 1}
    saved = world.nodes.save(StreamRecord(KEY, cursors=mine, outbox={"a": _entry("a")}))
    mine["minute"] = 2
    loaded = world.nodes.load(KEY)
    assert loaded is not None
    assert loaded.cursors == saved.cursors == {"minute": 1}
    for mapping in (saved.cursors, loaded.cursors, loaded.pending, loaded.counters, loaded.outbox):
        with pytest.raises(TypeError):
            cast("MutableMapping[str, object]", mapping)["a"] = 3


def test_saved_node_has_the_agreed_console_columns(
    moto_world: MotoUnderTest,
) -> None:
    moto_world.nodes.save(StreamRecord(KEY, watermark_s=60.5, expires_at=9, outbox={"f1": _entry("f1")}, state=b"\x01"))
    item = moto_world.node("job", "algo-1#system")
    assert item.keys() == {
        *("TrainingJobName", "NodeKind", "Version", "Cursors", "Pending", "Window", "Codec", "Counters", "Outbox"),
        *("EvaluatedThrough", "Closed", "ExpiresAt"),
    }
    assert item["Version"] == {"N": "1"}
    assert item["Window"] == {"B": b"\x01"}
    assert item["EvaluatedThrough"] == {"N": "60.5"}
    assert item["Outbox"]["M"]["f1"]["M"]["Sent"] == {"BOOL": False}
