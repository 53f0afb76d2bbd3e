"""What the product says about memory snapshots is true; and the checker finds what is not."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.claims.check import table
from tests.claims.product import report_of
from tests.claims.snapshot_files import FAULTS, drawn_snapshots, write_snapshots_job
from tests.claims.snapshots import snapshot_claims
from tests.claims.sources import check_snapshots

SEEDS = tuple(range(8))
WRONGED = 27


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_of_snapshots_is_true(seed: int) -> None:
    found = check_snapshots(seed)
    assert found.claims >= 4
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


def test_a_few_seeds_have_each_fault_and_a_damaged_file() -> None:
    jobs = [drawn_snapshots(seed) for seed in SEEDS]
    assert {fault for job in jobs for fault in job.faults} == set(FAULTS)
    assert {job.damaged >= 0 for job in jobs} == {False, True}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a job whose snapshots hold a failed allocation, one in free parts and a leak, and its true report."""
    folder = write_snapshots_job(WRONGED, tmp_path_factory.mktemp("claims"))
    return folder, report_of(folder)


@pytest.mark.parametrize(
    ("rule", "name", "key", "value"),
    [
        ("GpuMemoryRanOut", "allocated", "value", 1),
        ("GpuMemoryRanOut", "largest_kind", "value", "workspace"),
        ("GpuMemoryRanOut", "place", "value", "/app/model.py:1 other"),
        ("GpuMemoryRanOut", "rank", "value", "rank 9"),
        ("GpuMemoryFragmented", "unused", "value", 1),
        ("GpuMemoryFragmented", "unused", "device", "gpu1"),
        ("GpuMemoryFragmented", "evidence", "series", "1 bytes in the largest free block"),
        ("GpuMemoryGrows", "growth_per_step", "value", 1),
        ("GpuMemoryGrows", "steps", "value", 5),
    ],
)
def test_a_wrong_fact_of_a_snapshot_is_found(
    job: tuple[Path, dict[str, Any]], rule: str, name: str, key: str, value: Any
) -> None:
    folder, report = job[0], copy.deepcopy(job[1])
    finding = next(each for each in report["findings"] if each["rule"] == f"kernels/{rule}")
    next(each for each in finding["facts"] if each["name"] == name)[key] = value
    assert any(rule in str(claim) for claim in snapshot_claims(folder, report) if claim is not None)


def test_a_missing_finding_of_a_snapshot_is_found(job: tuple[Path, dict[str, Any]]) -> None:
    folder, report = job[0], copy.deepcopy(job[1])
    next(each for each in report["rules"] if each["rule"] == "kernels/GpuMemoryGrows")["status"] = "OK"
    assert any("GpuMemoryGrows" in str(claim) for claim in snapshot_claims(folder, report) if claim is not None)
