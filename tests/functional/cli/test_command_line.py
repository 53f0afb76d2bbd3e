"""`trainguard` as a process: its help on a terminal, its completion, and what it imports."""

import re
import subprocess
import sys

import pytest

from tests.functional.cli.test_process import shown
from tests.unit.cli.test_command_line import TOP


def test_given_a_terminal_when_help_is_asked_for_then_every_command_is_listed_with_its_first_sentence() -> None:
    text = shown([sys.executable, "-m", "trainguard", "--help"], {"TERM": "xterm-256color", "NO_COLOR": "1"})
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for name in TOP:
        assert re.search(rf"│ {name} +[A-Z]", text)
    assert "--install-completion" in text


@pytest.mark.parametrize(("typed", "expected"), [("do", ["doctor"]), ("re", ["replay", "report"])])
def test_given_the_beginning_of_a_command_when_completed_then_the_shell_is_offered_it(
    typed: str, expected: list[str]
) -> None:
    code = "import trainguard.cli.main as main; main.app(prog_name='trainguard')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"_TRAINGUARD_COMPLETE": "complete_bash", "COMP_WORDS": f"trainguard {typed}", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == expected


def test_given_every_command_imported_when_nothing_ran_then_no_library_was_loaded_that_takes_time() -> None:
    heavy = ("numpy", "botocore", "boto3", "msgspec", "jinja2", "rich.table")
    code = f"import sys, trainguard.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
