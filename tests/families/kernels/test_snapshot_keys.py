"""Which keys are memory snapshots, who wrote them, and which of them are the newest of a rank."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ListedObject
from trainguard.engine.installed import FAMILIES
from trainguard.kernels.captures.keys import WINDOW_S, captures_at, captures_of, match_below, match_key, snapshots_of
from trainguard.kernels.memory.names import rank_of

ROOT = ProfileRoot("runs/", "job-1")
FOLDER = f"{ROOT.folder}kernel-traces/"
AT = 1_795_248_000.0


@pytest.mark.parametrize(
    ("name", "folder", "writer", "rank"),
    [
        ("rank3_memory_snapshot.pickle", "", "rank3", 3),
        ("iteration_100/rank3_memory_snapshot.pickle", "", "rank3", 3),
        ("iteration_100_exit/rank3_memory_snapshot.pickle", "", "rank3", 3),
        ("mem/rank0.123.pt.trace.memory_snapshot.pickle", "mem/", "rank0", 0),
        ("memory_snapshot_rank0_step6.pkl", "", "rank0", 0),
        ("lora_rank16_rank00002_snapshot.pickle.gz", "", "lora_rank16_rank2", 2),
        ("algo-2/rank0_oom.pickle", "", "algo-2/rank0", 0),
        ("rank7/dump_snapshot.pickle", "", "rank7/", 7),
        ("ip-10-0-1-5_Nov_28_17_24_40.pickle", "", "ip_10_0_1_5", None),
        ("snapshot_2.pickle", "", "2", None),
        ("lora_rank16/snapshot.pickle", "", "lora_rank16/", None),
        ("step_6/rank3_memory_snapshot.json.gz", "", "rank3", 3),
        ("rank3_memory_timeline.raw.json.gz", "", "rank3_timeline", 3),
    ],
)
def test_a_snapshot_key_gives_folder_writer_and_rank(name: str, folder: str, writer: str, rank: int | None) -> None:
    found = match_key(f"{FOLDER}{name}")
    assert found is not None
    assert (found.is_snapshot, found.folder, found.writer) == (True, f"{FOLDER}{folder}", writer)
    assert rank_of(f"kernel-traces/{name}") == rank
    assert any(family.events.admits(f"{FOLDER}{name}") for family in FAMILIES)


@pytest.mark.parametrize(
    ("key", "is_snapshot"),
    [
        ("checkpoints/rank0_memory_snapshot.pickle", True),
        ("output/intermediate/mem_snapshot.pkl.gz", True),
        ("checkpoints/optimizer.pickle", False),
        ("memory/model.pickle", False),
        ("checkpoints/Memory.pickle", False),
        ("checkpoints/memory.json", False),
        ("rule-output/snapshot.pickle", False),
        ("kernel-traces/profile.pkl", True),
        ("checkpoints/rank0_memory_snapshot.json", True),
        ("output/memory_timeline.raw.json.gz", True),
        ("rule-output/memory_snapshot.json", False),
        ("kernel-traces/memory.json", False),
    ],
)
def test_outside_of_the_trace_folder_a_name_says_it(key: str, is_snapshot: bool) -> None:
    found = match_below(f"{ROOT.folder}{key}", ROOT)
    assert (found is not None and found.is_snapshot) == is_snapshot


def snapshot(name: str, at: float, etag: str = "") -> ListedObject:
    return ListedObject(f"{FOLDER}{name}", at, 1, etag)


def names(found: list[ListedObject], before: float = math.inf) -> list[str]:
    snapshots = snapshots_of(ROOT, {FOLDER: found}, before)
    return [] if snapshots is None else sorted(each.key.removeprefix(FOLDER) for each in snapshots.newest)


def test_step_10_is_newer_than_step_9_of_the_same_time() -> None:
    copied = [snapshot(f"rank0_step{step}_snapshot.pickle", AT) for step in (9, 10)]
    assert names(copied) == ["rank0_step10_snapshot.pickle"]


def test_ranks_of_one_window_count_when_the_last_has_settled() -> None:
    written = [snapshot(f"rank{rank}_snapshot.pickle", AT + 60.0 * rank) for rank in range(3)]
    assert names(written, before=AT + 100.0) == []
    assert len(names(written, before=AT + 120.0)) == 3


def test_snapshots_alone_are_one_capture_and_keep_its_name() -> None:
    first = [snapshot("rank0_snapshot.pickle", AT)]
    later = [*first, snapshot("iteration_2/rank0_snapshot.pickle", AT + 9_000.0)]
    captures = [captures_at(ROOT, {}, {FOLDER: each}, math.inf) for each in (first, later)]
    assert [len(each) for each in captures] == [1, 1]
    assert captures[0][0].name == captures[1][0].name
    assert captures[1][0].snapshots is not None
    assert captures[1][0].snapshots.replaced == 1


def test_snapshots_are_no_traces_and_stand_with_the_newest() -> None:
    listed = [ListedObject(f"{FOLDER}n_0.{round(at * 1_000)}.pt.trace.json", at, 1) for at in (AT, AT + 900.0)]
    listed += [snapshot("rank0_snapshot.pickle", AT + 10.0)]
    assert [len(each.traces) for each in captures_of(ROOT, FOLDER, listed)] == [1, 1]
    first, newest = captures_at(ROOT, {FOLDER: listed}, {FOLDER: listed}, math.inf)
    assert (first.snapshots, newest.snapshots is None) == (None, False)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 9_000)), max_size=30), st.integers(0, 99)
)
def test_newest_of_each_rank_whatever_the_order(written: list[tuple[int, int, int]], seed: int) -> None:
    found = [
        snapshot(f"iteration_{step}/rank{rank}_snapshot.pickle", AT + at, f"{rank} {step} {at}")
        for (rank, step), at in {(rank, step): at for rank, step, at in written}.items()
    ]
    shuffled = list(found)
    random.Random(seed).shuffle(shuffled)
    assert names(found) == names(shuffled)
    newest = {rank_of(name): name for name in names(found)}
    assert len(newest) == len(names(found)) == len({rank for rank, *_ in written})
    times = {each.key.removeprefix(FOLDER): each.last_modified for each in found}
    for name, at in times.items():
        assert times[newest[rank_of(name)]] >= at
    # What has not settled replaces nothing that has.
    assert len(names(found, before=AT + 9_000.0 + WINDOW_S)) == len(newest)
