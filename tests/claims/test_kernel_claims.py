"""What the product says about kernel traces is true; and the checker finds what is not."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.claims.check import table
from tests.claims.kernel_memory import FAULTS as MEMORY_FAULTS
from tests.claims.kernels import kernel_claims
from tests.claims.product import report_of
from tests.claims.random_kernels import FORMS, drawn_kernels, write_kernels_job
from tests.claims.sources import check_kernels

# Kernel traces of each form, of one and of several ranks and GPUs, and with each fault of memory.
KERNEL_SEEDS = (13, 19, 22, 24, 30, 32, 33, 35, 37, 39, 48, 53, 72)

# Traces with operators: products of each reason, attention in its math form, chains, and FP64.
OPERATOR_SEEDS = (1001, 1006, 1010, 1015, 1020, 1028, 1029, 1033)

# Images that are turned, experts one by one, an exchange, experts that are used in part, and with few rows, copies.
FORM_SEEDS = (2002, 2004, 2005, 2008, 2030, 3004)


@pytest.mark.parametrize("seed", [*KERNEL_SEEDS, *OPERATOR_SEEDS, *FORM_SEEDS])
def test_what_is_said_of_a_kernel_trace_is_true(seed: int) -> None:
    found = check_kernels(seed)
    assert found.claims > 30
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


def test_a_few_seeds_have_traces_of_each_form_and_shape() -> None:
    jobs = [drawn_kernels(seed) for seed in KERNEL_SEEDS]
    shapes = {(job.form, job.ranks > 1, job.gpus > 1) for job in jobs}
    assert {form for form, *_ in shapes} == set(FORMS)
    assert {shape[1:] for shape in shapes} == {(several, many) for several in (False, True) for many in (False, True)}
    assert {job.parallel for job in jobs} == {"", "data", "gloo"}
    assert {job.memory for job in jobs} == set(MEMORY_FAULTS) - {"held"}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, dict[str, Any]]]:
    """Return jobs with kernel traces by seed, and their true reports: of ranks, and of several GPUs."""
    place = tmp_path_factory.mktemp("claims")
    seeds = (9, 22, 37, 48, 72, 1001, 1015, 1020, 1029, 1033, *FORM_SEEDS)
    folders = {seed: write_kernels_job(seed, place) for seed in seeds}
    return {seed: (folder, report_of(folder)) for seed, folder in folders.items()}


def untrue_of_kernels(folder: Path, report: dict[str, Any]) -> list[str]:
    return [str(claim) for claim in kernel_claims(folder, report) if claim is not None]


@pytest.mark.parametrize(
    ("seed", "rule", "name", "more"),
    [
        (22, "GpuBusyLow", "busy_share", 0.0002),
        (22, "GpuBusyLow", "least_busy_share", 0.0002),
        (22, "LaunchBound", "host_share", 0.0002),
        (22, "LaunchBound", "queued_launches", 0.01),
        (22, "LaunchBound", "gain_share", 0.0002),
        (22, "SyncStall", "gain_per_step", 10),
        (22, "GpuGap", "gaps", 1),
        (22, "SyncStall", "idle_share", -0.0002),
        (22, "MemcpyBound", "evidence", 1),
        (22, "WrongParallel", "most_busy_share", 0.0002),
        (22, "GpuMemoryFull", "reserved_share", 0.0002),
        (9, "GpuMemoryHeld", "held_share", 0.0002),
        (9, "GpuMemoryHeld", "held", 1),
        (48, "GpuMemoryGrows", "growth_per_step", 1),
        (48, "GpuMemoryGrows", "steps_left", 1),
        (72, "GpuMemoryFragmented", "unused_share", 0.0002),
        (72, "GpuMemoryFragmented", "reserved_share", 0.0002),
        (9, "LateRank", "lateness_share", 0.0002),
        (9, "LateRank", "last_steps", 1),
        (9, "ExposedCommunication", "gain_share", 0.0002),
        (9, "ExposedCommunication", "ranks_affected", -1),
        (37, "SlowRank", "compute_ratio", 0.001),
        (37, "SlowRank", "like_ranks", 1),
        (1001, "LowPrecisionUnused", "fp64_share", 0.0002),
        (1015, "SlowOperators", "reached_share", 0.0002),
        (1015, "SlowOperators", "tiles", 1),
        (1020, "SlowOperators", "evidence", 1),
        (1020, "SlowOperators", "math_share", 0.0002),
        (1020, "SlowOperators", "gain_share", 0.0002),
        (1029, "SlowOperators", "saved_share", 0.0002),
        (2002, "SlowOperators", "layout_share", 0.0002),
        (2004, "SlowOperators", "groups", 1),
        (2004, "SlowOperators", "mean_rows", 1),
        (2005, "LateRank", "exchange_ratio", 0.01),
        (2008, "SlowOperators", "most_used", -1),
        (3004, "SlowOperators", "stride", 1),
        (2030, "SlowOperators", "rows", 1),
        (2030, "SlowOperators", "compute_share", 0.0002),
    ],
)
def test_a_wrong_fact_of_a_kernel_trace_is_found(
    kernels: dict[int, tuple[Path, dict[str, Any]]], seed: int, rule: str, name: str, more: float
) -> None:
    folder, report = kernels[seed][0], copy.deepcopy(kernels[seed][1])
    finding = next(each for each in report["findings"] if each["rule"] == f"kernels/{rule}")
    next(each for each in finding["facts"] if each["name"] == name)["value"] += more
    assert any(rule in each and name in each for each in untrue_of_kernels(folder, report))


@pytest.mark.parametrize(
    ("seed", "rule", "name", "key", "value"),
    [
        (9, "LateRank", "late_rank", "value", "Rank 7"),
        (9, "SyncStall", "rank", "value", "rank 7"),
        (22, "GpuMemoryFull", "reserved_share", "device", "gpu9"),
        (22, "GpuBusyLow", "busy_share", "threshold", 0.6),
        (22, "LaunchBound", "evidence", "series", "GPU idle, host mostly in lunch"),
        (1029, "SlowOperators", "operator", "value", "aten::tanh"),
        (1033, "SlowOperators", "faster_shape", "value", "4096 x 560 x 1088"),
        (1033, "SlowOperators", "reached_share", "threshold", 0.5),
    ],
)
def test_a_wrong_name_of_a_kernel_trace_is_found(
    kernels: dict[int, tuple[Path, dict[str, Any]]], seed: int, rule: str, name: str, key: str, value: Any
) -> None:
    folder, report = kernels[seed][0], copy.deepcopy(kernels[seed][1])
    finding = next(each for each in report["findings"] if each["rule"] == f"kernels/{rule}")
    next(each for each in finding["facts"] if each["name"] == name)[key] = value
    assert any(rule in each for each in untrue_of_kernels(folder, report))


@pytest.mark.parametrize("seed", [5, 9, 35])
def test_the_rank_that_was_made_late_is_named(tmp_path: Path, seed: int) -> None:
    job = drawn_kernels(seed)
    findings = {each["rule"]: each for each in report_of(write_kernels_job(seed, tmp_path))["findings"]}
    facts = {fact["name"]: fact["value"] for fact in findings["kernels/LateRank"]["facts"]}
    assert facts["late_rank"] == f"Rank {job.late}"
