"""`trainguard analyze` as a function of its words: what it writes, prints and exits with."""

import errno
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.small_job import JOB, uploads
from tests.unit.local.places import write
from trainguard.cli import options
from trainguard.cli.main import app
from trainguard.cli.output import files
from trainguard.core.errors import OutputError
from trainguard.managed.framework_rules import ManagedStepOutlier
from trainguard.rules.registry import RULE_NAMES

FIELDS = ["RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters"]
# With these the small job fires LowGPUUtilization.
LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}}

# Rules over what the collector writes, which the managed service does not have.
COLLECTORS = {"GPUHealth", "HungJob", "Straggler"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("jobs"))


def analyze(*words: object) -> Result:
    return CliRunner().invoke(app, ["analyze", *(str(word) for word in words)])


def params(folder: Path, document: object) -> Path:
    file = folder / "params.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return file


def reports(out: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in (out / "profiler-reports").iterdir()}


def written(out: Path) -> list[str]:
    return sorted(file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file())


@pytest.mark.parametrize("reading", ["documented", "compatible"])
def test_each_rule_has_a_report_with_five_fields_in_order(job: Path, tmp_path: Path, reading: str) -> None:
    result = analyze(job, "--reading", reading, "--out", tmp_path / "new" / "out")
    assert (result.exit_code, result.stderr) == (0, "")
    found = reports(tmp_path / "new" / "out")
    judged = set(RULE_NAMES) - (COLLECTORS if reading == "compatible" else set())
    assert set(found) == judged
    assert all(list(report) == FIELDS for report in found.values())
    others = {name for name in written(tmp_path / "new" / "out") if not name.startswith("profiler-reports/")}
    assert others == ({"report.json"} if reading == "documented" else set())
    assert found["LowGPUUtilization"]["Datapoints"] > 0
    assert all(rule in result.stdout for rule in judged)


@pytest.mark.parametrize("reading", ["documented", "compatible"])
def test_without_a_folder_the_same_is_printed_and_none_written(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    written_too = analyze(job, "--reading", reading, "--out", tmp_path / "out").stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    result = analyze(job, "--reading", reading)
    assert written_too == f"{result.stdout}Reports: {tmp_path / 'out'}\n"
    assert list(empty.iterdir()) == []
    told = json.loads(analyze(job, "--reading", reading, "--json").stdout)
    assert (told["out"], told["files"]) == (None, [])


def test_exit_code_shows_fires_only_on_request(job: Path, tmp_path: Path) -> None:
    given = ("--out", tmp_path, "--params", params(tmp_path, LOW))
    assert analyze(job, *given).exit_code == 0
    assert analyze(job, *given, "--fail-on-fire").exit_code == 1
    assert analyze(job, *given, "--fail-on-fire", "--json").exit_code == 1
    short = write(tmp_path / "short", uploads()[:12])
    assert analyze(short, *given, "--fail-on-fire").exit_code == 0


@pytest.mark.parametrize(
    "document",
    [
        LOW,
        {"LowGPUUtilization_window": 20, "LowGPUUtilization_patience": 20},
        {"LowGPUUtilization": {"window": 20}, "LowGPUUtilization_patience": 20},
        {"lowgpuutilization": {"window": "20"}, "LOWGPUUTILIZATION_patience": "20"},
    ],
)
@pytest.mark.parametrize("reading", ["documented", "compatible"])
def test_nested_or_flat_parameters_are_used_by_the_rules(
    job: Path, tmp_path: Path, document: object, reading: str
) -> None:
    result = analyze(job, "--reading", reading, "--out", tmp_path, "--params", params(tmp_path, document))
    assert result.exit_code == 0
    shown = reports(tmp_path)["LowGPUUtilization"]["RuleParameters"].split("\n")
    assert {"window:20", "patience:20"} <= set(shown)


@pytest.mark.parametrize(
    ("reading", "defaults", "threshold"),
    [
        ("documented", None, "0.5"),
        ("documented", "shipped", "0.2"),
        ("compatible", None, "0.2"),
        ("compatible", "documented", "0.5"),
    ],
)
def test_defaults_follow_the_chosen_set(
    job: Path, tmp_path: Path, reading: str, defaults: str | None, threshold: str
) -> None:
    chosen = () if defaults is None else ("--defaults", defaults)
    assert analyze(job, "--reading", reading, "--out", tmp_path, *chosen).exit_code == 0
    assert f"threshold:{threshold}" in reports(tmp_path)["LoadBalancing"]["RuleParameters"].split("\n")


@pytest.mark.parametrize("reading", ["documented", "compatible"])
@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"NoSuchRule": {"patience": 1}}, "NoSuchRule"),
        ({"NoSuchRule_patience": 1}, "NoSuchRule"),
        ({"LowGPUUtilization": {"patients": 1}}, "patients"),
        ({"LowGPUUtilization_patience": "many"}, "many"),
        ({"LowGPUUtilization": {"patience": [1]}}, "patience"),
        ({"LowGPUUtilization": {"patience": 1}, "LowGPUUtilization_patience": 2}, "patience"),
        ('{"LowGPUUtilization": ', "JSON"),
        ("[1, 2]", "object"),
    ],
)
def test_unusable_parameters_are_refused_in_words(
    job: Path, tmp_path: Path, reading: str, document: object, said: str
) -> None:
    out = tmp_path / "out"
    result = analyze(job, "--reading", reading, "--out", out, "--params", params(tmp_path, document))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_documented_refuses_a_value_out_of_range(job: Path, tmp_path: Path) -> None:
    file = params(tmp_path, {"LowGPUUtilization_threshold_p95": 150})
    result = analyze(job, "--out", tmp_path / "out", "--params", file)
    assert result.exit_code == 2
    assert "a number from 0 to 100" in result.stderr


@pytest.mark.parametrize("option", ["--params", "--prices"])
def test_missing_file_is_refused(job: Path, tmp_path: Path, option: str) -> None:
    result = analyze(job, "--out", tmp_path / "out", option, tmp_path / "nowhere.json")
    assert result.exit_code == 2
    assert "nowhere.json" in result.stderr
    assert "No such file" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--reading", "exact"],
        ["--defaults", "mine"],
        ["--no-such-option"],
        ["another-source"],
    ],
)
def test_invalid_arguments_are_refused(job: Path, tmp_path: Path, words: Sequence[str]) -> None:
    result = analyze(job, "--out", tmp_path / "out", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error" in result.stderr


@pytest.mark.parametrize("reading", ["documented", "compatible"])
@pytest.mark.parametrize("source", ["nowhere", "empty", "notes", "gs://bucket/prefix"])
def test_source_without_a_profile_is_refused(tmp_path: Path, source: str, reading: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes" / "profiler-output" / "system").mkdir(parents=True)
    (tmp_path / "notes" / "profiler-output" / "system" / "notes.txt").write_text("nothing", encoding="utf-8")
    place = source if "://" in source else tmp_path / source
    result = analyze(place, "--reading", reading, "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert any(words in result.stderr for words in ("expected a", "looked for"))
    assert not list((tmp_path / "out").rglob("*.json"))


def test_impossible_output_folder_is_refused_before_reading(job: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = analyze(job, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_json_stdout_is_exactly_one_document(job: Path, tmp_path: Path) -> None:
    result = analyze(job, "--out", tmp_path, "--params", params(tmp_path, LOW), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["source"].endswith(f"{JOB}/profiler-output")
    assert (document["reading"], document["defaults"], document["healthy"]) == ("documented", "documented", False)
    lines = {line["rule"]: line for line in document["rules"]}
    assert set(lines) == set(RULE_NAMES)
    low = lines["LowGPUUtilization"]
    assert low["status"] == "FIRED"
    assert low["rule"] in document["fired"]
    assert all(low[name] for name in ("reason", "advice", "severity", "worst", "parameters"))
    assert low["times_fired"] == 1
    assert sorted(document["files"]) == [name for name in written(tmp_path) if name != "params.json"]


def test_json_of_the_compatible_reading_says_what_it_says(job: Path, tmp_path: Path) -> None:
    result = analyze(job, "--reading", "compatible", "--out", tmp_path, "--json")
    document = json.loads(result.stdout)
    assert (document["reading"], document["defaults"]) == ("compatible", "shipped")
    found = reports(tmp_path)
    assert {line["rule"]: line["data_points"] for line in document["rules"]} == {
        rule: report["Datapoints"] for rule, report in found.items()
    }


def test_findings_cost_money_with_instance_type_and_prices(job: Path, tmp_path: Path) -> None:
    row = {"source": "mine", "date": "2026-01-01", "per_hour": 100.0}
    table = {"region": "here", "currency": "EUR", "instances": {"ml.x": row}}
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(table), encoding="utf-8")
    words = ("--out", tmp_path / "out", "--params", params(tmp_path, LOW), "--json", "--instance-type", "ml.x")
    document = json.loads(analyze(job, *words, "--prices", prices).stdout)
    assert "EUR 100 an hour (mine, here, 2026-01-01)" in document["cost"]
    costs = [line["cost"] for line in document["rules"] if line["cost"] is not None]
    assert costs
    assert all("EUR" in cost and "EUR 0.00" not in cost for cost in costs)
    assert "No cost: " in json.loads(analyze(job, *words).stdout)["cost"]


def test_expected_framework_metrics_missing_is_reported(
    tmp_path: Path,
) -> None:
    place = write(tmp_path / "jobs")
    for file in place.rglob("*timeline.json"):
        file.unlink()

    def said(*words: str) -> tuple[str, str]:
        document = json.loads(analyze(place, "--out", tmp_path / "out", "--json", *words).stdout)
        line = next(line for line in document["rules"] if line["rule"] == "StepOutlier")
        return line["status"], line["reason"]

    assert said() == ("NOT_APPLICABLE", "This job has written no framework metrics, which the rule needs.")
    status, reason = said("--framework-expected")
    assert status == "NOT_APPLICABLE"
    assert reason == "Ended without what the rule needs: no training step was seen."


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    place = write(tmp_path / "jobs")
    (place / "profiler-output" / "notes.txt").write_text("mine", encoding="utf-8")
    result = analyze(place, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "1 file of another kind" in result.stdout


def test_earlier_reports_are_replaced_whole(job: Path, tmp_path: Path) -> None:
    analyze(job, "--out", tmp_path)
    before = written(tmp_path)
    stale = tmp_path / "profiler-reports" / "BatchSize.json"
    stale.write_text("{" * 100_000, encoding="utf-8")
    analyze(job, "--out", tmp_path)
    assert written(tmp_path) == before
    assert list(json.loads(stale.read_text("utf-8"))) == FIELDS


def test_interrupted_write_keeps_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_files(tmp_path, {"a/one.json": b"old"})

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        files.write_files(tmp_path, {"a/one.json": b"new"})
    assert written(tmp_path) == ["a/one.json"]
    assert (tmp_path / "a" / "one.json").read_bytes() == b"old"


def test_compatible_rule_that_raises_is_in_error_alone(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(ManagedStepOutlier, "observe", fail)
    result = analyze(job, "--reading", "compatible", "--out", tmp_path, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = {line["rule"]: line for line in json.loads(result.stdout)["rules"]}
    assert set(lines) == set(RULE_NAMES) - COLLECTORS
    assert lines["StepOutlier"]["status"] == "ERROR"
    reason = lines["StepOutlier"]["reason"]
    assert "ZeroDivisionError in commands/test_analyze.py:" in reason
    assert reason.endswith(": by nothing.")
    assert set(reports(tmp_path)) == set(RULE_NAMES) - COLLECTORS - {"StepOutlier"}


def test_unreadable_file_is_refused_or_counted_by_reading(
    tmp_path: Path,
) -> None:
    place = write(tmp_path / "jobs")
    torn = min(place.rglob("system/**/*.json"))
    torn.unlink()
    torn.symlink_to("/proc/self/mem")  # a file that opens, and gives an error when it is read
    result = analyze(place, "--reading", "compatible", "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{torn.name}' cannot be read: " in result.stderr.replace("\n", "")
    assert not list((tmp_path / "out").rglob("*.json"))
    assert "1 object that could not be read" in analyze(place, "--out", tmp_path / "out").stdout


def test_table_document_and_report_end_in_the_same_sentences(job: Path, tmp_path: Path) -> None:
    given = ("--out", tmp_path, "--params", params(tmp_path, LOW), "--instance-type", "ml.g5.12xlarge")
    shown = analyze(job, *given).stdout.splitlines()
    document = json.loads(analyze(job, *given, "--json").stdout)
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert document["schema_version"] == "2"
    for name in ("verdict", "summary", "healthy"):
        assert document[name] == report[name]
    assert sorted(document["fired"]) == sorted(report["fired"])
    sentences = [report["verdict"][name] for name in ("health", "change", "cost")]
    assert shown[len(RULE_NAMES) : len(RULE_NAMES) + 4] == [*sentences, report["cost"]["note"]]
    assert report["verdict"]["level"] == "unhealthy"
    assert (report["scope"], report["timelines"]) == ("state", None)


def test_unreadable_objects_give_no_ok_rule_and_exit_code_3(
    tmp_path: Path,
) -> None:
    packed = write(tmp_path / "packed")
    for file in packed.rglob("system/**/*.json"):
        file.write_bytes(gzip.compress(file.read_bytes()))
    for file in packed.rglob("framework/**/*.json"):
        file.unlink()
    torn = write(tmp_path / "torn")
    for file in torn.rglob("*.json"):
        file.write_bytes(b"\x00 no profile")
    for place, reading in ((packed, "compatible"), (torn, "documented")):
        result = analyze(place, "--reading", reading, "--out", tmp_path / "out", "--fail-on-fire")
        assert result.exit_code == 3
        assert "No verdict: no rule could be evaluated." in result.stdout
        told = json.loads(analyze(place, "--reading", reading, "--out", tmp_path / "out", "--json").stdout)
        assert (told["healthy"], told["evaluated"]) == (False, False)
        assert "OK" not in {line["status"] for line in told["rules"]}


def test_full_disk_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_files(tmp_path, {"a/one.json": b"old"})
    real = os.fdopen
    left = iter([False, True])

    def nearly_full(handle: int, mode: str) -> Any:
        if next(left):
            os.close(handle)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, mode)

    monkeypatch.setattr(os, "fdopen", nearly_full)
    with pytest.raises(OutputError, match="No space left"):
        files.write_files(tmp_path, {"a/one.json": b"new", "a/two.json": b"new"})
    assert written(tmp_path) == ["a/one.json"]
    assert (tmp_path / "a" / "one.json").read_bytes() == b"old"


def test_output_named_like_a_file_makes_no_folder(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.pdf"
    result = analyze(job, "--out", out)
    assert result.exit_code == 2
    assert "named as a .pdf file" in result.stderr.replace("\n", " ")
    assert not out.exists()


def test_completion_offers_rules_and_instance_types() -> None:
    assert options.rule_names("lowg") == ["LowGPUUtilization"]
    assert options.rule_names("classi") == ["ClassImbalance"]
    assert options.rule_names("kernels/gpug") == ["kernels/GpuGap"]
    assert "ml.g5.12xlarge" in options.instance_types("ml.g5.1")
