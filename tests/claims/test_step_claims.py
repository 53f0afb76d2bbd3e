"""What is said about steps, loaders, phases and ranks is true; and the checker finds what is nearly so."""

import copy
import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.claims.check import Checked, checked, table, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.product import report_of
from tests.claims.random_jobs import START, hour_of
from tests.claims.random_steps import write_steps_job

Fact = dict[str, Any]
# Jobs with slow steps: one has a straggler, one waits for data and cores, of one all ranks of a node are slow.
STRAGGLER, WAITS, SLOW_NODE = 1, 20, 903

# Its loaders are too few from within the first block of ten minutes on, which begins before the job.
EARLY_LOADERS = 44


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what gives what was recorded of a job, and its true report, by its seed."""

    @cache
    def job(seed: int) -> tuple[Raw, dict[str, Any]]:
        folder = write_steps_job(seed, Path(mkdtemp(dir=tmp_path_factory.getbasetemp())))
        return raw_of(folder), report_of(folder)

    return job


@pytest.mark.parametrize("seed", [STRAGGLER, WAITS, EARLY_LOADERS, SLOW_NODE])
def test_what_is_said_of_steps_is_true(jobs: Any, seed: int) -> None:
    found: Checked = checked("steps", *jobs(seed))
    assert found.claims > 50
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Raw, dict[str, Any]]:
    """Return a job whose ranks tell how long they wait for each other, and its true report."""
    folder = write_steps_job(STRAGGLER, tmp_path_factory.mktemp("waits"), tells_waits=True)
    return raw_of(folder), report_of(folder)


def test_what_is_said_of_ranks_that_tell_their_waits_is_true(waits: tuple[Raw, dict[str, Any]]) -> None:
    found = checked("steps", *waits)
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)
    assert {"late_in", "lost_of_step", "lost_gpu_time"} <= {each["name"] for each in _straggler(waits[1])["facts"]}


@pytest.mark.parametrize(
    ("name", "more"),
    [("late_in", "optimizer"), ("lost_of_step", 0.2), ("lost_gpu_time", 20.0), ("own_work", 1e-3), ("mean_step", 1e-3)],
)
def test_what_is_nearly_true_of_waiting_ranks_is_found(
    waits: tuple[Raw, dict[str, Any]], name: str, more: float | str
) -> None:
    raw, report = waits[0], copy.deepcopy(waits[1])
    fact = next(each for each in _straggler(report)["facts"] if each["name"] == name)
    fact["value"] = more if isinstance(more, str) else fact["value"] + more
    assert any(name in each for each in wrong_facts(raw, report, "Straggler"))


def _straggler(report: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in report["findings"] if each["rule"] == "Straggler")


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
        (SLOW_NODE, "Straggler", "slow_node", "algo-1"),
    ],
)
def test_what_is_nearly_true_of_steps_is_found(jobs: Any, seed: int, rule: str, name: str, more: float | str) -> None:
    raw, report = jobs(seed)
    report = copy.deepcopy(report)
    finding = next(each for each in report["findings"] if each["rule"] == rule)
    fact = next(each for each in finding["facts"] if each["name"] == name)
    fact["value"] = more if isinstance(more, str) else fact["value"] + more
    untrue = wrong_facts(raw, report, rule)
    assert any(rule in each and name in each for each in untrue), untrue


# More processes than StepOutlier judges on a node; their names come behind those of the job.
CROWD, STEPS, PHASE = 131, 220, "Step:ModeKeys.TRAIN"


def test_processes_beyond_those_judged_are_counted(tmp_path: Path) -> None:
    folder = write_steps_job(STRAGGLER, tmp_path)
    for number in range(CROWD):
        _write_process(folder, f"s{number:03d}")
    raw, report = raw_of(folder), report_of(folder)
    found = checked("steps", raw, report)
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)
    (left_out,) = _facts(report, "series_not_judged")
    left_out["value"] += 1
    assert any("series_not_judged" in each for each in wrong_facts(raw, report, "StepOutlier"))


def _write_process(folder: Path, process: str) -> None:
    """Write the steps of one more process, all of the same length."""
    origin = round(START * 1e6)
    steps = [
        {"name": PHASE, "ph": "X", "pid": 1, "ts": round(1e6 * (100 + 2 * number)), "dur": 1_000_000, "args": {}}
        for number in range(STEPS)
    ]
    heads = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": origin}},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": PHASE}},
    ]
    end = origin + 1_000_000 * (100 + 2 * (STEPS - 1) + 1)
    place = folder / "profiler-output" / "framework" / "pevents" / hour_of(end / 1e6)
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{end}_{process}-algo-1_pythontimeline.json").write_text(json.dumps([*heads, *steps]))


def _facts(report: dict[str, Any], name: str) -> list[Fact]:
    return [fact for finding in report["findings"] for fact in finding["facts"] if fact["name"] == name]
