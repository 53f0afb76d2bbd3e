"""The reference of the command line is what the help of its commands says, and the same wherever it is written."""

import os
import re
import subprocess
import sys

import pytest

from docs.site.reference import PAGE, reference
from tests.infra.synthesis import ROOT
from tests.unit.cli.test_command_line import LEAVES, examples


def section(command: str) -> str:
    """Return what the page says of a command."""
    _, found, after = f"{PAGE.read_text('utf-8')}\n## ".partition(f"\n## {command}\n")
    assert found, command
    return after.partition("\n## ")[0]


def test_given_the_commands_when_their_reference_is_written_then_it_is_the_page() -> None:
    assert PAGE.read_text("utf-8") == reference(), "the help of a command has changed: call `make reference`"


@pytest.mark.parametrize("name", LEAVES)
def test_given_a_command_when_the_page_is_read_then_each_of_its_options_and_examples_is_there_once(name: str) -> None:
    listed = re.findall(r"^- `([^`]+)`: \S", section(name), re.MULTILINE)
    words = {word for parameter in LEAVES[name].params for word in parameter.opts if word.startswith("--")}
    assert sorted(each.split()[0] for each in listed if each.startswith("--")) == sorted(words - {"--help"})
    assert re.findall(r"^\$ (.*)$", section(name), re.MULTILINE) == examples(LEAVES[name])
    (usage,) = re.findall(r"^trainguard .*$", section(name), re.MULTILINE)
    assert re.fullmatch(rf"trainguard {name} \[OPTIONS\]( [A-Z|]+(\.\.\.)?| \[[A-Z]+\])*", usage)


def test_given_another_terminal_and_environment_when_written_then_the_page_is_the_same() -> None:
    code = "import sys; from docs.site.reference import reference; sys.stdout.buffer.write(reference().encode())"
    settings = {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb", "LC_ALL": "C", "TRAINGUARD_STACK": "Another"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | settings, capture_output=True, check=True
    )
    assert done.stdout.decode() == PAGE.read_text("utf-8")
