"""Rules of a deployment's own on the command line: known by their package, or from their rows alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.seen import Deployed, deployed, job, row
from tests.unit.local.places import write
from trainguard.core.finding import Patience
from trainguard.core.records import Status

__all__ = ["deployed"]
EXAMPLES = Path(__file__).parents[4] / "examples"
PACKAGE = EXAMPLES / "example_rules"
RULE = "example_rules.host_memory:HostMemory"
TAG = "trainguard:HostMemory_threshold"
BROKEN = "from trainguard.rules.nothing import Rule\n"


def trainguard(*words: object, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a process: which rules there are is decided once in each."""
    command = [sys.executable, "-m", "trainguard", *map(str, words)]
    given = os.environ | {"COLUMNS": "200"} | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=given)


def answer(*words: object, cwd: Path, **environment: str) -> Any:
    done = trainguard(*words, "--json", cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["option", "variable", "rule"])
def test_parameters_of_custom_rules_are_listed_like_any(tmp_path: Path, way: str) -> None:
    if way == "rule":
        found = answer("params", "hostmem", "--rule", RULE, cwd=EXAMPLES)
    elif way == "option":
        found = answer("params", "hostmem", "--rules-package", PACKAGE, cwd=tmp_path)
    else:
        found = answer("params", "hostmem", cwd=tmp_path, TRAINGUARD_RULES_PACKAGE=str(PACKAGE))
    assert (found["rule"], found["looks_at"]) == ("HostMemory", "each node")
    assert found["fires_when"] == "a node's memory stays over the threshold"
    parameters = {each["name"]: (each["documented"], each["accepts"]) for each in found["parameters"]}
    assert parameters["threshold"] == (90.0, "a number from 0 to 100")
    assert list(parameters)[-1] == "scan_interval_us"


def test_custom_rules_are_listed_with_the_others(tmp_path: Path) -> None:
    rules = answer("params", "--rules-package", PACKAGE, cwd=tmp_path)["rules"]
    assert [each["rule"] for each in rules if each["family"] == "profiler"][-2:] == ["HostMemory", "ProfilerReport"]
    assert next(each for each in rules if each["rule"] == "HostMemory")["parameters"] == ["threshold", "patience"]


def test_custom_rule_settings_are_validated_as_they_are_read(
    tmp_path: Path,
) -> None:
    unknown = trainguard("params", "validate", f"{TAG}=80", cwd=tmp_path)
    assert unknown.returncode == 1
    assert "--rules-package DIR, or --rule MODULE:CLASS" in unknown.stderr
    known = trainguard("params", "validate", f"{TAG}=80", "--rules-package", PACKAGE, cwd=tmp_path)
    assert (known.returncode, known.stderr) == (0, "")
    wrong = trainguard("params", "validate", f"{TAG}=180", "--rules-package", PACKAGE, cwd=tmp_path)
    assert wrong.returncode == 1
    assert "a number from 0 to 100" in wrong.stdout
    assert wrong.stderr == ""


def test_rules_of_a_package_judge_beside_the_built_in(tmp_path: Path) -> None:
    profile = write(tmp_path / "jobs")
    found = answer("analyze", profile, "--out", tmp_path / "out", "--rules-package", PACKAGE, cwd=tmp_path)
    assert {"HostMemory", "LowGPUUtilization"} <= {line["rule"] for line in found["rules"]}
    done = trainguard("analyze", profile, "--out", tmp_path / "alone", "--rule", RULE, "--json", cwd=EXAMPLES)
    assert done.returncode == 3  # the small job has no memory samples, which this rule needs
    alone = json.loads(done.stdout)
    assert [line["rule"] for line in alone["rules"]] == ["HostMemory"]


@pytest.mark.parametrize(
    ("name", "source", "told"),
    [
        ("ours", None, "expected a folder with an __init__.py in it"),
        ("json", "RULES = ()", "a name that is a module's, and no other's"),
        ("our-rules", "RULES = ()", "a name that is a module's, and no other's"),
        ("ours", BROKEN, "No module named 'trainguard.rules.nothing'"),
        ("ours", "import sys; sys.exit(0)", "SystemExit"),
        ("ours", "RULES = ()", "a tuple of 1 to 8 rules"),
        (
            "ours",
            "from trainguard.rules.batch_size.rule import BatchSize\nRULES = (BatchSize(),)",
            "TrainGuard's own BatchSize",
        ),
    ],
)
def test_unusable_package_exits_2_with_one_sentence(tmp_path: Path, name: str, source: str | None, told: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    if source is not None:
        (folder / "__init__.py").write_text(source, encoding="utf-8")
    done = trainguard("params", "--rules-package", folder, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trainguard: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr


def test_row_of_an_unknown_rule_is_explained_without_its_page(
    deployed: Deployed,
) -> None:
    settings = {"HostMemory_threshold": "80"}
    stored = row(
        "HostMemory",
        Status.FIRED,
        measured=97.0,
        threshold=80.0,
        times_fired=1,
        fired_at=60.0,
        progress=Patience(seen=3, needed=60),
        parameters={"threshold": 80.0, "patience": 60},
    )
    deployed.add(job("own", rule_settings=settings), [stored, row("HostMemory", node="algo-1")])
    result = deployed.run("explain", "own", "hostm", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["rule"], found["status"], found["reason"]) == ("HostMemory", "FIRED", "HostMemory says FIRED.")
    assert found["comparison"] == "97, threshold 80"
    assert found["fires_when"] == "its own condition holds"
    assert [(each["name"], each["value"], each["default"], each["source"]) for each in found["parameters"]] == [
        ("threshold", 80.0, None, "tag trainguard:HostMemory_threshold"),
        ("patience", 60, 60, "default"),
    ]
    assert [node["node"] for node in found["nodes"]] == ["algo-1"]
    assert "HostMemory is no rule of TrainGuard's: --rules-package" in result.stderr
    assert "HostMemory on own" in deployed.shown("explain", "own", "HOSTMEMORY", columns=100)


@pytest.mark.parametrize("status", list(Status))
def test_unknown_rule_in_any_status_gets_no_false_advice(deployed: Deployed, status: Status) -> None:
    deployed.add(job("own", rule_settings={"HostMemory_threshold": "80"}), [row("HostMemory", status)])
    found = json.loads(deployed.run("explain", "own", "hostmemory", "--json").stdout)
    told = " ".join(found["outlook"])
    assert "<Rule>" not in told
    assert "another rule" not in told


def test_unknown_rule_name_offers_the_rules_of_the_job(deployed: Deployed) -> None:
    deployed.add(job("own"), [row("HostMemory")])
    result = deployed.run("explain", "own", "hostmemry")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "perhaps you mean HostMemory" in result.stderr


def test_settings_of_an_unknown_rule_say_how_to_load_it(
    deployed: Deployed,
) -> None:
    deployed.add(job("own", rule_settings={"HostMemory_threshold": "80"}))
    assert "--rules-package DIR" in deployed.run("params", "--job", "own").stderr
    deployed.add(job("plain"))
    assert deployed.run("params", "--job", "plain").stderr == ""


def test_example_rule_from_the_checkout_says_what_to_set(
    tmp_path: Path,
) -> None:
    done = trainguard(
        "analyze", tmp_path, "--out", tmp_path / "out", "--rule", RULE, cwd=EXAMPLES.parent, PYTHONPATH=""
    )
    assert done.returncode == 2
    assert f"set PYTHONPATH={EXAMPLES}" in done.stderr
