"""The objects of a node's day: all days together have each object once, wherever reading begins again."""

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from trainguard.core.layout import ProfileRoot, hour_folder
from trainguard.formats.profile.keys import system_key
from trainguard.report.timeline.series import TimeAxis
from trainguard.stack.report.digest import digest_item, keys_of_item
from trainguard.stack.report.parts import DAY_S, DigestItem

BUCKET, JOB = "profiles", "job"
DAY = 1_795_219_200
ROOT = ProfileRoot("runs/", JOB)
AXIS = TimeAxis(start=float(DAY), bucket_s=60.0, buckets=10)
NODES = ("algo-1", "algo-10")


def item(node: str, day: int, after: str = "") -> DigestItem:
    return DigestItem(job=JOB, bucket=BUCKET, prefix="runs/", run="run", node=node, day=day, axis=AXIS, after=after)


def framework_key(node: str, at_s: int, *, folder_s: int | None = None) -> str:
    folder = hour_folder(at_s if folder_s is None else folder_s)
    return f"{ROOT.framework}{folder}/{at_s}000000_7-{node}_pythontimeline.json"


def trace_key(node: str, at_s: int, *, hours_off: int) -> str:
    folder = datetime.fromtimestamp(at_s + 3_600 * hours_off, UTC).strftime("%Y%m%d%H")
    return f"{ROOT.tensorflow}{folder}/5/{node}_{at_s - 1}000000_{at_s}000000.metadata"


def holding(*keys: str, written: float = DAY + 10.0 * DAY_S) -> MemoryProfileObjects:
    objects = MemoryProfileObjects(faults=Faults(), page_size=3)
    objects.now = written
    for key in keys:
        objects.put(BUCKET, key, b"", "application/json")
    return objects


def found(objects: MemoryProfileObjects, given: DigestItem) -> list[str]:
    return [key for key, parsed in keys_of_item(objects, given) if parsed is not None]


moments = st.integers(DAY - DAY_S, DAY + 2 * DAY_S - 1) | st.sampled_from(
    [DAY - 1, DAY, DAY + 59, DAY + DAY_S - 1, DAY + DAY_S, DAY + DAY_S + 1]
)
keys = st.one_of(
    st.builds(lambda node, at: system_key(ROOT, node, at), st.sampled_from(NODES), moments),
    st.builds(framework_key, st.sampled_from(NODES), moments),
    st.builds(lambda node, at: framework_key(node, at, folder_s=at - 3_600), st.sampled_from(NODES), moments),
    st.builds(
        lambda node, at, off: trace_key(node, at, hours_off=off),
        st.sampled_from(NODES),
        moments,
        st.integers(-12, 14),
    ),
)


@given(st.sets(keys, max_size=20))
def test_all_objects_of_all_days_are_read_once_in_order(
    given_keys: set[str],
) -> None:
    objects = holding(*given_keys)
    days = [found(objects, item(node, day)) for node in NODES for day in (DAY - DAY_S, DAY, DAY + DAY_S)]
    assert sorted(key for day in days for key in day) == sorted(given_keys)
    assert all(day == sorted(day) for day in days)


@given(st.sets(keys, max_size=12), st.data())
def test_day_resumes_after_its_last_key(given_keys: set[str], data: st.DataObject) -> None:
    objects = holding(*given_keys)
    whole = found(objects, item("algo-1", DAY))
    read = data.draw(st.integers(0, len(whole)))
    after = whole[read - 1] if read else ""
    assert found(objects, item("algo-1", DAY, after)) == whole[read:]


@pytest.mark.parametrize(
    "stranger",
    [
        f"{ROOT.system}2026112100/holiday.json",
        f"{ROOT.system}2026112100/1795219260.algo-1.json.gz",
        f"runs/{JOB}/profiler-output/system/training_job_end.ts",
        f"{ROOT.report}parts/run/nodes/algo-1/2026-11-21.000",
    ],
)
def test_foreign_object_is_skipped(stranger: str) -> None:
    ours = system_key(ROOT, "algo-1", DAY + 60)
    assert found(holding(ours, stranger), item("algo-1", DAY)) == [ours]


def test_object_named_ahead_of_its_time_is_skipped() -> None:
    early, late = system_key(ROOT, "algo-1", DAY), system_key(ROOT, "algo-1", DAY + 7_200)
    assert found(holding(early, late, written=DAY + 60.0), item("algo-1", DAY)) == [early]


def test_days_after_the_read_one_are_not_listed() -> None:
    faults = Faults()
    objects = MemoryProfileObjects(faults=faults, page_size=10)
    objects.now = DAY + 30.0 * DAY_S
    for hour in range(24 * 20):
        objects.put(BUCKET, system_key(ROOT, "algo-1", DAY + 3_600 * hour), b"", "application/json")
    before = len(faults.calls)
    assert len(found(objects, item("algo-1", DAY + 3 * DAY_S))) == 24
    assert faults.calls[before:].count("ReadableObjects.list") <= 2 + 3


def test_node_resumes_at_a_key_of_another_node() -> None:
    others = [system_key(ROOT, "algo-10", DAY + 60 * minute) for minute in range(100)]
    looks = itertools.count(1)
    objects = holding(*others)
    left, reached = item("algo-1", DAY), []
    while left.more:
        left = digest_item(objects, left, now=float(DAY), has_time=lambda: next(looks) % 30 != 0)
        reached.append(left.after)
    assert reached == [others[29], others[59], others[89], others[-1]]
