"""The collector's wheel in an empty environment: what a training image gets. Needs the package index, and no more."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.bundling import find_uv
from infra.places import PROJECT_ROOT


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


def test_wheel_is_typed_and_holds_only_the_collector(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "trainguard_collector/py.typed" in names
    assert {name.split("/")[0] for name in names} == {
        "trainguard_collector",
        "trainguard_collector-1.0.0.dist-info",
        "trainguard_collector_start.pth",
    }


def test_wheel_installs_with_two_libraries(python: Path) -> None:
    listed = run(find_uv(), "pip", "list", "--quiet", "--format", "freeze", "--python", python, cwd=python.parent)
    names = {line.split("==")[0] for line in listed.stdout.splitlines()}
    assert names == {"trainguard-collector", "psutil", "nvidia-ml-py"}


def until_sampled(folder: Path) -> tuple[str, ...]:
    """Return a command that ends a moment after the sampler beside it has begun to write its first minute."""
    wait = "for i in {1..300}; do compgen -G '%s/spool/*/*.part' > /dev/null && break; sleep 0.05; done; sleep 0.3"
    return "bash", "-c", wait % folder


def test_wrapped_command_is_sampled_in_an_empty_environment(python: Path, tmp_path: Path) -> None:
    options = ("--output", tmp_path, "--job", "run-1", "--interval-ms", "100")
    spool = {"TRAINGUARD_SPOOL": str(tmp_path / "spool")}
    command = [str(each) for each in (python, "-m", "trainguard_collector", *options, "--", *until_sampled(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=spool | {"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.glob("run-1/profiler-output/system/incremental/*/*.json"))
    assert json.loads((tmp_path / "run-1/job.json").read_bytes())["status"] == "Completed"
    assert run(python, "-c", "import boto3", cwd=tmp_path).returncode == 1


def test_s3_output_without_boto3_runs_and_keeps_minutes(python: Path, tmp_path: Path) -> None:
    spool = {"TRAINGUARD_SPOOL": str(tmp_path / "spool"), "TRAINGUARD_FINISH_S": "1", "PATH": "/usr/bin:/bin"}
    options = ("--output", "s3://no-such-bucket", "--job", "run-1", "--node", "a", "--interval-ms", "100")
    command = [str(each) for each in (python, "-m", "trainguard_collector", *options, "--", *until_sampled(tmp_path))]
    assert subprocess.run(command, capture_output=True, cwd=tmp_path, env=spool).returncode == 0
    assert list(tmp_path.glob("spool/run-1.a/*.json"))


def autostarted(python: Path, folder: Path, *words: object, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in an image with the collector, with the variable that starts it."""
    variables = {
        "PATH": "/usr/bin:/bin",
        "TRAINGUARD_OUTPUT": str(folder / "output"),
        "TRAINGUARD_SPOOL": str(folder / "spool"),
        "TRAINGUARD_INTERVAL_MS": "100",
        "TRAINGUARD_JOB": "run-1",
        "TRAINGUARD_AUTOSTART": "0.3",
    }
    command = [str(each) for each in (python, *words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**variables, **more})


def test_variable_alone_samples_a_script_and_its_children_once(python: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, pathlib, subprocess, sys, time\n"
        "until = time.monotonic() + 30.0\n"
        "while time.monotonic() < until and not pathlib.Path('output/run-1/job.json').exists(): time.sleep(0.1)\n"
        "time.sleep(1.0)\n"
        "inner = [sys.executable, '-c', 'import os; print(os.environ[\"TRAINGUARD_COLLECTOR_PID\"])']\n"
        "print(os.getpid() == int(subprocess.run(inner, capture_output=True, text=True).stdout))\n"
        "sys.exit(3)\n"
    )
    done = autostarted(python, tmp_path, "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (3, "True\n", "")
    assert list(tmp_path.glob("output/run-1/profiler-output/system/incremental/*/*.json"))
    assert len(list(tmp_path.glob("output/run-1/collector/*.status.json"))) == 1


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (("-c", "import time; time.sleep(0.8)"), {}),
        (("quick.py",), {}),
        (("train.py",), {"TRAINGUARD_AUTOSTART": "0"}),
        (("train.py",), {"LOCAL_RANK": "1"}),
    ],
    ids=["no script", "too short", "switched off", "another rank"],
)
def test_excluded_process_leaves_nothing(
    words: tuple[str, ...], more: dict[str, str], python: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(0.8)")
    (tmp_path / "quick.py").write_text("")
    done = autostarted(python, tmp_path, *words, **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "output").exists()


def test_unusable_setting_logs_one_line_and_the_script_runs(python: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    done = autostarted(python, tmp_path, "train.py", TRAINGUARD_INTERVAL_MS="7")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert "TRAINGUARD_INTERVAL_MS is 7" in line


def test_nothing_is_imported_without_the_variable(python: Path, tmp_path: Path) -> None:
    (tmp_path / "loaded.py").write_text("import sys; print(any(name.startswith('trainguard') for name in sys.modules))")
    assert autostarted(python, tmp_path, "loaded.py", TRAINGUARD_OUTPUT="").stdout == "False\n"
