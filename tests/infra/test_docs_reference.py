"""The reference of the command line is what the help of its commands says, and the same wherever it is made."""

import os
import re
import subprocess
import sys

from docs.site.reference import kernel_rules, reference
from tests.infra.synthesis import ROOT
from tests.unit.cli.test_command_line import LEAVES, examples
from trainguard.kernels.rules.registry import KERNEL_RULES


def section(command: str) -> str:
    """Return what the page says about a command."""
    _, found, after = f"{reference()}\n## ".partition(f"\n## {command}\n")
    assert found, command
    return after.partition("\n## ")[0]


def test_the_page_has_each_option_and_example_once() -> None:
    for name, command in LEAVES.items():
        listed = re.findall(r"^- `([^`]+)`: \S", section(name), re.MULTILINE)
        words = {word for parameter in command.params for word in parameter.opts if word.startswith("--")}
        assert sorted(each.split()[0] for each in listed if each.startswith("--")) == sorted(words - {"--help"}), name
        assert re.findall(r"^\$ (.*)$", section(name), re.MULTILINE) == examples(command), name
        (usage,) = re.findall(r"^trainguard .*$", section(name), re.MULTILINE)
        assert re.fullmatch(rf"trainguard {name} \[OPTIONS\]( [A-Z|]+(\.\.\.)?| \[[A-Z]+\])*", usage), name


def test_the_page_of_kernel_rules_has_each_once() -> None:
    assert re.findall(r"^\| `([\w/]+)` \| \w", kernel_rules(), re.MULTILINE) == [rule.name for rule in KERNEL_RULES]


def test_page_is_independent_of_terminal_and_environment() -> None:
    code = "import sys; from docs.site.reference import reference; sys.stdout.buffer.write(reference().encode())"
    settings = {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb", "LC_ALL": "C", "TRAINGUARD_STACK": "Another"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | settings, capture_output=True, check=True
    )
    assert done.stdout.decode() == reference()
