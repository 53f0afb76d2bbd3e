"""`trainguard` as a process: its help on a terminal, its completion, and what it imports."""

import re
import subprocess
import sys

import pytest

from tests.functional.cli.test_process import shown
from tests.unit.cli.test_command_line import TOP


def test_help_lists_every_command_with_its_first_sentence() -> None:
    text = shown([sys.executable, "-m", "trainguard", "--help"], {"TERM": "xterm-256color", "NO_COLOR": "1"})
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for name in TOP:
        assert re.search(rf"│ {name} +[A-Z]", text)
    assert "--install-completion" in text


@pytest.mark.parametrize(("typed", "expected"), [("do", ["doctor"]), ("re", ["replay", "report"])])
def test_shell_completion_offers_commands(typed: str, expected: list[str]) -> None:
    code = "import trainguard.cli.main as main; main.app(prog_name='trainguard')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"_TRAINGUARD_COMPLETE": "complete_bash", "COMP_WORDS": f"trainguard {typed}", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == expected


def test_importing_commands_loads_no_slow_library() -> None:
    heavy = ("numpy", "botocore", "boto3", "msgspec", "jinja2", "rich.table")
    code = f"import sys, trainguard.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
