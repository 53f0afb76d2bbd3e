"""`trainguard` as a process: its help on a terminal, its completion, and what it imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.cli.test_process import shown
from tests.support.kernel_traces import real_text
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


def imported(program: str, *names: str) -> list[str]:
    """Return which modules a program of its own has imported at its end; what it prints is dropped."""
    code = (
        "import contextlib, io, sys\n"
        f"with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n    {program}\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(re.findall(r"'([^']+)'", done.stdout))


def test_judging_a_trace_imports_nothing_of_jobs_or_pages(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.pt.trace.json"
    trace.write_bytes(real_text("a100_triton_kernel"))
    program = f"sys.argv = ['trainguard', 'kernels', {str(trace)!r}]; import trainguard.cli.main as main; main.run()"
    slow = ("pydantic", "email.message", "boto3", "jinja2", "rich.live", "rich.markdown")
    own = ("trainguard.core.records", "trainguard.core.ports", "trainguard.local.sources", "trainguard.formats.profile")
    assert imported(program, "trainguard.kernels.profile", *slow, *own) == ["trainguard.kernels.profile"]


@pytest.mark.parametrize("words", [["--help"], ["analyze", "--help"], ["doctor", "--stack", "x", "--help"]])
def test_help_is_shown_without_pydantic(words: list[str]) -> None:
    program = f"sys.argv = {['trainguard', *words]}; import trainguard.cli.main as main; main.run()"
    assert imported(program, "typer", "pydantic") == ["typer"]
