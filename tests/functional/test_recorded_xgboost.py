"""The recorded XGBoost job, as the hook wrote it: read for a report, and shown."""

import re
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.support.run_folder import MemoryFiles
from trainguard.cli.main import app
from trainguard.report.html.training.sections import render_xgboost
from trainguard.report.training.document import TrainingReport, training_report
from trainguard.report.training.read import RunPart, decode_part, encode_part, read_on
from trainguard.report.training.xgboost_files import xgboost_files

RECORDED = Path(__file__).parents[2] / "events" / "jobs" / "xgboost_wine.tar.xz"
TEST_SAMPLES = 817


@pytest.fixture(scope="module")
def files() -> MemoryFiles:
    content = {}
    with tarfile.open(RECORDED) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                content[member.name.removeprefix("debug-output/")] = file.read()
    return MemoryFiles(content)


@pytest.fixture(scope="module")
def training(files: MemoryFiles) -> TrainingReport:
    part = read_on(files, "xgboost-wine", RunPart())
    assert part.done
    return training_report(part.digest, [])


def file_of(training: TrainingReport, name: str) -> Any:
    return msgspec.json.decode(xgboost_files(training)[f"xgboost-reports/{name}.json"])


def test_the_model_is_the_one_that_was_trained(training: TrainingReport) -> None:
    assert training.model is not None
    assert training.model.objective == "multi:softmax"
    assert training.model.settings["max_depth"] == "5"
    assert (training.steps, training.last_step, training.left_out) == (11, 50, [])


def test_labels_are_those_of_the_validation_set_once(training: TrainingReport) -> None:
    rows = file_of(training, "LabelsDistribution")["labels_and_samples"]
    assert [each["num_samples_per_label"] for each in rows] == [137, 128, 125, 138, 148, 141]


def test_the_newest_step_is_scored(training: TrainingReport) -> None:
    matrix = file_of(training, "ConfusionMatrix")
    assert matrix["group_labels"] == ["0", "1", "2", "3", "4", "5"]
    assert sum(matrix["group_counts"]) == TEST_SAMPLES
    right = sum(matrix["group_counts"][place * 7] for place in range(6))
    assert matrix["stats"]["accuracy"] == round(right / TEST_SAMPLES, 5) == 0.80294
    metrics = file_of(training, "EvaluationMetrics")
    assert metrics["overall_accuracy"] == 0.80294
    assert metrics["micro"] == {"precision": 0.80294, "recall": 0.80294, "f1_score": 0.80294}
    assert file_of(training, "ResidualDistribution")["plot_step"] == 50


def test_series_are_of_all_steps(training: TrainingReport) -> None:
    rows = file_of(training, "LossData")["category_loss_per_step"]
    assert {each["category"] for each in rows} == {"train-mlogloss", "validation-mlogloss"}
    assert [each["steps"] for each in rows if each["category"] == "train-mlogloss"] == list(range(0, 51, 5))
    assert rows[0]["loss"] == pytest.approx(1.53642049)
    accuracy = file_of(training, "IterativeClassAccuracy")
    assert {name: len(values) for name, values in accuracy.items()} == dict.fromkeys("012345", 11)


def test_feature_importance_is_of_the_newest_step_in_order(training: TrainingReport) -> None:
    features = file_of(training, "FeatureImportance")["features"]
    assert set(features) == {"weight", "gain", "cover"}
    assert [each["feature"] for each in features["weight"]] == [f"f{number}" for number in range(11)]
    assert sum(each["importance"] for each in features["gain"]) == pytest.approx(1.0)


def test_the_page_has_a_section_for_each_file(training: TrainingReport) -> None:
    page = render_xgboost(training, "xgboost-wine")
    for title in (
        "Distribution of labels",
        "Loss and metrics",
        "Importance of features",
        "Confusion matrix",
        "Precision, recall and F1",
        "Accuracy of each class",
        "Residuals",
    ):
        assert f">{title}</h2>" in page


def test_a_run_read_a_step_at_a_time_gives_the_same(files: MemoryFiles, training: TrainingReport) -> None:
    part, calls = RunPart(), 0
    while not part.done:
        part = read_on(files, "xgboost-wine", decode_part(encode_part(part), "part"), has_time=lambda: False)
        calls += 1
    assert calls == 12
    assert msgspec.json.encode(training_report(part.digest, [])) == msgspec.json.encode(training)


def test_a_broken_index_costs_its_own_step_and_is_said(files: MemoryFiles) -> None:
    broken = dict(files.content)
    broken["index/000000000/000000000020_worker_0.json"] = b'{"meta": {"mode": 5}}'
    part = read_on(MemoryFiles(broken), "xgboost-wine", RunPart())
    assert (part.done, part.digest.steps, part.digest.last_step) == (True, 10, 50)
    assert "1 step could not be read" in training_report(part.digest, []).left_out[0]


def test_folder_of_a_job_is_reported_with_training_alone(
    files: MemoryFiles, training: TrainingReport, tmp_path: Path
) -> None:
    for name, body in files.content.items():
        place = tmp_path / "wine" / "debug-output" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "wine"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    written = {each.relative_to(out).as_posix() for each in out.rglob("*") if each.is_file()}
    assert {"report.html", "report.json", "xgboost_report.html", *xgboost_files(training)} <= written
    for name, body in xgboost_files(training).items():
        assert (out / name).read_bytes() == body
    page = (out / "report.html").read_text()
    shown = re.findall(r'<section[^>]* id="([^"]+)"', page)
    assert shown[:4] == ["verdict", "training-series", "training", "xgboost-model"], shown
    assert "Made from the rules' state alone" not in page
    assert 'id="timelines"' not in page
    assert "Saved steps" in page


def test_a_folder_with_the_job_is_analyzed_into_the_same_files(
    files: MemoryFiles, training: TrainingReport, tmp_path: Path
) -> None:
    for name, body in files.content.items():
        place = tmp_path / "wine" / "debug-output" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["analyze", str(tmp_path / "wine"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    for name, body in xgboost_files(training).items():
        assert (out / name).read_bytes() == body
    assert (out / "xgboost_report.html").is_file()
    report = msgspec.json.decode((out / "debugger-reports" / "CreateXgboostReport.json").read_bytes())
    assert (report["status"], report["steps"]) == ("NoIssuesFound", [])
