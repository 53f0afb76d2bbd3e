"""The rooms of the command line: commands over services over output, no circles, each option written once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import trainguard.cli
from tests.unit.cli.test_command_line import LEAVES

ROOT = Path(trainguard.cli.__file__).parent
PACKAGE = "trainguard.cli"
# Which rooms a room may import; a command imports its own package besides, and no other command's.
BELOW = {
    "options": set[str](),
    "version": set[str](),
    "output": {"output"},
    "services": {"services", "output", "options"},
    "doctor": {"doctor", "services", "output", "version"},
    "command": {"services", "output", "options"},
    "commands": {"doctor", "services", "output", "options", "command"},
    "main": {"commands", "options", "command", "version"},
}

# Of `status` the rows of each node, of `cost` how many nodes there are; of `plan` what the job is to be.
TWO_MEANINGS = {"--nodes", "--instance-type"}


def modules() -> dict[str, Path]:
    """Return the modules by their names, such as ``output.blocks``; a command is its package, ``commands.jobs``."""
    found = {}
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__init__":
            found[".".join(parts)] = file
        elif parts[0] == "commands" and len(parts) == 3:
            found[".".join(parts[:-1])] = file
    return found


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


def test_no_import_leads_up_or_into_another_command() -> None:
    for module in MODULES:
        room = module.partition(".")[0]
        for name in of_command_line(module):
            own = room == "commands" and command_of(name) == command_of(module)
            assert own or name.partition(".")[0] in BELOW[room], f"{module} imports {name}"


def test_imports_of_all_modules_have_no_cycle() -> None:
    tuple(TopologicalSorter({name: of_command_line(name) for name in MODULES}).static_order())


def test_output_alone_renders() -> None:
    def renders(module: str) -> bool:
        return any(name.partition(".")[0] == "rich" for name in imported(MODULES[module]))

    assert [module for module in MODULES if not module.startswith("output.") and renders(module)] == []


def written_options() -> dict[str, list[str]]:
    """Return each option's name with the modules that write it, once for each time."""
    found = defaultdict(list)
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.Option", "option", "partial"}:
                words = [ast.literal_eval(each) for each in node.args if isinstance(each, ast.Constant)]
                names = [word for word in words if str(word).startswith("--")]
                for name in names:
                    found[name].append(module)
    return found


def test_every_option_is_declared_once() -> None:
    more = {name: places for name, places in written_options().items() if len(places) > 1}
    assert set(more) == TWO_MEANINGS


def test_option_of_several_commands_is_declared_in_common() -> None:
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
