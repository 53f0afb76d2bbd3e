"""The action of the gate: its steps run here as a runner of GitHub runs them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ACTION = Path(__file__).parents[4] / ".github" / "actions" / "gate" / "action.yml"
RUN = "step,step_time_s\n0,{0}\n1,{0}\n2,{0}\n3,{0}\n"


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    return found


def gate_step() -> dict[str, Any]:
    return next(step for step in action()["runs"]["steps"] if step.get("id") == "gate")


def run_step(folder: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the step of the gate with its inputs; return the exit code, the summary and the outputs."""
    given = {name: each.get("default", "") for name, each in action()["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in inputs.items()
    }
    env = {}
    for variable, value in gate_step()["env"].items():
        name = value.removeprefix("${{ inputs.").removesuffix(" }}")
        env[variable] = given[name]
    program = folder / "bin" / "trainguard"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainguard "$@"\n')
    program.chmod(0o755)
    summary, outputs = folder / "summary", folder / "outputs"
    for file in (summary, outputs):
        file.write_text("")
    places = {"RUNNER_TEMP": folder, "GITHUB_STEP_SUMMARY": summary, "GITHUB_OUTPUT": outputs}
    env |= os.environ | env | {name: str(place) for name, place in places.items()}
    env["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    # As a runner starts bash.
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", gate_step()["run"]]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    return done.returncode, summary.read_text(), outputs.read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seconds in (("b0", 1.0), ("b1", 1.001), ("b2", 0.999), ("same", 1.0), ("slow", 1.1), ("near", 1.0155)):
        (tmp_path / f"{name}.csv").write_text(RUN.format(seconds))
    return tmp_path


def test_inputs_reach_no_script_but_by_the_environment() -> None:
    for step in action()["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]


@pytest.mark.parametrize(
    ("inputs", "code", "verdict"),
    [
        ({"candidate": "same.csv", "baseline": "b*.csv"}, 0, "pass"),
        ({"candidate": "slow.csv\n", "baseline": "b0.csv\nb1.csv\n"}, 1, "regression"),
        ({"candidate": "near.csv", "baseline": "b0.csv"}, 3, "inconclusive"),
        ({"candidate": "near.csv", "baseline": "b0.csv", "allow_inconclusive": "true"}, 0, "inconclusive"),
        ({"candidate": "slow.csv", "baseline": "b0.csv", "tolerance": "30%"}, 0, "pass"),
        ({"candidate": "$(touch made)", "baseline": "b0.csv"}, 2, None),
    ],
)
def test_the_step_answers_as_the_command(folder: Path, inputs: dict[str, str], code: int, verdict: str | None) -> None:
    ended, summary, outputs = run_step(folder, **inputs)
    assert ended == code
    assert not (folder / "made").exists()
    assert (f"verdict={verdict}\n" in outputs) == (verdict is not None)
    assert (f"trainguard gate: {verdict}" in summary) == (verdict is not None)
