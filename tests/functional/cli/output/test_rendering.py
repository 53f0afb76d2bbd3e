"""What reads the command line as a process: a reader that goes away, and an encoding that lacks characters."""

import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "trainguard", "params", "StepOutlier"]


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_closed_reader_gives_no_traceback(how: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_unencodable_character_is_spelled_out() -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONIOENCODING": "ascii"}
    )
    assert "\\u2026" in done.stdout
