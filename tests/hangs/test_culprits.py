"""The ranks that hold up a job are named, and no innocent one before them."""

import json
import lzma
from pathlib import Path

import pytest

from tests.hangs.simulated import KINDS, Fault, Job
from trainguard.local.hangs import judge_hang

DATA = Path("tests/data/flight_recorder")


def planted(kind: str, seed: int) -> Job:
    world = (4, 8, 16)[seed % 3]
    rank = (seed * 7 + len(kind)) % world
    ranks = (rank, (rank + 3) % world) if seed % 4 == 3 and world > 4 else (rank,)
    return Job(world, pipeline=seed % 2 == 1, fault=Fault(kind=kind, ranks=ranks, step=2 + seed % 5))


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("kind", KINDS)
def test_planted_ranks_are_named_first(kind: str, seed: int, tmp_path: Path) -> None:
    job = planted(kind, seed)
    job.run()
    job.write(tmp_path, as_json=seed % 2 == 0, only_active=seed % 3 == 0)
    verdict = judge_hang(str(tmp_path))
    assert job.fault is not None
    assert set(verdict.culprits) == set(job.fault.ranks)
    assert set(verdict.victims) <= set(range(job.world)) - set(job.fault.ranks)


@pytest.mark.parametrize(("name", "culprits"), [("gpu_error", [12, 14]), ("lock_gil", [9, 14])])
def test_real_hangs_are_named(name: str, culprits: list[int], tmp_path: Path) -> None:
    for rank, dump in json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes())).items():
        (tmp_path / f"_dump_{rank}").write_text(json.dumps(dump))
    verdict = judge_hang(str(tmp_path))
    assert verdict.culprits == culprits
    assert verdict.victims == [rank for rank in range(16) if rank not in culprits]
    assert verdict.operation == "all_to_all"


@pytest.mark.parametrize("seed", range(6))
def test_a_broken_link_names_no_rank(seed: int, tmp_path: Path) -> None:
    job = Job(8, broken_link=10 + seed)
    job.run()
    job.write(tmp_path, as_json=True, only_active=seed % 2 == 0)
    verdict = judge_hang(str(tmp_path))
    assert verdict.culprits == []
    assert (verdict.operation, verdict.group) == ("all_reduce", "0")


def test_a_job_that_ended_names_no_rank(tmp_path: Path) -> None:
    job = Job(8)
    job.run()
    job.write(tmp_path, as_json=False, only_active=False)
    verdict = judge_hang(str(tmp_path))
    assert (verdict.culprits, verdict.victims, verdict.operation) == ([], [], "")
