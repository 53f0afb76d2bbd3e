"""What the product says about jobs is true; and the checker finds what is not."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.claims import held
from tests.claims.check import Checked, checked, table
from tests.claims.context import Range, Raw, raw_of
from tests.claims.facts import RULES
from tests.claims.product import report_of
from tests.claims.random_jobs import drawn, write_random_job
from tests.claims.random_tensors import tensor_job, write_tensor_job
from tests.claims.sources import (
    RANDOM_JOBS,
    check_random,
    check_real,
    check_tensors,
    check_training,
    over_all_cores,
    sources,
)
from tests.claims.tensors import tensor_claims
from tests.claims.training import training_claims, write_random_run

# Random jobs of a few minutes: with findings, with steps, of several nodes, with gaps.
A_FEW = (3, 8, 11, 13, 878)

SHORT_RUN = "r06"
# Random trainings.
STANDS, BLOWS_UP = 1, 3

# A run of saved tensors of some of which only reductions are saved.
LEAVES_OUT = 2


@pytest.mark.parametrize("seed", A_FEW)
def test_what_is_said_of_a_random_job_is_true(seed: int) -> None:
    found = check_random(seed)
    assert found.claims > 50
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


def test_what_is_said_of_a_real_run_is_true() -> None:
    found = check_real(SHORT_RUN)
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_what_is_said_of_a_training_is_true(seed: int) -> None:
    found = check_training(seed)
    assert found.claims > 5
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, dict[str, Any]]]:
    """Return runs of a loss that stands and of one that blows up, and what is said about them."""
    folders = {seed: write_random_run(seed, tmp_path_factory.mktemp("claims")) for seed in (STANDS, BLOWS_UP)}
    return {seed: (folder, report_of(folder)) for seed, folder in folders.items()}


@pytest.mark.parametrize(
    ("seed", "name", "more"),
    [
        (STANDS, "step", -10),
        (STANDS, "loss_first", 0.01),
        (STANDS, "loss_last", 0.0001),
        (STANDS, "loss_last_step", 1),
        (STANDS, "change", 0.01),
        (BLOWS_UP, "risen_after_step", 10),
        (BLOWS_UP, "loss_least_since", 0.001),
        (BLOWS_UP, "loss_last", 0.001),
    ],
)
def test_a_wrong_fact_of_a_training_is_found(
    trainings: dict[int, tuple[Path, dict[str, Any]]], seed: int, name: str, more: float
) -> None:
    folder, report = trainings[seed][0], copy.deepcopy(trainings[seed][1])
    facts = next(each["facts"] for each in report["findings"] if any(fact["name"] == name for fact in each["facts"]))
    next(fact for fact in facts if fact["name"] == name)["value"] += more
    assert any(f"{name} = " in str(claim) for claim in training_claims(folder, report) if claim is not None)


@pytest.mark.parametrize("seed", [2, 4, 10, 13])
def test_what_is_said_of_saved_tensors_is_true(seed: int) -> None:
    found = check_tensors(seed)
    assert found.claims > 50
    assert not found.untrue, table(found)
    assert not found.unknown, table(found)


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a run of saved tensors of which many rules fire, and its true report."""
    run = tensor_job(1)
    folder = write_tensor_job(run, tmp_path_factory.mktemp("claims"))
    return folder, report_of(folder, parameters=run.parameters)


def untrue_of_tensors(folder: Path, report: dict[str, Any]) -> list[str]:
    return [str(claim) for claim in tensor_claims(folder, report) if claim is not None]


@pytest.mark.parametrize(
    ("rule", "name", "more"),
    [
        ("DeadRelu", "dead_nodes", 0.01),
        ("TensorVariance", "variance", 0.1),
        ("UnchangedTensor", "same_steps", 1),
        ("Confusion", "predicted_samples", 1),
        ("TreeDepth", "tree_depth", -1),
        ("LossNotDecreasing", "compared_step", -1),
        ("FeatureImportanceOverweight", "importance_share", 0.001),
        ("PoorWeightInitialization", "variance_ratio", 0.1),
    ],
)
def test_a_wrong_fact_of_tensors_is_found(
    tensors: tuple[Path, dict[str, Any]], rule: str, name: str, more: float
) -> None:
    report = copy.deepcopy(tensors[1])
    finding = next(each for each in report["findings"] if each["rule"] == f"training/{rule}")
    next(each for each in finding["facts"] if each["name"] == name)["value"] += more
    assert any(rule in each and name in each for each in untrue_of_tensors(tensors[0], report))


@pytest.mark.parametrize(("name", "other"), [("unusable", 13), ("unusable_why", "tensor gradient/fc0 at step 1: lost")])
def test_a_wrong_note_on_tensors_left_out_is_found(tmp_path: Path, name: str, other: Any) -> None:
    run = tensor_job(LEAVES_OUT)
    folder = write_tensor_job(run, tmp_path)
    report = report_of(folder, parameters=run.parameters)
    fact = next(fact for each in report["findings"] for fact in each["facts"] if fact["name"] == name)
    fact["value"] = other
    assert any(f"{name} = {other}" in each for each in untrue_of_tensors(folder, report))


def test_a_rule_that_is_silent_is_found(tensors: tuple[Path, dict[str, Any]]) -> None:
    folder, report = tensors[0], copy.deepcopy(tensors[1])
    report["findings"] = [each for each in report["findings"] if each["rule"] != "training/DeadRelu"]
    assert any("DeadRelu: no finding" in each for each in untrue_of_tensors(folder, report))


@pytest.mark.verdicts
@pytest.mark.parametrize("source", ["real", "recordings", "random", "steps", "training", "tensors", "kernels"])
def test_what_is_said_of_jobs_is_true(source: str) -> None:
    check, jobs = sources(RANDOM_JOBS)[source]
    found = Checked()
    for each in over_all_cores(check, jobs):
        found.add(each)
    assert found.jobs == len(jobs)
    assert len(found.untrue) <= held.UNTRUE[source], table(found)
    assert sum(found.unknown.values()) <= held.UNKNOWN[source], table(found)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Raw, dict[str, Any]]:
    """Return a job with findings, and its true report."""
    folder = write_random_job(drawn(8), tmp_path_factory.mktemp("claims"))
    return raw_of(folder), report_of(folder)


def untrue(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> list[str]:
    return [str(claim) for _, claim in checked("job", job[0], report).untrue]


def finding_of(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["findings"] if each["rule"] == "CPUBottleneck")
    return found


def fact_of(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(fact for fact in finding_of(report)["facts"] if fact["name"] == name)
    return found


@pytest.fixture
def report(job: tuple[Raw, dict[str, Any]]) -> dict[str, Any]:
    return copy.deepcopy(job[1])


def test_a_true_report_has_nothing_untrue(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    assert untrue(job, report) == []


def test_a_wrong_share_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    fact_of(report, "share_of_samples")["value"] += 0.002
    assert any("share_of_samples" in each for each in untrue(job, report))


def test_one_sample_more_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    fact_of(report, "samples")["value"] += 1
    assert any("samples = " in each for each in untrue(job, report))


@pytest.mark.parametrize(("end", "seconds"), [("from", -1.0), ("to", 3.0)])
def test_a_time_beyond_the_job_is_found(
    job: tuple[Raw, dict[str, Any]], report: dict[str, Any], end: str, seconds: float
) -> None:
    began, ended = 1_780_272_017.0, report["job"]["duration_s"]
    fact_of(report, "samples")[end] = (began if end == "from" else began + ended) + seconds
    assert any("is not in the job" in each for each in untrue(job, report))


def test_an_episode_beyond_the_job_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    finding_of(report)["episodes"][0]["start"] = "2026-06-01T00:00:00.000Z"
    assert any("start of an episode" in each for each in untrue(job, report))


def test_a_number_that_is_no_fact_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    finding_of(report)["reason"] += " That was 17 % of it."
    assert any("17 %: no fact is this number" in each for each in untrue(job, report))


def test_a_number_of_another_unit_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    points = fact_of(report, "samples")["value"]
    finding_of(report)["reason"] += f" That took {points} min."
    assert any(f"{points} min: no fact" in each for each in untrue(job, report))


def test_a_clock_time_that_is_no_fact_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    finding_of(report)["reason"] += " It began at 2026-06-01 03:00 UTC."
    assert any("2026-06-01 03:00: no fact has this time" in each for each in untrue(job, report))


def test_a_fact_that_nobody_knows_is_untrue(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    finding_of(report)["facts"].append({"name": "moon_phase", "value": 0.5, "unit": "share"})
    assert untrue(job, report) == ["CPUBottleneck/waits: moon_phase: nothing recomputes it"]


@pytest.mark.parametrize("word", ["only", "all", "first", "least busy", "every"])
def test_a_superlative_that_nothing_checks_is_counted(
    job: tuple[Raw, dict[str, Any]], report: dict[str, Any], word: str
) -> None:
    finding_of(report)["reason"] += f" This GPU was the {word} one."
    assert sum(checked("job", job[0], report).unknown.values()) == 1


def test_gpus_that_are_not_the_least_busy_are_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    finding = finding_of(report)
    where = {name: finding["facts"][0][name] for name in ("node", "from", "to")}
    finding["facts"].append({"name": "mean_utilization", "value": 0.0, "unit": "%", "device": "gpu99", **where})
    finding["reason"] += " The least busy GPU did little."
    assert any("The least busy GPU" in each for each in untrue(job, report))


def test_a_ledger_that_does_not_sum_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    report["ledger_by_node"][0]["ledger"][-1]["gpu_seconds"] += 1.0
    assert any("GPU seconds" in each for each in untrue(job, report))


def test_compute_that_is_not_the_utilization_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    node = report["ledger_by_node"][0]
    rows = {entry["bucket"]: entry for entry in node["ledger"]}
    moved = 0.01 * node["gpu_seconds"]
    rows["compute"]["gpu_seconds"] += moved
    rows["idle"]["gpu_seconds"] -= moved
    assert any("of compute, and the utilization is" in each for each in untrue(job, report))


def test_a_verdict_with_another_share_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    report["verdict"]["cost"] = "Of the paid time 1.5 % was no work: idle 1.2 %; unknown."
    assert sum("verdict, cost" in each for each in untrue(job, report)) == 2


def test_a_job_called_healthy_with_findings_is_found(job: tuple[Raw, dict[str, Any]], report: dict[str, Any]) -> None:
    report["verdict"]["level"] = "healthy"
    assert any("there are findings" in each for each in untrue(job, report))


def test_a_fact_that_bounds_alone_hold_is_untrue(
    job: tuple[Raw, dict[str, Any]], report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES["CPUBottleneck"], "samples", lambda *_: Range(0.0, 1e9))
    assert any("samples: nothing recomputes it" in each for each in untrue(job, report))


def test_the_checker_shares_no_code_with_the_product() -> None:
    own = [file for file in Path(__file__).parent.glob("*.py") if file.name not in {"product.py", "test_claims.py"}]
    assert len(own) > 10
    imports = re.compile(r"^\s*(?:from|import) trainguard\b", re.MULTILINE)
    assert not [file.name for file in own if imports.search(file.read_text("utf-8"))]
