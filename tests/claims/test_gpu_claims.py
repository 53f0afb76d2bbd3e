"""Wrong facts of what GPUs do are found: each is moved by little, beyond its rounding."""

import copy
from typing import Any

import pytest

from tests.claims.check import checked, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.product import report_of
from tests.claims.random_jobs import drawn, write_random_job

Job = tuple[Raw, dict[str, Any]]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Job]:
    """Return jobs of random seeds: GPUs that stay behind and are low, a batch that is too small."""
    folders = {seed: write_random_job(drawn(seed), tmp_path_factory.mktemp("gpus")) for seed in (5, 7)}
    return {seed: (raw_of(folder), report_of(folder)) for seed, folder in folders.items()}


def untrue(raw: Raw, report: dict[str, Any]) -> list[str]:
    return [str(claim) for _, claim in checked("job", raw, report).untrue]


@pytest.mark.parametrize("seed", [5, 7])
def test_what_is_said_of_gpus_is_true(jobs: dict[int, Job], seed: int) -> None:
    assert untrue(*jobs[seed]) == []


@pytest.mark.parametrize(
    ("seed", "rule", "name", "factor"),
    [
        (5, "LowGPUUtilization", "low_points", 1.02),
        (5, "LowGPUUtilization", "low_time", 1.02),
        (5, "LowGPUUtilization", "gpus_affected", 2.0),
        (5, "LoadBalancing", "busiest_utilization_at_work", 1.02),
        (7, "BatchSize", "window", 1.05),
        (7, "BatchSize", "points_low", 1.02),
        (7, "BatchSize", "low_time", 1.02),
        (7, "BatchSize", "unused_share", 1.02),
    ],
)
def test_a_wrong_fact_of_gpus_is_found(jobs: dict[int, Job], seed: int, rule: str, name: str, factor: float) -> None:
    raw, report = jobs[seed][0], copy.deepcopy(jobs[seed][1])
    finding = next(each for each in report["findings"] if each["rule"] == rule)
    next(each for each in finding["facts"] if each["name"] == name)["value"] *= factor
    assert any(each.startswith(f"{rule}/") and f" {name} = " in each for each in wrong_facts(raw, report, rule))


@pytest.mark.parametrize(("seed", "rule", "name"), [(5, "LowGPUUtilization", "low_time"), (7, "BatchSize", "low_time")])
def test_another_onset_is_found(jobs: dict[int, Job], seed: int, rule: str, name: str) -> None:
    raw, report = jobs[seed][0], copy.deepcopy(jobs[seed][1])
    finding = next(each for each in report["findings"] if each["rule"] == rule)
    fact = next(each for each in finding["facts"] if each["name"] == name)
    fact["from"] += 60.0
    fact["value"] -= 60.0
    assert any(f" {name} = " in each for each in wrong_facts(raw, report, rule))
