"""The tutorial on custom rules: its files are written and its commands are run, in an empty folder, in order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.synthesis import ROOT

_TUTORIAL = (ROOT / "docs" / "first-rule.md").read_text("utf-8")
EXAMPLE = (ROOT / "examples" / "example_rules" / "host_memory.py").read_text("utf-8")
_FILE = re.compile(r"`([a-z_/]+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = dict(_FILE.findall(_TUTORIAL))
_EXCERPT = re.compile(r"^```python\n( {8}.*?)^```", re.MULTILINE | re.DOTALL)
_OURS = (".venv/bin/python ", ".venv/bin/trainguard ", "echo ", "cp ")


def commands(text: str) -> list[str]:
    return [line for block in _CONSOLE.findall(text) for line in block.splitlines()]


LOCAL = [line for line in commands(_TUTORIAL[: _TUTORIAL.index("### 6. ")]) if line.startswith(_OURS)]
OTHERS = [line for line in commands(_TUTORIAL) if line not in LOCAL]
FIRES = ".venv/bin/trainguard analyze ./leaky-job --out report --rule example_rules.host_memory:HostMemory"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tutorial's folder, whose environment is that of the tests, before the first command that is run."""
    beside = tmp_path_factory.mktemp("beside")
    (beside / "trainguard").symlink_to(ROOT)
    folder = beside / "my-rules"
    folder.mkdir()
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/bin/bash", "-c", command], cwd=folder, capture_output=True, text=True)


def test_given_the_tutorial_when_read_then_every_step_is_there() -> None:
    assert set(FILES) == {"make_job.py"}
    assert FIRES in LOCAL
    programs = {shlex.split(line)[0] for line in OTHERS}
    assert programs == {"mkdir", "cd", "python3", ".venv/bin/pip", "make", "npx", "aws", ".venv/bin/trainguard"}
    assert [line for line in OTHERS if "rules_package=" in line] == [
        "npx cdk diff -c rules_package=../my-rules/example_rules",
        "npx cdk deploy -c rules_package=../my-rules/example_rules",
    ]


def test_tutorial_excerpt_matches_the_example() -> None:
    (excerpt,) = _EXCERPT.findall(_TUTORIAL)
    assert excerpt in EXAMPLE


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
    assert re.search(r"^10 passed", said[".venv/bin/python -m pytest -q"], re.MULTILINE)


def test_rule_broken_as_in_the_tutorial_names_the_value(
    folder: Path,
) -> None:
    broken = EXAMPLE.replace("state.longest >= parameters.patience", "state.longest > parameters.patience")
    assert broken != EXAMPLE
    (folder / "example_rules" / "host_memory.py").write_text(broken, encoding="utf-8")
    done = run(".venv/bin/python -m pytest -q", folder)
    (folder / "example_rules" / "host_memory.py").write_text(EXAMPLE, encoding="utf-8")
    assert done.returncode == 1
    assert "AssertionError: at 20: HostMemory did not fire. It says about the job: OK" in done.stdout


def test_module_outside_the_working_folder_says_where_it_looked(folder: Path, tmp_path: Path) -> None:
    command = FIRES.replace("./leaky-job", str(folder)).replace(".venv", str(folder / ".venv"))
    done = run(command, tmp_path)
    assert done.returncode == 2
    assert "module is 'example_rules', expected a module of" in done.stderr.replace("\n", " ")
    assert "or of Python's path: call it in the folder that holds the module" in done.stderr.replace("\n", " ")
