"""Answers of NCCL RAS name the ranks that are dead, silent or behind, alone and beside dumps."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.simulated import Fault, Job
from trainguard.formats.hangs.ras import RasError, read_ras
from trainguard.hangs.files import HangFiles
from trainguard.hangs.verdict import stand_of
from trainguard.local.hangs import judge_hang


def rank_entry(rank: int, world_rank: int, reduces: int) -> dict[str, Any]:
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    counts = {"Broadcast": 3, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": reduces}
    return {**about(rank, world_rank), "status": status, "collective_counts": counts}


def about(rank: int, world_rank: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": f"10.0.0.{world_rank // 8}",
        "pid": 1000 + world_rank,
        "cuda_dev": world_rank % 8,
        "nvml_dev": world_rank % 8,
    }


def communicator(
    world_ranks: Sequence[int],
    *,
    behind: Mapping[int, int] | None = None,
    missing: Mapping[int, tuple[bool, bool]] | None = None,
    name: str = "0x1",
) -> dict[str, Any]:
    """Return a communicator as RAS writes it; ``missing`` ranks are unresponsive, and dead, or not."""
    behind, missing = behind or {}, missing or {}
    ranks = [
        rank_entry(place, rank, 100 - behind.get(rank, 0))
        for place, rank in enumerate(world_ranks)
        if rank not in missing
    ]
    silent = [
        about(place, rank) | {"status": {"unresponsive": missing[rank][0], "considered_dead": missing[rank][1]}}
        for place, rank in enumerate(world_ranks)
        if rank in missing
    ]
    return {
        "hash": name,
        "secondary_hash": "0x2:0x3",
        "size": len(world_ranks),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(silent),
        "ranks": ranks,
        "missing_ranks": silent,
    }


def answer(*communicators: object) -> bytes:
    document = {
        "nccl_version": "2.28.3",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-28 12:00:00",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.012, "timeouts_count": 0},
    }
    return json.dumps(document, indent=2).encode()


def causes(data: bytes) -> list[tuple[int, str]]:
    return [(each.rank, each.kind) for each in stand_of([read_ras(data, "ras.json")])[1]]


ALL = range(16)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (answer(communicator(ALL)), []),
        (answer(communicator(ALL, behind={5: 1})), [(5, "behind")]),
        (answer(communicator(ALL, missing={9: (True, True)})), [(9, "dead")]),
        (answer(communicator(ALL, missing={9: (True, False)})), [(9, "unresponsive")]),
        (answer(communicator(ALL, missing={9: (False, False)})), []),
        (
            answer(communicator(ALL, missing={9: (True, True), 3: (True, False)}, behind={1: 2})),
            [(9, "dead"), (3, "unresponsive"), (1, "behind")],
        ),
        # Half of the ranks are as far as the others: nobody can say who waits.
        (answer(communicator(ALL, behind=dict.fromkeys(range(8, 16), 1))), []),
    ],
)
def test_ranks_stand_as_an_answer_says(data: bytes, named: list[tuple[int, str]]) -> None:
    assert causes(data) == named


def test_a_rank_of_a_small_group_is_named_by_its_global_number() -> None:
    data = answer(communicator(range(8, 16), behind={12: 3}, name="0x7"), communicator(ALL))
    assert causes(data) == [(12, "behind")]


def test_ranks_behind_those_that_wait_are_not_named() -> None:
    data = answer(communicator(ALL, behind={5: 1}), communicator(range(4, 8), behind={6: 4}, name="0x7"))
    assert causes(data) == [(5, "behind")]


def test_an_answer_alone_names_the_rank(tmp_path: Path) -> None:
    (tmp_path / "ras.json").write_bytes(answer(communicator(ALL, behind={5: 1})))
    verdict = judge_hang(str(tmp_path))
    assert (verdict.culprits, verdict.ranks, len(verdict.victims)) == ([5], 16, 15)
    assert verdict.reason == "Rank 5 has launched 99 AllReduce, fewer than the others; 15 ranks wait."


@pytest.mark.parametrize(("dead", "kind"), [(5, "dead"), (2, "dead")])
def test_beside_a_rank_without_dump_ras_says_what_it_is(dead: int, kind: str, tmp_path: Path) -> None:
    job = Job(8, fault=Fault(kind="killed", ranks=(dead,), step=3))
    job.run()
    job.write(tmp_path, as_json=True, only_active=False)
    (tmp_path / "ras.json").write_bytes(answer(communicator(range(8), missing={dead: (True, True)})))
    verdict = judge_hang(str(tmp_path))
    assert [(each.rank, each.kind) for each in verdict.details] == [(dead, kind)]
    assert verdict.operation


def test_a_cause_that_a_dump_shows_stands_before_counts(tmp_path: Path) -> None:
    job = Job(8, fault=Fault(kind="lock", ranks=(5,), step=3))
    job.run()
    job.write(tmp_path, as_json=True, only_active=False)
    (tmp_path / "ras.json").write_bytes(answer(communicator(range(8), behind={2: 1})))
    assert judge_hang(str(tmp_path)).culprits == [5]


@pytest.mark.parametrize(
    "data", [b'{"communicators": 3}', b'{"communicators": [', b"[]", b'{"communicators": [' + b"[" * 5000]
)
def test_what_is_no_answer_is_refused_with_its_reason(data: bytes) -> None:
    with pytest.raises(RasError, match=r"ras.json"):
        read_ras(data, "ras.json")


def test_odd_parts_are_counted_and_cost_no_neighbour() -> None:
    first = communicator(ALL, behind={5: 1})
    first["ranks"][3] = {"rank": "x"}
    read = read_ras(answer(first, [1], {"ranks": [7]}), "ras.json")
    assert read.odd == 3
    assert [each.rank for each in stand_of([read])[1]] == [5]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rank", "ranks", "missing_ranks", "status", "size", "pid"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=4))
def test_any_json_is_read_or_counted(communicators: list[Any]) -> None:
    evidence = HangFiles()
    evidence.add("ras.json", json.dumps({"communicators": communicators}).encode())
    verdict = evidence.verdict()
    assert len(verdict.culprits) <= verdict.ranks
