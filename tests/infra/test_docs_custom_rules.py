"""The tutorial on custom rules: its files are written and its commands are run, in an empty folder, in order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.synthesis import ROOT

PAGE = (ROOT / "docs" / "custom-rules.md").read_text("utf-8")
_TUTORIAL = PAGE[PAGE.index("### 1. ") : PAGE.index("## The kit for tests")]
_FILE = re.compile(r"`([a-z_/]+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = dict(_FILE.findall(_TUTORIAL))
_OURS = (".venv/bin/python ", ".venv/bin/trainguard ", "echo ")


def commands(text: str) -> list[str]:
    return [line for block in _CONSOLE.findall(text) for line in block.splitlines()]


LOCAL = [line for line in commands(_TUTORIAL[: _TUTORIAL.index("### 6. ")]) if line.startswith(_OURS)]
OTHERS = [line for line in commands(_TUTORIAL) if line not in LOCAL]
FIRES = ".venv/bin/trainguard analyze ./leaky-job --out report --rule example_rules.host_memory:HostMemory"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tutorial's folder, whose environment is that of the tests, before the first command that is run."""
    folder = tmp_path_factory.mktemp("my-rules")
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/bin/bash", "-c", command], cwd=folder, capture_output=True, text=True)


def test_given_the_tutorial_when_read_then_every_step_is_there() -> None:
    assert set(FILES) == {
        "example_rules/__init__.py",
        "example_rules/host_memory.py",
        "make_job.py",
        "test_host_memory.py",
    }
    assert FIRES in LOCAL
    programs = {shlex.split(line)[0] for line in OTHERS}
    assert programs == {"mkdir", "cd", "python3", ".venv/bin/pip", "make", "npx", "aws", ".venv/bin/trainguard"}
    assert [line for line in OTHERS if "rules_package=" in line] == [
        "npx cdk diff -c rules_package=../my-rules/example_rules",
        "npx cdk deploy -c rules_package=../my-rules/example_rules",
    ]


def test_tutorial_rule_matches_the_example() -> None:
    example = ROOT / "examples" / "example_rules" / "host_memory.py"
    assert FILES["example_rules/host_memory.py"] == example.read_text("utf-8")


def test_tutorial_commands_succeed_in_an_empty_folder(folder: Path) -> None:
    said = {}
    for command in LOCAL:
        done = run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said[command] = done.stdout
    shown = re.search(r"```text\nFIRED  HostMemory  low  (.+) …\n", _TUTORIAL)
    assert shown
    assert said[FIRES].startswith(f"FIRED\tHostMemory\tlow\t{shown[1]}")
    assert said[f"{FIRES} --params stricter.json"].startswith("OK\tHostMemory\t")
    beside = next(text for command, text in said.items() if "analyze" in command and "--rules-package" in command)
    assert {"HostMemory", "LowGPUUtilization"} <= {line.split("\t")[1] for line in beside.splitlines() if "\t" in line}
    assert re.search(r"^5 passed", said[".venv/bin/python -m pytest -q"], re.MULTILINE)


def test_rule_broken_as_in_the_tutorial_names_the_value(
    folder: Path,
) -> None:
    rule = FILES["example_rules/host_memory.py"]
    broken = rule.replace("state.longest >= parameters.patience", "state.longest > parameters.patience")
    assert broken != rule
    (folder / "example_rules" / "host_memory.py").write_text(broken, encoding="utf-8")
    done = run(".venv/bin/python -m pytest -q", folder)
    (folder / "example_rules" / "host_memory.py").write_text(rule, encoding="utf-8")
    assert done.returncode == 1
    assert "AssertionError: at 20: HostMemory did not fire. It says about the job: OK" in done.stdout


def test_module_outside_the_working_folder_says_where_it_looked(folder: Path, tmp_path: Path) -> None:
    command = FIRES.replace("./leaky-job", str(folder)).replace(".venv", str(folder / ".venv"))
    done = run(command, tmp_path)
    assert done.returncode == 2
    assert "module is 'example_rules', expected a module of" in done.stderr.replace("\n", " ")
    assert "or of Python's path: call it in the folder that holds the module" in done.stderr.replace("\n", " ")
