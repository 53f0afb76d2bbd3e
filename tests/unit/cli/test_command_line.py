"""`trainguard` as a whole: every command has help with examples, --json, and its place on the page."""

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from docs.site.documents import DOCUMENTS, field_names
from docs.site.reference import reference
from trainguard.cli.command import complete, split_docstring
from trainguard.cli.commands.jobs import StatusOf
from trainguard.cli.main import app
from trainguard.core.records import JobStatus

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
Command = TyperCommand | TyperGroup


def whole() -> TyperGroup:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def leaves(group: TyperGroup, *above: str) -> Iterator[tuple[str, TyperCommand]]:
    """Yield every command that does something, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from leaves(command, *above, name)
        else:
            assert isinstance(command, TyperCommand)
            yield " ".join((*above, name)), command


LEAVES = dict(leaves(whole()))
TOP = sorted(whole().commands)


def examples(command: Command) -> list[str]:
    heading, *lines = (command.epilog or "").split("\n")
    assert heading in {"Examples:", ""}
    return [line.strip() for line in lines]


def parse(command: Command, name: str, words: list[str]) -> None:
    """Read words as the command line does, and run nothing; raises where they cannot be read."""
    context = command.make_context(name, list(words))
    if isinstance(command, TyperGroup):
        chosen, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert isinstance(below, TyperCommand | TyperGroup)
        parse(below, str(chosen), rest)


def test_command_line_has_exactly_these_commands() -> None:
    assert TOP == [
        "alerts", "analyze", "brake", "cost", "doctor", "explain", "gate", "hang", "jobs", "kernels", "notifications",
        "open", "params", "prices", "replay", "report", "status", "stops", "stragglers", "verdict",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_help_of_a_command_ends_in_examples_that_can_be_typed(
    name: str,
) -> None:
    command = LEAVES[name]
    assert re.match(r"[A-Z][^\n]+\.", command.help or "")
    assert examples(command)
    for example in examples(command):
        program, *words = shlex.split(example)
        assert program == "trainguard"
        assert name.startswith(words[0])
        parse(whole(), "trainguard", words)


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_has_help_and_one_of_them_is_json(name: str) -> None:
    options = {word: option for option in LEAVES[name].params for word in option.opts}
    assert "--json" in options
    assert all(getattr(option, "help", None) for option in options.values())


@pytest.mark.parametrize("name", LEAVES)
def test_examples_are_at_the_end_of_the_help(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    last = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    written = examples(LEAVES[name])
    assert last[-len(written) - 1 :] == ["Examples:", *written]


@pytest.mark.parametrize("name", TOP)
def test_the_page_lists_a_command_and_its_document(name: str) -> None:
    assert re.search(rf"^\|.*\[`{name}`\]\([\w.#/-]+\)", PAGE, re.MULTILINE)
    listed = rf"^(\| `{name}` \||Fields of `{name} --json`:) `schema_version`"
    assert re.search(listed, PAGE + reference(), re.MULTILINE)


def test_the_examples_of_the_page_can_be_read() -> None:
    typed = re.findall(r"^\$ (trainguard .*)$", PAGE, re.MULTILINE)
    assert len(typed) > 10
    for line in typed:
        parse(whole(), "trainguard", shlex.split(line)[1:])


@pytest.mark.parametrize("section", DOCUMENTS)
def test_the_reference_has_each_field_of_a_document(section: str) -> None:
    assert section in {*TOP, *LEAVES}
    for typed in DOCUMENTS[section]:
        (row,) = re.findall(rf"^Fields of `{typed} --json`: (.*)\.$", reference(), re.MULTILINE)
        assert re.findall(r"`(\w+)`", row) == field_names(section, typed)


def test_docstring_is_split_into_paragraphs_and_examples() -> None:
    def command() -> None:
        """Do this
        and that.

        It takes
        long.

        Examples: `trainguard this`,
        `trainguard that [x]`
        """

    help_text, found = split_docstring(command)
    assert help_text == "Do this and that.\n\nIt takes long."
    assert found == ["trainguard this", "trainguard that [x]"]


def test_brackets_in_an_example_are_shown() -> None:
    own = typer.Typer(rich_markup_mode="rich")

    @own.command()
    def only() -> None:
        """Do it.

        Examples: `only [x]`
        """

    complete(own)
    assert "only [x]" in CliRunner().invoke(own, ["--help"]).stdout


def test_selectable_statuses_are_those_of_jobs() -> None:
    assert list(get_args(StatusOf)) == [each.value for each in JobStatus]


def test_version_option_prints_the_version_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"trainguard {version('trainguard')}\n")


@pytest.mark.parametrize("words", [["no-such-command"], ["jobs", "--no-such-option"], ["explain", "only-a-job"]])
def test_unknown_arguments_are_named_and_exit_with_2(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
