"""Dumps of the flight recorder in all their forms, and files that are none."""

import json
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.simulated import Fault, Job
from trainguard.core.errors import RemedyError
from trainguard.formats.hangs.flight_recorder import DumpError, rank_of_name, read_dump
from trainguard.local.hangs import judge_hang

ENTRY = {
    "record_id": 3,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "collective_seq_id": 4,
    "is_p2p": False,
    "profiling_name": "gloo:all_reduce",
    "state": "scheduled",
    "retired": False,
    "input_sizes": [[4]],
    "output_sizes": [[4]],
    "input_dtypes": ["Float"],
}


def dump(**changed: object) -> bytes:
    return json.dumps({"version": "2.10", "pg_config": {}, "entries": [{**ENTRY, **changed}]}).encode()


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_12", 12), ("_dump_0", 0), ("a/fr-7.json", 7), ("trace.pickle", None), ("x9999999999", None)],
)
def test_the_rank_is_at_the_end_of_the_name(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


@pytest.mark.parametrize(
    ("state", "retired", "is_over", "has_ended"),
    [
        ("scheduled", False, False, False),
        ("started", False, False, False),
        ("completed", True, True, True),
        ("scheduled", True, True, False),
    ],
)
def test_what_is_given_up_has_not_ended(state: str, retired: bool, is_over: bool, has_ended: bool) -> None:
    (found,) = read_dump(dump(state=state, retired=retired), "rank_1").operations
    assert (found.is_over, found.has_ended) == (is_over, has_ended)


def test_numbers_before_two_counters_are_read() -> None:
    old = {key: value for key, value in ENTRY.items() if key not in {"collective_seq_id", "is_p2p", "record_id"}}
    data = pickle.dumps({"version": "1.5", "pg_config": {}, "entries": [{**old, "id": 9, "seq_id": 8}]}, protocol=2)
    (found,) = read_dump(data, "rank_1").operations
    assert (found.order, found.sequence, found.name) == (9, 8, "all_reduce")


@pytest.mark.parametrize(
    "changed", [{"process_group": "0"}, {"record_id": None}, {"collective_seq_id": True}, {"profiling_name": 4}]
)
def test_entries_without_a_form_are_counted(changed: dict[str, object]) -> None:
    found = read_dump(dump(**changed), "rank_1")
    assert (found.operations, found.odd) == ((), 1)


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b"{", b"\x80\x02N.", b"\x80\x04c__main__\nx\n.", b'{"entries": 3}', b""]
)
def test_what_is_no_dump_is_refused(data: bytes) -> None:
    with pytest.raises(DumpError, match="rank_1"):
        read_dump(data, "rank_1")


@given(data=st.binary(max_size=300), cut=st.integers(0, 2_000), at=st.integers(0, 2_000), byte=st.integers(0, 255))
def test_any_bytes_are_read_or_refused(data: bytes, cut: int, at: int, byte: int) -> None:
    whole = bytearray(pickle.dumps({"entries": [ENTRY] * 3, "pg_config": {}, "pg_status": {"0": {}}}, protocol=2))
    whole[at % len(whole)] = byte
    for each in (data, bytes(whole), bytes(whole[:cut])):
        with suppress(DumpError):
            assert read_dump(each, "rank_1").rank == 1


def test_a_damaged_dump_costs_only_itself(tmp_path: Path) -> None:
    job = Job(8, fault=Fault(kind="lock", ranks=(2,), step=3))
    job.run()
    job.write(tmp_path, as_json=False, only_active=False)
    damaged = tmp_path / "nccl_trace_rank_5"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    verdict = judge_hang(str(tmp_path))
    assert verdict.culprits == [2]
    assert list(verdict.unread) == ["nccl_trace_rank_5"]
    assert verdict.without_dump == [5]


def test_a_folder_without_dumps_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("epoch 1")
    with pytest.raises(RemedyError, match="nccl_trace_rank_12"):
        judge_hang(str(tmp_path))
