"""The wheel in an empty environment: what a rule author gets."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.bundling import find_uv
from infra.places import PROJECT_ROOT

AUTHORS = """\
from trainguard.testing import Outcome, SyntheticJob
job = SyntheticJob(minutes=5).with_series("cpu", 90.0)
def of(outcome: Outcome) -> str: return outcome.row.finding.reason
minutes: str = job.minutes
reveal_type(job)
"""


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(each) for each in command], capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(find_uv(), "build", "--quiet", "--wheel", "--out-dir", folder, PROJECT_ROOT, cwd=folder)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """Return the Python of an environment that holds the wheel, what it needs, and nothing else."""
    environment = wheel.parent / "environment"
    python = environment / "bin" / "python"
    made = run(find_uv(), "venv", "--quiet", "--python", sys.executable, environment, cwd=wheel.parent)
    assert made.returncode == 0, made.stderr
    installed = run(find_uv(), "pip", "install", "--quiet", "--python", python, wheel, cwd=wheel.parent)
    assert installed.returncode == 0, installed.stderr
    return python


def test_wheel_is_typed_and_holds_the_kit(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"trainguard/py.typed", "trainguard/testing/__init__.py"} <= names
    assert not [name for name in names if "tests" in name or name.endswith(".pyc")]


def test_kit_of_an_installed_wheel_runs_without_pytest(python: Path, tmp_path: Path) -> None:
    done = run(python, "-m", "doctest", PROJECT_ROOT / "rules_layer/trainguard/testing/__init__.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert run(python, "-c", "import pytest", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("is_script", [True, False], ids=["script", "module"])
def test_command_without_extras_says_what_to_install(python: Path, is_script: bool, tmp_path: Path) -> None:
    command = [python.parent / "trainguard"] if is_script else [python, "-m", "trainguard"]
    done = run(*command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "trainguard: the command line needs typer, which is not installed. "
        "Install the extra: pip install 'trainguard[cli]'\n"
    )


def test_wheel_without_extras_installs_five_libraries(python: Path) -> None:
    listed = run(find_uv(), "pip", "list", "--quiet", "--format", "freeze", "--python", python, cwd=python.parent)
    assert sorted(line.partition("==")[0] for line in listed.stdout.splitlines()) == [
        *("google-crc32c", "jinja2", "markupsafe", "msgspec", "numpy", "protobuf", "trainguard"),
    ]


def test_wheel_without_extras_reports_a_folder_in_python(python: Path, tmp_path: Path) -> None:
    made = "from trainguard.testing import SyntheticJob, write_profile; write_profile(SyntheticJob(minutes=3), 'job')"
    assert run(python, "-c", made, cwd=tmp_path).returncode == 0
    said = "import trainguard; report = trainguard.analyze('job'); print(report.job, report.save('out')['report.json'])"
    done = run(python, "-c", said, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "job out/report.json\n"), done.stderr


def test_types_of_trainguard_are_known_to_a_type_checker(python: Path, tmp_path: Path) -> None:
    (tmp_path / "author.py").write_text(AUTHORS, encoding="utf-8")
    checked = run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", python),
        *("--cache-dir", tmp_path / "cache", "author.py"),
        cwd=tmp_path,
    )
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, checked.stdout
    assert errors[0].startswith('author.py:4: error: Incompatible types in assignment (expression has type "int"')
    assert 'Revealed type is "trainguard.testing.job.SyntheticJob"' in checked.stdout
