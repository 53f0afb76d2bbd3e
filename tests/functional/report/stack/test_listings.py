"""What a full report lists: each page of keys once for all nodes, and the same objects as own listings."""

import json
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory import MemoryProfileObjects, MemoryWorld
from tests.support.report_runs import FOLDER, NOW, ReportRun, finished_world
from tests.support.small_job import BUCKET, JOB, START
from trainguard.core.errors import ReportPartError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import StreamKey
from trainguard.formats.profile.keys import system_key
from trainguard.stack.report import keys as day_keys
from trainguard.stack.report import plan
from trainguard.stack.report.digest import digest_item
from trainguard.stack.report.keys import FEWEST_NODES, decode_keys, encode_keys
from trainguard.stack.report.parts import DAY_S, READING_S, DigestItem, decode_items
from trainguard.stack.report.plan import ReportPlanner

ROOT = ProfileRoot("", JOB)
PAGE = 100
MINUTES = 60
LIST, GET = "ReadableObjects.list", "ReadableObjects.get"
KEYS = f"{FOLDER}parts/run/keys/"


@pytest.fixture(scope="module")
def done() -> MemoryWorld:
    """Return the stores of a job of two nodes that has ended."""
    return finished_world()


def world_of(done: MemoryWorld, nodes: int) -> MemoryWorld:
    """Return stores of such a job with so many nodes, an hour of minutes each, in pages of a hundred keys."""
    world = MemoryWorld()
    world.objects = MemoryProfileObjects(faults=world.faults, page_size=PAGE)
    world.objects.now = NOW
    record = done.jobs.load(JOB)
    assert record is not None
    world.jobs.register(record)
    (system,) = (each for each in done.nodes.of_job(JOB) if each.key.node_kind == "algo-1#system")
    for number in range(1, nodes + 1):
        node = f"algo-{number}"
        world.nodes.save(replace(system, key=StreamKey(JOB, node, "system"), version=0))
        for minute in range(START, START + 60 * MINUTES, 60):
            world.objects.put(BUCKET, system_key(ROOT, node, minute), b"", "application/json")
    return world


def planned(world: MemoryWorld, has_time: Callable[[], bool] = lambda: True) -> list[DigestItem]:
    """Return the items of a plan, called as often as it asks for."""
    planner = ReportPlanner(jobs=world.jobs, nodes=world.nodes, objects=world.objects)
    place = planner.plan(JOB, "run", now=NOW, has_time=has_time)
    while place.more:
        left = msgspec.convert(msgspec.to_builtins(place.listing), day_keys.Listing)
        place = planner.plan(JOB, "run", now=NOW + 300, has_time=has_time, listing=left)
    items = decode_items(place.key, world.objects.get(BUCKET, place.key, 10_000_000))
    assert {item.until for item in items} == {NOW + READING_S}
    return items


def digested(world: MemoryWorld, item: DigestItem) -> int:
    """Digest an item; return how many objects of the profile were read."""
    before = world.faults.calls.count(GET)
    left = digest_item(world.objects, item, now=NOW, has_time=lambda: True)
    assert not left.more
    return world.faults.calls.count(GET) - before - item.listed * item.lists


def listings(world: MemoryWorld) -> int:
    return world.faults.calls.count(LIST)


@pytest.mark.parametrize(("nodes", "most"), [(1, 3), (8, 7), (64, 41)])
def test_listings_grow_only_with_objects_not_with_nodes(done: MemoryWorld, nodes: int, most: int) -> None:
    world = world_of(done, nodes)
    items = planned(world)
    assert [digested(world, item) for item in items] == [MINUTES] * nodes
    pages = -(-nodes * MINUTES // PAGE)
    assert most == pages + 2  # none of them holds timelines or traces
    assert listings(world) == most


def test_few_nodes_list_per_digest(done: MemoryWorld) -> None:
    world = world_of(done, FEWEST_NODES - 1)
    assert {item.listed for item in planned(world)} == {False}
    assert listings(world) == 0


def test_short_time_plans_on_without_a_page_per_node(done: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_keys, "_LOOKS_EVERY", 100)
    world = world_of(done, FEWEST_NODES)
    items = planned(world, has_time=lambda: False)
    calls = -(-FEWEST_NODES * MINUTES // 100)
    assert {(item.listed, item.lists) for item in items} == {(True, calls)}
    assert [digested(world, item) for item in items] == [MINUTES] * FEWEST_NODES
    empty_folders = 2
    pages = -(-FEWEST_NODES * MINUTES // PAGE)
    assert listings(world) <= (pages + empty_folders) + (calls - 1) * (1 + empty_folders + pages)


@pytest.mark.parametrize("most", [FEWEST_NODES * MINUTES, FEWEST_NODES * MINUTES - 1, 7])
def test_large_day_has_more_lists_and_no_more_listings(
    done: MemoryWorld, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(day_keys, "MOST_KEYS", most)
    world = world_of(done, FEWEST_NODES)
    items = planned(world)
    assert {(item.listed, item.lists) for item in items} == {(True, -(-FEWEST_NODES * MINUTES // most))}
    assert [digested(world, item) for item in items] == [MINUTES] * FEWEST_NODES
    assert listings(world) == -(-FEWEST_NODES * MINUTES // PAGE) + 2


def test_abandoned_endless_plan_lists_per_digest(done: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_keys, "_LOOKS_EVERY", 1)
    monkeypatch.setattr(day_keys, "MOST_CALLS", 3)
    world = world_of(done, FEWEST_NODES)
    items = planned(world, has_time=lambda: False)
    assert {item.listed for item in items} == {False}
    assert [digested(world, item) for item in items] == [MINUTES] * FEWEST_NODES


def test_item_before_several_lists_per_day_has_one() -> None:
    axis = {"start": 0.0, "bucket_s": 1.0, "buckets": 0}
    body = {"job": JOB, "bucket": BUCKET, "prefix": "", "run": "run", "node": "algo-1", "day": START, "axis": axis}
    (item,) = decode_items("items.json", msgspec.json.encode([body | {"listed": True}]))
    assert (item.lists, item.place.keys("algo-1", item.day)) == (1, f"{KEYS}algo-1/{item.date}")


@pytest.mark.parametrize("body", [None, b"", b"none", encode_keys(["a"])[:-1]])
def test_unreadable_list_makes_the_digest_list_itself(done: MemoryWorld, body: bytes | None) -> None:
    world = world_of(done, FEWEST_NODES)
    item = planned(world)[0]
    name = item.place.keys(item.node, item.day)
    if body is None:
        world.objects.delete(BUCKET, [name])
    else:
        world.objects.put(BUCKET, name, body, "")
    before = listings(world)
    assert digested(world, item) == MINUTES
    assert listings(world) > before


def test_report_with_lists_is_the_same_and_lists_are_deleted(
    done: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(threshold: int, *, hurried: bool = False) -> tuple[object, int]:
        monkeypatch.setattr(plan, "FEWEST_NODES", threshold)
        run = ReportRun(done, name=f"report-{threshold}-{hurried}", hurried=hurried)
        before = len(done.faults.calls)
        ending = run.run()
        assert ending.status == "SUCCEEDED", ending.cause
        written = done.faults.calls[before:].count("ProfileObjects.put")
        assert list(done.objects.list(BUCKET, f"{FOLDER}parts/", "")) == []
        return json.loads(done.objects.get(BUCKET, f"{FOLDER}report.json", 100_000_000)), written

    own, few = report(3), report(2)
    monkeypatch.setattr(day_keys, "_LOOKS_EVERY", 3)
    hurried = report(2, hurried=True)
    assert hurried[0] == own[0]
    assert hurried[1] > few[1]
    assert few[0] == own[0]
    assert few[1] == own[1] + 2


def test_list_entry_of_another_day_or_node_is_left_out(done: MemoryWorld) -> None:
    world = world_of(done, FEWEST_NODES)
    item = planned(world)[0]
    foreign = [
        system_key(ROOT, "algo-99", START),
        system_key(ROOT, item.node, START - DAY_S),
        "elsewhere/secret.json",
        f"{ROOT.system}training_job_end.ts",
        system_key(ROOT, item.node, START),
    ]
    world.objects.put(BUCKET, item.place.keys(item.node, item.day), encode_keys(foreign), "")
    assert digested(world, item) == 1


@given(st.lists(st.text(max_size=60), max_size=30))
def test_packed_keys_round_trip_and_a_cut_list_is_refused(keys: list[str]) -> None:
    body = encode_keys(keys)
    assert decode_keys("list", body) == keys
    with pytest.raises(ReportPartError, match="'list'"):
        decode_keys("list", body[:-1])


def test_list_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_keys, "MAX_LIST_BYTES", 1_000)
    with pytest.raises(ReportPartError, match="more than 1,000 bytes"):
        decode_keys("list", encode_keys(["a" * 2_000]))
