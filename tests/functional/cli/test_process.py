"""`trainguard` as a process: its streams, its exit codes, an interrupt, a reader that goes away."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.synthesis import minute_of_node
from tests.unit.local.places import write
from trainguard.core.layout import hour_folder

# Lets a command be interrupted: what a shell starts in the background ignores it, and all that it starts.
AT_A_TERMINAL = (
    *(sys.executable, "-c"),
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)

COMMAND = [sys.executable, "-m", "trainguard", "analyze"]
START = 1_795_248_000
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a profile that takes seconds to analyse: 1,000 minutes, which are one file under many names."""
    folder = tmp_path_factory.mktemp("long")
    body = folder / "minute"
    body.write_bytes(minute_of_node(cores=16, minute=START))
    for minute in range(START, START + 60_000, 60):
        place = folder / "profiler-output" / "system" / "incremental" / hour_folder(minute)
        place.mkdir(parents=True, exist_ok=True)
        os.link(body, place / f"{minute}.algo-1.json")
    return folder


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_piped_output_has_no_progress_and_no_colour(job: Path, tmp_path: Path) -> None:
    done = run(job, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "LowGPUUtilization" in done.stdout
    assert "\x1b" not in done.stdout
    assert "objects" not in done.stdout


def test_json_parses_for_a_folder_name_that_is_no_text(job: Path, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"job\xff")
    place.symlink_to(job)
    done = run(place, "--out", tmp_path / os.fsdecode(b"out\xff"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["source"].endswith("job?/profiler-output")


def test_missing_profile_is_named_on_stderr_and_exits_2(tmp_path: Path) -> None:
    done = run(tmp_path, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trainguard: source ")
    assert done.stderr.count("\n") == 1


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Yield both ends of a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def shown(words: list[str], environment: dict[str, str]) -> str:
    """Run a command on a terminal; return what it showed."""
    with terminal() as (ours, theirs):
        process = subprocess.Popen(words, stdout=theirs, stderr=theirs, env=os.environ | environment)
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65_536)
            except OSError:  # the other end was closed
                break
        assert process.wait(TIMEOUT_S) == 0
        return text.decode()


def test_terminal_shows_objects_bytes_and_time_covered(job: Path, tmp_path: Path) -> None:
    text = shown([*COMMAND, str(job), "--out", str(tmp_path)], {"TERM": "xterm-256color", "NO_COLOR": ""})
    count = len(list(job.rglob("*.json")))
    assert f"{count} of {count} objects" in text
    assert "0:13:" in text
    assert "covered" in text
    assert "\x1b[1;31m" in text or "\x1b[32m" in text


def test_terminal_without_colour_shows_windows_if_compatible(job: Path, tmp_path: Path) -> None:
    words = [*COMMAND, str(job), "--out", str(tmp_path), "--reading", "compatible"]
    text = shown(words, {"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert "\x1b[32m" not in text
    assert "\x1b[1;31m" not in text
    assert "LowGPUUtilization" in text
    found = re.search(r"(\d+) of \1 windows, 0:(\d\d):00 covered", text)
    assert found is not None
    assert int(found[1]) == int(found[2])


@pytest.mark.parametrize("words", [["--help"], ["report", "--help"], ["--version"]])
def test_closed_reader_of_help_ends_quietly_like_sigpipe(
    words: list[str],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trainguard", *words]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("reading", ["documented", "compatible"])
def test_interrupt_exits_130_and_leaves_nothing_half_written(long_job: Path, tmp_path: Path, reading: str) -> None:
    out = tmp_path / "out"
    words = [*AT_A_TERMINAL, *COMMAND, str(long_job), "--out", str(out), "--reading", reading]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not out.exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and its workers
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.endswith("trainguard: interrupted\n")
    assert list(out.iterdir()) == []


def test_closed_reader_of_verdicts_gives_no_traceback(job: Path, tmp_path: Path) -> None:
    words = [*COMMAND, str(job), "--out", str(tmp_path), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 0
    assert process.stderr.read() == ""
    assert (tmp_path / "report.json").exists()


def test_help_imports_nothing_of_the_engine() -> None:
    code = "import sys, trainguard.cli.main; print([n for n in ('numpy', 'botocore', 'msgspec') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unexpected_fault_has_another_exit_code_than_a_fire(job: Path, tmp_path: Path) -> None:
    code = (
        "import sys, trainguard.cli.commands.analyze.outcome as documented, trainguard.cli.main as main\n"
        "documented.documented = lambda place, *_, **__: place.nothing\n"
        f"sys.argv = ['trainguard', 'analyze', {str(job)!r}, '--out', {str(tmp_path)!r}, '--fail-on-fire']\n"
        "main.run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (70, "")
    assert "AttributeError" in done.stderr


def test_piped_stdout_still_shows_progress_on_stderr(job: Path, tmp_path: Path) -> None:
    with terminal() as (ours, theirs):
        environment = os.environ | {"TERM": "xterm-256color"}
        words = [*COMMAND, str(job), "--out", str(tmp_path)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=TIMEOUT_S)
        assert b"objects" in os.read(ours, 65_536)
    assert b"covered" not in done.stdout
