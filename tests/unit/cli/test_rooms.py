"""The rooms of the command line: commands over services over output, no circles, each option written once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import trainguard.cli
from tests.unit.cli.test_command_line import LEAVES

ROOT = Path(trainguard.cli.__file__).parent
PACKAGE = "trainguard.cli"
BELOW = {
    "options": set[str](),
    "version": set[str](),
    "help_examples": set[str](),
    "output": {"output"},
    "services": {"services", "output"},
    "doctor": {"doctor", "services", "output", "version"},
    "commands": {"doctor", "services", "output", "options"},
    "main": {"commands", "options", "help_examples", "version"},
}
"""Which rooms a room may import; a command imports its own package besides, and no other command's."""

TWO_MEANINGS = {"--nodes"}
"""Of `status` the rows of each node, of `cost` how many nodes there are: both are public."""


def modules() -> dict[str, Path]:
    """Return the modules by their names, such as ``output.blocks``."""
    files = (file for file in ROOT.rglob("*.py") if file.name != "__init__.py")
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}


MODULES = modules()


def imported(file: Path) -> Iterator[str]:
    """Yield what a file imports anywhere in it, also inside of functions and for types alone."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix(f"{PACKAGE}.") in MODULES else str(node.module)


def of_command_line(module: str) -> set[str]:
    """Return the modules of the command line that a module of it imports."""
    found = {name for name in imported(MODULES[module]) if name.startswith(f"{PACKAGE}.")}
    return {name.removeprefix(f"{PACKAGE}.") for name in found}


def command_of(module: str) -> str | None:
    """Return whose package a module is in, if in a command's."""
    room, *below = module.split(".")
    return below[0] if room == "commands" else None


def test_given_the_rooms_when_listed_then_each_has_its_place() -> None:
    assert {name.partition(".")[0] for name in MODULES} == set(BELOW)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_given_a_module_when_its_imports_are_read_then_none_leads_up_or_into_another_command(module: str) -> None:
    room = module.partition(".")[0]
    for name in of_command_line(module):
        own = room == "commands" and command_of(name) == command_of(module)
        assert own or name.partition(".")[0] in BELOW[room], f"{module} imports {name}"


def test_given_the_imports_of_all_modules_when_followed_then_there_is_no_circle() -> None:
    tuple(TopologicalSorter({name: of_command_line(name) for name in MODULES}).static_order())


@pytest.mark.parametrize("module", sorted(MODULES))
def test_given_a_module_when_its_imports_are_read_then_output_alone_renders(module: str) -> None:
    renders = {name for name in imported(MODULES[module]) if name.partition(".")[0] == "rich"}
    assert not renders or module.startswith("output.")


def written_options() -> dict[str, list[str]]:
    """Return each option's name with the modules that write it, once for each time."""
    found = defaultdict(list)
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option":
                names = [ast.literal_eval(each) for each in node.args if isinstance(each, ast.Constant)]
                for name in names:
                    found[name].append(module)
    return found


def test_given_an_option_when_its_declarations_are_counted_then_there_is_one() -> None:
    more = {name: places for name, places in written_options().items() if len(places) > 1}
    assert set(more) == TWO_MEANINGS


def test_given_an_option_of_several_commands_when_looked_up_then_it_is_written_where_they_all_find_it() -> None:
    commands = defaultdict(set)
    for command, found in LEAVES.items():
        for option in found.params:
            for name in option.opts:
                commands[name].add(command)
    shared = {name for name, having in commands.items() if len(having) > 1 and re.match("--", name)}
    written = written_options()
    assert {"--json", "--stack", "--region", "--rule", "--out", "--prices", "--instance-type"} <= shared
    assert {name: written[name] for name in shared - TWO_MEANINGS - {"--help"}} == {
        name: ["options"] for name in shared - TWO_MEANINGS - {"--help"}
    }
