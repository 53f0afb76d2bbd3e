"""The Python API says what the command line says, as columns and as a page."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import trainguard
from tests.support.small_job import JOB
from tests.unit.local.places import write
from trainguard.cli.main import app
from trainguard.core.errors import MissingLibraryError, NoProfileError, ParameterFileError, PriceTableError
from trainguard.local.api import Columns


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def report(profile: Path) -> trainguard.JobReport:
    return trainguard.analyze(profile, instance_type="ml.p3.8xlarge")


def test_python_analysis_matches_the_command(profile: Path, report: trainguard.JobReport, tmp_path: Path) -> None:
    words = ["report", str(profile), "--instance-type", "ml.p3.8xlarge", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, words).exit_code == 0
    written: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_bytes())
    made = json.loads(msgspec.json.encode(report.to_dict()))
    for document in (written, made):
        del document["generated_at"]
    assert made == written


def test_findings_are_rows_with_money(report: trainguard.JobReport) -> None:
    (first, *_) = report.findings.rows
    assert first["rule"] == report.verdict.rule
    assert first["currency"] == "USD"
    assert first["lost"] > 0.0
    assert sorted(report.findings["rule"]) == sorted(report.fired)
    assert not report.healthy


def test_time_lines_have_the_utilization_of_each_gpu(
    report: trainguard.JobReport,
) -> None:
    rows = [row for row in report.time_lines.rows if row["quantity"] == "gpu_utilization"]
    assert {(row["node"], row["gpu"]) for row in rows} == {
        (node, f"gpu{index}") for node in ("algo-1", "algo-2") for index in range(2)
    }
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    assert sorted(row["time"] for row in rows) == sorted(row["time"] for row in rows if row["time"] > 1e9)
    assert {"cpu", "gpu_memory"} <= set(report.time_lines["quantity"])


def test_report_without_time_lines_has_none(profile: Path) -> None:
    short = trainguard.analyze(profile, time_lines=False)
    assert (short.time_lines.rows, short.steps.rows, short.document.scope) == ([], [], "state")


def test_given_parameters_when_analysed_then_they_are_in_force(profile: Path, tmp_path: Path) -> None:
    file = tmp_path / "parameters.json"
    file.write_text('{"LowGPUUtilization": {"threshold_p95": 1, "threshold_p5": 0}}')
    for given in (file, str(file), json.loads(file.read_text())):
        judged = trainguard.analyze(profile, parameters=given, time_lines=False)
        (rule,) = (each for each in judged.document.rules if each.rule == "LowGPUUtilization")
        assert (rule.parameters["threshold_p95"], rule.status) == (1.0, "OK")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"parameters": {"LowGPUUtilization": {"threshold_p95": "high"}}}, ParameterFileError),
        ({"parameters": {"LowGPUUtilization": object()}}, ParameterFileError),
        ({"parameters": "missing.json"}, ParameterFileError),
        ({"prices": "missing.json"}, PriceTableError),
    ],
)
def test_unusable_input_is_named(profile: Path, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"parameters|missing\.json"):
        trainguard.analyze(profile, **given)


def test_missing_profile_error_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(NoProfileError, match=str(tmp_path)):
        trainguard.analyze(tmp_path)


def test_given_a_report_when_saved_then_its_files_are_there(report: trainguard.JobReport, tmp_path: Path) -> None:
    places = report.save(tmp_path / "new" / "report")
    assert json.loads(places["report.json"].read_bytes())["job"]["name"] == JOB
    assert all(place.is_file() for place in places.values())


def test_notebook_shows_the_report_in_its_own_frame(
    report: trainguard.JobReport,
) -> None:
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert 'sandbox="allow-scripts"' in shown
    assert repr(report).startswith(f"<JobReport {JOB}>\n")


def test_hostile_text_in_notebook_columns_is_text() -> None:
    columns = Columns(["<b>"], [["<script>"], *[[index] for index in range(30)]])
    shown = columns._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "and 11 more rows" in shown


def test_given_pandas_when_asked_then_a_frame_has_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = SimpleNamespace(DataFrame=lambda data, columns: (data, columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    columns = Columns(["a", "b"], [(1, 2), (3, 4)])
    assert columns.to_pandas() == ({"a": [1, 3], "b": [2, 4]}, ["a", "b"])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match="pip install pandas"):
        columns.to_pandas()


def test_package_lists_its_api() -> None:
    assert dir(trainguard) == ["Columns", "JobReport", "analyze"]
    with pytest.raises(AttributeError, match="judge"):
        _ = trainguard.judge
