"""`trainguard analyze` and `report` of several runs: a line and a report for each, and the exit code of the worst."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.functional.local.test_runs import BAD, GOOD, E, write
from trainguard.cli.main import app

BAD_RUN = "training/ExplodingTensor"


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs", {f"a_good/{E}": GOOD, f"z_bad/{E}": BAD})
    return tmp_path / "runs"


def test_analysis_has_a_line_for_each_run(folder: Path) -> None:
    result = call("analyze", folder, "--out", "out")
    assert result.exit_code == 0
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines[:2]] == [["OK", "a_good"], ["FIRED", "z_bad"]]
    assert BAD_RUN in lines[1][3]
    assert "2 runs: 1 with findings, 0 without a verdict." in result.stdout
    for run in ("a-good", "z-bad"):
        assert json.loads(Path("out", run, "report.json").read_bytes())["job"]["name"] == run
    assert call("analyze", folder, "--fail-on-fire").exit_code == 1


def test_analysis_as_json_has_a_document_for_each_run(folder: Path) -> None:
    document = json.loads(call("analyze", folder, "--json").stdout)
    assert (document["healthy"], document["evaluated"], BAD_RUN in document["fired"]) == (False, True, True)
    runs = {each["run"]: each for each in document["runs"]}
    alone = json.loads(call("analyze", folder / "z_bad", "--json").stdout)
    assert {name: value for name, value in runs["z_bad"].items() if name != "run"} == alone
    assert runs["a_good"]["healthy"]


def test_run_that_cannot_be_read_is_a_line_and_no_all_clear(folder: Path) -> None:
    write(folder, {"broken/run-a.wandb": b"no run at all"})
    result = call("analyze", folder)
    assert result.exit_code == 3
    assert "ERROR\tbroken/run-a.wandb\tNot read: " in result.stdout
    assert call("analyze", folder, "--fail-on-fire").exit_code == 1
    document = json.loads(call("analyze", folder, "--json").stdout)
    assert (document["healthy"], document["evaluated"]) == (False, False)
    assert call("report", folder).exit_code == 3


def test_setting_that_cannot_be_used_ends_the_analysis(folder: Path) -> None:
    Path("params.json").write_text("{")
    result = call("analyze", folder, "--params", "params.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "params.json" in result.stderr


def test_report_of_a_folder_links_the_report_of_each_run(folder: Path) -> None:
    result = call("report", folder, "--json")
    assert result.exit_code == 0
    jobs = {each["place"]: each for each in json.loads(result.stdout)["jobs"]}
    assert {place: bool(each["fired"]) for place, each in jobs.items()} == {"a_good": False, "z_bad": True}
    page = Path("runs-report/fleet.html").read_text("utf-8")
    for each in jobs.values():
        assert f'href="{each["report"]}"' in page
        assert json.loads(Path("runs-report", each["report"]).with_suffix(".json").read_bytes())["timelines"] is None
    alone = json.loads(call("report", folder / "z_bad", "--json", "--out", "alone").stdout)
    assert sorted(alone["fired"]) == sorted(jobs["z_bad"]["fired"])


def test_page_of_its_own_name_has_no_reports_beside_it(folder: Path) -> None:
    document = json.loads(call("report", folder, "--json", "--out", "out/all.html").stdout)
    assert [each["report"] for each in document["jobs"]] == [None, None]
    assert sorted(each.name for each in Path("out").iterdir()) == ["all.html", "all.json"]


def test_names_with_control_characters_reach_no_terminal(folder: Path) -> None:
    write(folder, {f"a\x1b[31m\n\x07b/{E}": GOOD})
    for command in ("analyze", "report"):
        result = call(command, folder, "--out", f"{command}-out")
        assert not {"\x1b", "\x07"} & set(result.stdout + result.stderr)
    assert "\x1b" not in Path("report-out/fleet.html").read_text("utf-8")
    assert Path("report-out/a-31m-b/report.html").is_file()


def test_comparison_with_several_runs_says_to_name_one(folder: Path) -> None:
    result = call("report", folder / "z_bad", "--compare", folder)
    assert result.exit_code == 2
    assert "holds 2 runs" in result.stderr
    assert call("report", folder, "--compare", folder / "z_bad").exit_code == 2
