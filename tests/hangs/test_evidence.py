"""What a job leaves behind is judged alike in whatever order its files come, and hostile files cost only themselves."""

import gzip
import json
import pickle
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.simulated import KINDS, Fault, Job
from trainguard.formats.hangs.flight_recorder import read_dump
from trainguard.hangs.files import KEPT_OPERATIONS, MOST_BYTES, HangFiles
from trainguard.hangs.verdict import HangVerdict, hang_verdict

SPY = json.dumps([{"thread_name": "MainThread", "frames": [{"filename": "/job/a.py", "line": 7, "name": "load"}]}])


def files_of(folder: Path, kind: str, seed: int, *, stacks: bool = True) -> list[tuple[str, bytes]]:
    """Return the files of a planted hang of 8 ranks: dumps, copies and older ones of some ranks, and a stack."""
    job = Job(8, fault=Fault(kind=kind, ranks=(seed % 8,), step=3))
    job.run()
    job.write(folder, as_json=seed % 2 == 0, only_active=False)
    found = [(each.name, each.read_bytes()) for each in sorted(folder.iterdir())]
    earlier = Job(8, fault=Fault(kind="lock", ranks=(0,), step=1))
    earlier.run()
    before = folder / "before"
    before.mkdir()
    earlier.write(before, as_json=True, only_active=False)
    older = {each.name: each.read_bytes() for each in before.iterdir()}
    found += [(f"before/{name}", older[name]) for name, _ in found[:5]]
    found += [(f"again/{name}.gz", gzip.compress(data)) for name, data in found[:3]]
    return found + ([("stack_1.txt", SPY.encode())] if stacks else [])


def judged(files: list[tuple[str, bytes]]) -> HangVerdict:
    evidence = HangFiles()
    for name, data in files:
        evidence.add(name, data, at=float(len(name)))
    return evidence.verdict()


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_files_does_not_matter(kind: str, tmp_path: Path) -> None:
    files = files_of(tmp_path, kind, len(kind))
    first = judged(files)
    assert first.culprits

    @given(st.permutations(files), st.lists(st.sampled_from(files), max_size=4))
    def check(shuffled: list[tuple[str, bytes]], again: list[tuple[str, bytes]]) -> None:
        assert judged([*shuffled, *again]) == first

    check()


def test_any_part_of_the_files_gives_a_verdict_in_bounds(tmp_path: Path) -> None:
    files = files_of(tmp_path, "lock", 5)

    @given(st.lists(st.sampled_from(files), unique=True))
    def check(some: list[tuple[str, bytes]]) -> None:
        verdict = judged(some)
        assert not {*verdict.culprits} & {*verdict.victims}
        assert {*verdict.culprits, *verdict.victims, *verdict.without_dump} <= set(range(8))

    check()


def test_what_ended_long_ago_changes_no_verdict(tmp_path: Path) -> None:
    job = Job(16, fault=Fault(kind="other_order", ranks=(3,), step=11))
    job.run()
    job.write(tmp_path, as_json=False, only_active=False)
    paths = sorted(tmp_path.iterdir())
    whole = hang_verdict([read_dump(each.read_bytes(), each.name) for each in paths], {}, {})
    assert max(len(read_dump(each.read_bytes(), each.name).operations) for each in paths) < 5 * KEPT_OPERATIONS
    assert judged([(each.name, each.read_bytes()) for each in paths]).culprits == whole.culprits == [3]


def bomb() -> bytes:
    return gzip.compress(b"\0" * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("nccl_trace_rank_1", bomb(), "over 67,108,864 bytes"),
        ("nccl_trace_rank_1.gz", b"\x1f\x8b broken", "decompress"),
        ("nccl_trace_rank_1", b"\x80\x02cos\nsystem\n.", "opcode"),
        ("nccl_trace_rank_1", b"\x80\x02" + b"(" * 100_000, "open containers"),
        ("nccl_trace_rank_1.json", b'{"entries": ' + b"[" * 100_000, "recursion"),
        ("stack.txt", SPY.encode(), "no known rank"),
        ("stack_process_3.txt", SPY.encode(), "no known rank, at /job/a.py:7 load"),
        ("ras.json", b'{"communicators": 1}', "communicators"),
    ],
)
def test_a_hostile_file_is_named_and_costs_no_neighbour(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    files = files_of(tmp_path, "lock", 5, stacks=False)
    verdict = judged([("x/" + name, data), *files])
    assert verdict.culprits == [5]
    assert len(verdict.unread) == 1
    assert reason in next(iter(verdict.unread.values())).lower()


def large_dump(rank: int, world: int, operations: int) -> bytes:
    """Return a dump as the recorder's full buffer makes it; rank 700 has not entered the last operation."""
    ended = operations - 1
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number + 1,
            "p2p_seq_id": 0,
            "is_p2p": False,
            "profiling_name": "nccl:all_reduce",
            "state": "completed" if number < ended else "started",
            "retired": number < ended,
            "input_sizes": [[64]],
            "output_sizes": [[64]],
            "input_dtypes": ["Float"],
            "time_created_ns": number,
            "frames": [],
        }
        for number in range(ended if rank == 700 else operations)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
    return pickle.dumps(dump, protocol=2)


def test_1024_ranks_are_judged_in_bounded_processor_time() -> None:
    dumps = [(f"nccl_trace_rank_{rank}", large_dump(rank, 1024, 12)) for rank in range(1024)]
    random.Random(1).shuffle(dumps)
    begin = time.process_time()
    verdict = judged(dumps)
    assert (verdict.culprits, len(verdict.victims)) == ([700], 1023)
    assert time.process_time() - begin < 15.0
