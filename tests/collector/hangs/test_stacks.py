"""Stacks of real processes: by ``faulthandler`` where they registered it, and by what stands in for py-spy."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.collector.runs import until
from trainguard.formats.hangs.stacks import is_stacks, main_thread
from trainguard_collector.hangs import stacks
from trainguard_collector.hangs.stacks import StackTaker, by_faulthandler
from trainguard_collector.objects import STACKS, Handover

SCRIPT = """
import signal, sys, time
from pathlib import Path
from trainguard_collector.recorder.hang_answers import register_stacks
def waits_for_data():
    print("ready", flush=True)
    time.sleep(600)
exec(sys.argv[2])
path = register_stacks(Path(sys.argv[1])) if "no" not in sys.argv else None
waits_for_data()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(first: str = "", *more: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", SCRIPT, str(tmp_path), first, *more]
        environment = {**os.environ, "TRAINGUARD_AUTOSTART": "0"}
        started.append(subprocess.Popen(words, text=True, stdout=subprocess.PIPE, env=environment))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.communicate()


@pytest.fixture
def taker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackTaker:
    monkeypatch.setattr(stacks, "_py_spy", lambda: None)
    return StackTaker(Handover(tmp_path, 10**9))


def test_registered_process_writes_its_stack_each_time(start: Start, taker: StackTaker) -> None:
    process = start()
    for _ in range(2):
        found = taker.stack(process.pid)
        assert found is not None
        assert (found[0], is_stacks(found[1])) == (".txt", True)
        assert [each.function for each in main_thread(found[1], "stack").frames] == ["waits_for_data", "<module>"]
        assert found[1].count(b"waits_for_data") == 1
    assert process.poll() is None


def test_process_that_has_not_registered_gets_no_signal(start: Start, taker: StackTaker, tmp_path: Path) -> None:
    process = start("", "no")
    (tmp_path / f"{process.pid}.{signal.SIGRTMAX - 2}{STACKS}").touch()
    assert taker.stack(process.pid) is None
    assert "and py-spy is not installed" in taker.faults["stacks"]
    time.sleep(0.2)
    assert process.poll() is None


def test_signal_without_a_handler_is_not_sent(start: Start, tmp_path: Path) -> None:
    process = start()
    (path,) = tmp_path.glob(f"{process.pid}.*")
    path.rename(tmp_path / f"{process.pid}.{int(signal.SIGTERM)}{STACKS}")
    assert by_faulthandler(tmp_path, process.pid) is None
    assert process.poll() is None


def test_handler_that_is_not_faulthandlers_gets_no_signal(start: Start, tmp_path: Path) -> None:
    number = int(signal.SIGRTMAX - 2)
    process = start(f"signal.signal({number}, lambda *_: sys.exit(3))", "no")
    (tmp_path / f"{process.pid}.{number}{STACKS}").touch()
    assert by_faulthandler(tmp_path, process.pid) is None
    time.sleep(0.2)
    assert process.poll() is None


def test_handler_of_the_script_is_never_replaced(start: Start, tmp_path: Path) -> None:
    number = signal.SIGRTMAX - 2
    process = start(f"signal.signal({int(number)}, lambda *_: print('mine', flush=True))")
    found = by_faulthandler(tmp_path, process.pid)
    assert found is not None
    process.send_signal(number)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"


def test_handler_that_python_does_not_know_is_kept(start: Start, tmp_path: Path) -> None:
    number = int(signal.SIGRTMAX - 2)
    own = tmp_path / "own"
    process = start(f"import faulthandler; faulthandler.register({number}, file=open({str(own)!r}, 'w'))")
    assert by_faulthandler(tmp_path, process.pid) is not None
    process.send_signal(number)
    until(lambda: "waits_for_data" in own.read_text())


@pytest.mark.parametrize("state", ["stopped", "gone"])
def test_process_without_an_answer_has_no_stack(
    state: str, start: Start, taker: StackTaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "FAULTHANDLER_S", 0.3)
    process = start()
    process.send_signal(signal.SIGSTOP if state == "stopped" else signal.SIGKILL)
    until(lambda: stacks.process_state(process.pid) in ("T", "Z"))
    assert taker.stack(process.pid) is None


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setattr(stacks, "_py_spy", lambda: str(program))


def test_stack_of_py_spy_has_no_values(
    start: Start, taker: StackTaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = {"name": "f", "filename": "a.py", "line": 3, "locals": [{"name": "key", "repr": "s3cret"}]}
    told = [{"thread_name": "MainThread", "frames": [frame], "process_info": {"command_line": "s3cret"}}]
    stand_in(tmp_path, monkeypatch, f"echo '{json.dumps(told)}'")
    found = taker.stack(start().pid)
    assert found is not None
    assert (found[0], b"s3cret" in found[1]) == (".json", False)
    assert str(main_thread(found[1], "stack").frames[0]) == "a.py:3 f"
    assert taker.faults == {}


REFUSAL = "echo 'Error: Permission Denied: try again as root' >&2; exit 1"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (REFUSAL, "Permission Denied"),
        ("exec sleep 60", "TimeoutExpired"),
        ("echo no json", "JSONDecodeError"),
        ("echo '[3]'", "TypeError"),
        ("echo '[{\"frames\": [7]}]'", "AttributeError"),
        ("head -c 5000000 /dev/zero", "no output"),
    ],
)
def test_failing_py_spy_is_told_and_faulthandler_asked(
    script: str, told: str, start: Start, taker: StackTaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "PY_SPY_S", 0.5)
    stand_in(tmp_path, monkeypatch, script)
    found = taker.stack(start().pid)
    assert found is not None
    assert found[0] == ".txt"
    assert told in taker.faults["stacks"]
    assert not list(tmp_path.glob("*.draft"))
