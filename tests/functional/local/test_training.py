"""What a job saved of its training, evaluated on this machine: every trial, found wherever it lies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from typer.testing import CliRunner

from tests.support.small_job import JOB, uploads
from tests.support.tensor_trials import expected, trials, write_trial
from tests.unit.local.places import write
from trainguard.aws.clients import Clients
from trainguard.cli.main import app
from trainguard.core.errors import NoProfileError, ParameterFileError, ProfileSourceError
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.api import analyze
from trainguard.local.runs import open_job
from trainguard.local.settings import rule_settings
from trainguard.local.training import debugger_reports
from trainguard.local.training_files import training_of_job
from trainguard.rules.training.registry import TRAINING_RULES

RULES = {rule.name.rpartition("/")[2] for rule in TRAINING_RULES}
LOG = {
    "log_history": [
        {"loss": 2.0 / (1 + step / 50) + (8.0 if step > 300 else 0.0), "step": step, "epoch": step / 100}
        for step in range(0, 500, 10)
    ]
}


def cases() -> Iterator[tuple[str, str, dict[str, str], int | None]]:
    """Yield trial, rule, parameters and the first step that fires, of each expectation that names one."""
    for trial, rules in expected().items():
        for rule, said in rules.items():
            for each in said if isinstance(said, list) else [said]:
                if rule == "trace" or not isinstance(each, dict):
                    continue
                for name in ("first_fire", "first_fire_by_published_text", "first_fire_OR"):
                    if name in each:
                        yield trial, rule, each["params"], each[name]


def reports_of(place: str, parameters: dict[str, str], rule: str = "") -> dict[str, Any]:
    """Return the debugger-reports of a job by rule."""
    profile = open_job(place)
    settings = {f"{rule}_{name}": value for name, value in parameters.items()}
    job = JobRecord(job=profile.root.job, arn="unknown", bucket="", prefix="", rule_settings=settings)
    done = evaluated_profile(profile, job, FAMILIES.plan(job), None, timelines=False)
    written = {name.removeprefix("debugger-reports/"): body for name, body in debugger_reports(done.streams).items()}
    return {name.removesuffix(".json"): json.loads(body) for name, body in written.items()}


@pytest.mark.parametrize(("trial", "rule", "parameters", "first"), list(cases()))
def test_rules_fire_at_their_first_step_of_a_trial(
    tmp_path: Path, trial: str, rule: str, parameters: dict[str, str], first: int | None
) -> None:
    for name in (trial, parameters.get("other_trial", trial)):
        write_trial(name, tmp_path / name)
    reports = reports_of(str(tmp_path / trial), parameters, rule)
    assert reports.keys() == RULES
    report = reports[rule]
    assert report["first_step"] == first
    assert report["status"] == ("NoIssuesFound" if first is None else "IssuesFound")
    assert report["steps"][:1] == ([] if first is None else [first])
    assert report["rule"] == rule
    for name, value in parameters.items():
        assert name in {*report["parameters"], "other_trial"}, value


@pytest.mark.parametrize("place", ["elsewhere/similar_a", "elsewhere/similar_a/debug-output"])
def test_other_run_is_read_by_its_folder(tmp_path: Path, place: str) -> None:
    write_trial("similar_b", tmp_path / "job")
    write_trial("similar_a", tmp_path / "elsewhere" / "similar_a" / "debug-output")
    report = reports_of(str(tmp_path / "job"), {"other_trials": str(tmp_path / place)}, "SimilarAcrossRuns")
    assert report["SimilarAcrossRuns"]["first_step"] == expected()["similar_b"]["SimilarAcrossRuns"]["first_fire"]


def test_all_steps_of_a_repeatedly_firing_rule_are_named(tmp_path: Path) -> None:
    write_trial("exploding_test_invoker", tmp_path / "job")
    report = reports_of(str(tmp_path / "job"), {"collection_names": "gradients,weights"}, "ExplodingTensor")
    assert report["ExplodingTensor"]["steps"] == expected()["exploding_test_invoker"]["ExplodingTensor"]["fires_at"]
    assert report["ExplodingTensor"]["value"] is not None
    assert report["AllZero"]["status"] == "Error"
    assert "AllZero_collection_names" in report["AllZero"]["reason"]
    assert report["TreeDepth"]["status"] == "NotApplicable"


@pytest.mark.parametrize("below", ["job", "job/debug-output", ".", "job/"])
def test_folder_at_in_or_above_a_run_is_found(tmp_path: Path, below: str) -> None:
    write_trial("vanishing_gradient", tmp_path / "job" / "debug-output")
    profile = open_job(str(tmp_path / below))
    assert profile.training is not None
    assert (profile.root.job, profile.nodes, profile.training.tensors, profile.training.ended) == (
        "job",
        {},
        True,
        True,
    )


def test_profile_and_tensors_are_judged_by_both_families(tmp_path: Path) -> None:
    write(tmp_path, uploads())
    write_trial("vanishing_gradient", tmp_path / JOB / "debug-output")
    report = analyze(tmp_path, parameters={"VanishingGradient": {"threshold": 1e-7}}, time_lines=False)
    statuses = {rule.rule: rule.status for rule in report.document.rules}
    assert statuses["training/VanishingGradient"] == "FIRED"
    assert statuses["LowGPUUtilization"] in {"OK", "FIRED"}
    assert "training/Overfit" not in statuses


def test_trainer_log_feeds_loss_rules_and_others_say_why_not(
    tmp_path: Path,
) -> None:
    for checkpoint in ("", "checkpoint-100"):
        (tmp_path / "job" / checkpoint).mkdir(parents=True, exist_ok=True)
        (tmp_path / "job" / checkpoint / "trainer_state.json").write_text(json.dumps(LOG))
    reports = reports_of(str(tmp_path / "job"), {}, "LossNotDecreasing")
    assert (reports["LossNotDecreasing"]["status"], reports["LossNotDecreasing"]["first_step"]) == ("IssuesFound", 310)
    assert reports["VanishingGradient"]["status"] == "NotApplicable"
    assert "gradients" in reports["VanishingGradient"]["reason"]


OWN_NAMES = "step,objective,held-out objective\n" + "".join(f"{n},2.3,{2.0 - n / 20}\n" for n in range(20))


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, "NotApplicable"),
        ({"ScalarNames_losses": "objective$", "ScalarNames_evaluation": "^held-out"}, "IssuesFound"),
        ({"scalarnames_losses": "^held-out"}, "NoIssuesFound"),
        ({"training/ScalarNames_losses": "objective$", "ScalarNames_ignored": "^objective"}, "NoIssuesFound"),
    ],
)
def test_custom_names_are_read_as_the_settings_say(tmp_path: Path, settings: dict[str, str], status: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "metrics.csv").write_text(OWN_NAMES)
    profile = open_job(str(tmp_path / "job"))
    given = rule_settings(settings)
    job = JobRecord(job=profile.root.job, arn="unknown", bucket="", prefix="", rule_settings=given)
    done = evaluated_profile(profile, job, FAMILIES.plan(job), None, timelines=False)
    report = json.loads(debugger_reports(done.streams)["debugger-reports/NotLearning.json"])
    assert report["status"] == status


@pytest.mark.parametrize("pattern", ["(", "(a+)+$"])
def test_unusable_name_pattern_names_the_setting(pattern: str) -> None:
    with pytest.raises(ParameterFileError, match=r"ScalarNames_losses.*expected a regular expression"):
        rule_settings({"ScalarNames": {"losses": pattern}})
    with pytest.raises(ParameterFileError, match=r"ScalarNames_accuracy.*one of the parameters errors, evalu"):
        rule_settings({"ScalarNames_accuracy": "x"})


def test_losses_of_a_trainer_log_are_drawn_with_the_first_fire(
    tmp_path: Path,
) -> None:
    for checkpoint in ("checkpoint-100", "checkpoint-500"):
        (tmp_path / "job" / checkpoint).mkdir(parents=True)
        rows = [row for row in LOG["log_history"] if row["step"] <= int(checkpoint.partition("-")[2])]
        (tmp_path / "job" / checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    report = analyze(tmp_path / "job", parameters={"LossNotDecreasing": {"num_steps": 10}})
    training = report.document.training
    assert training is not None
    (series,) = [each for each in training.series if each.kind == "loss"]
    assert (series.name, series.seen, training.last_step) == ("loss", len(LOG["log_history"]), 490)
    assert next((fire.rule, fire.step) for fire in training.fires) == ("training/LossNotDecreasing", 310)


def test_end_mark_without_data_puts_every_rule_in_error(tmp_path: Path) -> None:
    (tmp_path / "job" / "debug-output").mkdir(parents=True)
    (tmp_path / "job" / "debug-output" / "training_job_end.ts").touch()
    reports = reports_of(str(tmp_path / "job"), {})
    assert {report["status"] for report in reports.values()} == {"Error"}
    assert "no" in reports["ExplodingTensor"]["reason"]


def test_broken_index_file_is_counted_and_others_are_judged(
    tmp_path: Path,
) -> None:
    folder = write_trial("vanishing_gradient", tmp_path / "job" / "debug-output")
    next(folder.glob("index/*/000000000005_*.json")).write_text("{")
    profile = open_job(str(tmp_path))
    job = JobRecord(job="job", arn="unknown", bucket="", prefix="")
    done = evaluated_profile(profile, job, FAMILIES.plan(job), None, timelines=False)
    coverage = {each.stream: each.counters for each in report_of(done).report.coverage}
    assert coverage["training"]["bad_objects"] == 1
    steps = json.loads(debugger_reports(done.streams)["debugger-reports/VanishingGradient.json"])["steps"]
    assert steps == [0, 10, 15]


def test_runs_of_several_jobs_are_named(tmp_path: Path) -> None:
    for job in ("one", "two"):
        write_trial("healthy", tmp_path / job / "debug-output")
    with pytest.raises(ProfileSourceError, match="2 runs"):
        open_job(str(tmp_path))


def test_empty_folder_has_no_profile(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert training_of_job(tmp_path) is None
    with pytest.raises(NoProfileError):
        open_job(str(tmp_path))


def test_finding_is_in_files_table_and_exit_code(
    tmp_path: Path,
) -> None:
    write_trial("vanishing_gradient", tmp_path / "job" / "debug-output")
    params = tmp_path / "params.json"
    params.write_text('{"VanishingGradient_threshold": "1e-7"}')
    out = tmp_path / "out"
    words = ["analyze", f"{tmp_path}/job", "--out", str(out), "--params", str(params), "--fail-on-fire", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["fired"] == ["training/VanishingGradient"]
    assert "debugger-reports/VanishingGradient.json" in document["files"]
    assert json.loads((out / "debugger-reports" / "VanishingGradient.json").read_text())["status"] == "IssuesFound"
    assert {file.stem for file in (out / "debugger-reports").iterdir()} == RULES


def test_run_in_s3_is_evaluated_as_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = Clients().s3
        client.create_bucket(Bucket="profiles")
        for name, body in trials()["vanishing_gradient"].items():
            client.put_object(Bucket="profiles", Key=f"jobs/my-job/debug-output/{name}", Body=body)
        for place in ("s3://profiles/jobs/my-job", "s3://profiles/jobs/my-job/debug-output/"):
            report = reports_of(place, {})["VanishingGradient"]
            assert (report["status"], report["first_step"]) == ("IssuesFound", 0)
        assert open_job("s3://profiles/jobs").root.job == "my-job"
