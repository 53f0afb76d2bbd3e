"""Installing, starting and stopping the emulator."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator import commands, launch
from emulator.errors import InstallError, StartError
from emulator.install import find_uv, install
from emulator.launch import running_emulator
from tests.localstack.emulator_kit import invoke, make_function, make_table, until

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack

START_AND_WAIT = """
import sys, time
from pathlib import Path
from emulator.launch import running_emulator
folder = Path(sys.argv[1])
with running_emulator(state_dir=folder, lambda_python=Path(sys.executable), log=folder / "log") as emulator:
    emulator.client("dynamodb").list_tables()
    print(emulator.endpoint, flush=True)
    time.sleep(60)
"""


def _processes_of(folder: Path) -> list[str]:
    """Return the command lines of the live processes whose environment names `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if str(folder).encode() in environment and command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launch.EXTERNAL_VARIABLE, raising=False)


def test_installed_environment_is_not_installed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installation = install()
    monkeypatch.setenv("UV", "/nonexistent/uv")
    monkeypatch.setenv("PATH", "")

    assert install() == installation


def test_missing_uv_error_says_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV", "/nowhere/uv")

    with pytest.raises(InstallError, match="/nowhere/uv"):
        find_uv()


def test_ended_block_leaves_no_emulator_process(tmp_path: Path) -> None:
    with running_emulator(state_dir=tmp_path, lambda_python=Path(sys.executable), log=tmp_path / "log") as emulator:
        make_table(emulator, "items")
        make_function(emulator, "echo", "def handler(event, context):\n    return event\n")
        assert invoke(emulator, "echo", {"n": 1}) == ({"n": 1}, None)
        assert len(_processes_of(tmp_path)) == 3

    until(lambda: not _processes_of(tmp_path), what="end of the emulator")


@pytest.mark.thorough
def test_killed_launcher_ends_the_emulator(tmp_path: Path) -> None:
    state, output = tmp_path / "state", tmp_path / "output"
    with output.open("wb") as stdout:
        launcher = commands.start([sys.executable, "-c", START_AND_WAIT, state], environment=os.environ, output=stdout)
    until(lambda: output.read_text().startswith("http://127.0.0.1:"), what="the emulator's address")
    assert len(_processes_of(state)) == 2

    launcher.kill()
    launcher.communicate()

    until(lambda: not _processes_of(state), what="end of the emulator")


def test_failed_localstack_start_ends_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_localstack = Path(sys.executable), tmp_path
    monkeypatch.setattr(launch, "install", lambda: without_localstack)

    with (
        pytest.raises(StartError, match=r"(?s)ended with 1 while starting.*No module named 'localstack'"),
        running_emulator(state_dir=tmp_path, lambda_python=Path(sys.executable), log=tmp_path / "log"),
    ):
        pass


def test_unreachable_external_endpoint_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launch.EXTERNAL_VARIABLE, "http://127.0.0.1:9")

    with (
        pytest.raises(StartError, match=r"http://127\.0\.0\.1:9: no LocalStack answers there"),
        running_emulator(state_dir=tmp_path, lambda_python=Path(sys.executable), log=tmp_path / "log"),
    ):
        pass


def test_named_running_localstack_is_used_and_left_running(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(launch.EXTERNAL_VARIABLE, emulator.endpoint + "/")

    with running_emulator(state_dir=tmp_path, lambda_python=Path(sys.executable), log=tmp_path / "log") as external:
        assert external.endpoint == emulator.endpoint
        assert external.log is None

    assert "LocalStack" in emulator.version
    emulator.client("s3").list_buckets()
