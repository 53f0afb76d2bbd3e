"""What is said about steps, loaders, phases and ranks is true; and the checker finds what is nearly so."""

import copy
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.claims.check import Checked, checked, table
from tests.claims.product import report_of
from tests.claims.random_steps import write_steps_job

Fact = dict[str, Any]
STRAGGLER, WAITS = 1, 20
"""Jobs with slow steps, of which one has a straggler, and one waits for data and cores."""

EARLY_LOADERS = 44
"""Its loaders are too few from within the first block of ten minutes on, which begins before the job."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what gives a job's folder and its true report, by its seed."""

    @cache
    def job(seed: int) -> tuple[Path, dict[str, Any]]:
        folder = write_steps_job(seed, Path(mkdtemp(dir=tmp_path_factory.getbasetemp())))
        return folder, report_of(folder)

    return job


@pytest.mark.parametrize("seed", [STRAGGLER, WAITS, EARLY_LOADERS])
def test_what_is_said_of_steps_is_true(jobs: Any, seed: int) -> None:
    found: Checked = checked("steps", *jobs(seed))
    assert found.claims > 50
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


@pytest.mark.parametrize(
    ("seed", "rule", "name", "more"),
    [
        (STRAGGLER, "StepOutlier", "median_step", 1e-5),
        (STRAGGLER, "StepOutlier", "outlier_above", 1e-5),
        (STRAGGLER, "StepOutlier", "slow_time_share", 0.002),
        (STRAGGLER, "StepOutlier", "event_in_slow_steps", 0.002),
        (STRAGGLER, "StepOutlier", "event_in_other_steps", 0.002),
        (STRAGGLER, "StepOutlier", "process", "algo-1-rank0 EVAL"),
        (STRAGGLER, "StepOutlier", "grown_event", "Optimizer"),
        (WAITS, "Dataloader", "waiting_share", 0.002),
        (WAITS, "Dataloader", "fetch_time", 1e-5),
        (WAITS, "CPUBottleneck", "phase_time_with", 0.2),
        (WAITS, "CPUBottleneck", "phase_time_without", 0.2),
        (WAITS, "CPUBottleneck", "grown_phase", "Optimizer"),
        (STRAGGLER, "Straggler", "own_work", 1e-5),
        (STRAGGLER, "Straggler", "own_work_of_peers", 1e-5),
        (STRAGGLER, "Straggler", "mean_step", 1e-5),
        (STRAGGLER, "Straggler", "ranks_affected", 1.0),
        (STRAGGLER, "Straggler", "rank", "algo-1-rank9"),
        (STRAGGLER, "Straggler", "longer_by_waits", -1.0),
    ],
)
def test_what_is_nearly_true_of_steps_is_found(jobs: Any, seed: int, rule: str, name: str, more: float | str) -> None:
    folder, report = jobs(seed)
    report = copy.deepcopy(report)
    finding = next(each for each in report["findings"] if each["rule"] == rule)
    fact = next(each for each in finding["facts"] if each["name"] == name)
    fact["value"] = more if isinstance(more, str) else fact["value"] + more
    untrue = [str(claim) for _, claim in checked("steps", folder, report).untrue]
    assert any(rule in each and name in each for each in untrue), untrue
