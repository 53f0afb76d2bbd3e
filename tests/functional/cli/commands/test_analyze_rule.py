"""`trainguard analyze --rule`: a custom rule over a profile."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.local.places import write
from trainguard.cli.main import app

RULE = "example_rules.host_memory:HostMemory"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("jobs"))


def analyze(*words: object) -> Result:
    return CliRunner().invoke(app, ["analyze", *(str(word) for word in words)])


def params(folder: Path, document: Any) -> Path:
    file = folder / "params.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_custom_rule_is_analysed_alone_with_a_report(job: Path, tmp_path: Path) -> None:
    result = analyze(job, "--out", tmp_path / "out", "--rule", RULE, "--json")
    assert (result.exit_code, result.stderr) == (3, "")  # the small job has no memory samples
    document = json.loads(result.stdout)
    assert [line["rule"] for line in document["rules"]] == ["HostMemory"]
    assert document["rules"][0]["parameters"]["threshold"] == 90.0
    reports = [file.name for file in (tmp_path / "out" / "profiler-reports").iterdir()]
    assert reports == ["HostMemory.json"]


@pytest.mark.parametrize("nested", [True, False])
def test_parameters_belong_to_the_custom_rule(job: Path, tmp_path: Path, nested: bool) -> None:
    given = {"HostMemory": {"patience": 7}} if nested else {"hostmemory_patience": "7", "Other_x": "y"}
    result = analyze(job, "--out", tmp_path, "--rule", RULE, "--json", "--params", params(tmp_path, given))
    assert json.loads(result.stdout)["rules"][0]["parameters"]["patience"] == 7


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rule", "example_rules.host_memory:Nothing"), "has no attribute 'Nothing'"),
        (("--rule", "nowhere.at_all:Rule"), "module is 'nowhere', expected a module of"),
        (("--rule", "HostMemory"), "expected module:Class"),
        (("--rule", RULE, "--reading", "compatible"), "support only --reading documented"),
    ],
)
def test_unusable_custom_rule_error_says_what_is_valid(
    job: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    result = analyze(job, "--out", tmp_path, *words)
    assert result.exit_code == 2
    assert told in result.stderr.replace("\n", " ")


def test_parameter_unknown_to_the_rule_is_named(job: Path, tmp_path: Path) -> None:
    file = params(tmp_path, {"HostMemory_patience": 0})
    result = analyze(job, "--out", tmp_path, "--rule", RULE, "--params", file)
    assert result.exit_code == 2
    assert "HostMemory: parameter HostMemory_patience is '0', expected a whole number above 0" in result.stderr
