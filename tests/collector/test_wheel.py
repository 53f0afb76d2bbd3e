"""The collector's wheel in an empty environment: what a training image gets. Needs the package index, and no more."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.bundling import PROJECT_ROOT, find_uv


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(each) for each in command], capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(find_uv(), "build", "--quiet", "--wheel", "--out-dir", folder, PROJECT_ROOT / "collector", cwd=folder)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    environment = wheel.parent / "environment"
    python = environment / "bin" / "python"
    made = run(find_uv(), "venv", "--quiet", "--python", sys.executable, environment, cwd=wheel.parent)
    assert made.returncode == 0, made.stderr
    installed = run(find_uv(), "pip", "install", "--quiet", "--python", python, wheel, cwd=wheel.parent)
    assert installed.returncode == 0, installed.stderr
    return python


def test_given_the_wheel_when_listed_then_it_is_typed_and_holds_the_collector_alone(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "trainguard_collector/py.typed" in names
    assert {name.split("/")[0] for name in names} == {
        "trainguard_collector",
        "trainguard_collector-0.1.0.dist-info",
    }


def test_given_an_empty_environment_when_the_wheel_is_installed_then_two_libraries_come_with_it(python: Path) -> None:
    listed = run(find_uv(), "pip", "list", "--quiet", "--format", "freeze", "--python", python, cwd=python.parent)
    names = {line.split("==")[0] for line in listed.stdout.splitlines()}
    assert names == {"trainguard-collector", "psutil", "nvidia-ml-py"}


def test_given_an_empty_environment_when_a_command_is_wrapped_then_it_is_sampled(python: Path, tmp_path: Path) -> None:
    options = ("--output", tmp_path, "--job", "run-1", "--interval-ms", "100")
    spool = {"TRAINGUARD_SPOOL": str(tmp_path / "spool")}
    command = [str(each) for each in (python, "-m", "trainguard_collector", *options, "--", "bash", "-c", "sleep 1")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=spool | {"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.glob("run-1/profiler-output/system/incremental/*/*.json"))
    assert json.loads((tmp_path / "run-1/job.json").read_bytes())["status"] == "Completed"
    assert run(python, "-c", "import boto3", cwd=tmp_path).returncode == 1


def test_given_no_boto3_when_the_output_is_in_s3_then_the_command_runs_and_the_minutes_stay(
    python: Path, tmp_path: Path
) -> None:
    spool = {"TRAINGUARD_SPOOL": str(tmp_path / "spool"), "TRAINGUARD_FINISH_S": "1", "PATH": "/usr/bin:/bin"}
    options = ("--output", "s3://no-such-bucket", "--job", "run-1", "--node", "a", "--interval-ms", "100")
    command = [str(each) for each in (python, "-m", "trainguard_collector", *options, "--", "bash", "-c", "sleep 1")]
    assert subprocess.run(command, capture_output=True, cwd=tmp_path, env=spool).returncode == 0
    assert list(tmp_path.glob("spool/run-1.a/*.json"))
