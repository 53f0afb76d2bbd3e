"""`trainguard` as a whole: every command has help with examples, --json, and its place on the page."""

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from trainguard.cli.commands.cost.run import CostDocument
from trainguard.cli.commands.explain.explanation import Explanation
from trainguard.cli.commands.jobs.command import StatusOf
from trainguard.cli.commands.jobs.run import JobsDocument
from trainguard.cli.commands.open.run import Link
from trainguard.cli.commands.params.run import ParametersDocument, RulesDocument
from trainguard.cli.commands.prices.show import PricesDocument
from trainguard.cli.commands.prices.update import UpdateDocument
from trainguard.cli.commands.status.job_status import JobDocument
from trainguard.cli.commands.status.run import ActiveDocument
from trainguard.cli.commands.stops.run import SwitchDocument
from trainguard.cli.help_examples import list_examples, split_docstring
from trainguard.cli.main import app
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.listing.entries import KernelList
from trainguard.records import JobStatus
from trainguard.report.job_verdict_document import JobVerdict

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "jobs": JobsDocument,
    "status": ActiveDocument,
    "status JOB": JobDocument,
    "verdict": JobVerdict,
    "explain": Explanation,
    "open": Link,
    "cost": CostDocument,
    "kernels": KernelProfiles,
    "kernels --list": KernelList,
    "params": RulesDocument,
    "params RULE": ParametersDocument,
    "prices": PricesDocument,
    "prices update": UpdateDocument,
    "stops": SwitchDocument,
}

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


def test_given_the_command_line_when_listed_then_it_has_these_commands() -> None:
    assert TOP == [
        "alerts", "analyze", "cost", "doctor", "explain", "jobs", "kernels", "notifications", "open", "params",
        "prices", "replay", "report", "status", "stops", "verdict",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_given_a_command_when_its_help_is_read_then_it_says_what_it_does_and_ends_in_examples_that_can_be_typed(
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
def test_given_a_command_when_its_options_are_read_then_each_says_what_it_is_for_and_one_is_json(name: str) -> None:
    options = {word: option for option in LEAVES[name].params for word in option.opts}
    assert "--json" in options
    assert all(getattr(option, "help", None) for option in options.values())


@pytest.mark.parametrize("name", LEAVES)
def test_given_a_command_when_helped_then_the_examples_stand_at_the_end(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    last = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    written = examples(LEAVES[name])
    assert last[-len(written) - 1 :] == ["Examples:", *written]


@pytest.mark.parametrize("name", TOP)
def test_given_a_command_when_the_page_is_read_then_it_has_a_section_an_example_and_a_document(name: str) -> None:
    _, found, after = PAGE.partition(f"\n## {name}\n")
    assert found
    section = after.partition("\n## ")[0]
    assert re.search(rf"^\$ trainguard {name}\b", section, re.MULTILINE)
    assert f"\n| [`{name}`](#{name}) |" in PAGE
    assert re.search(rf"^\| `{name}` \| `schema_version`", PAGE, re.MULTILINE)


def test_given_the_page_when_its_examples_are_typed_then_the_command_line_can_read_them() -> None:
    typed = re.findall(r"^\$ (trainguard .*)$", PAGE, re.MULTILINE)
    assert {line.split()[1] for line in typed} == set(TOP)
    for line in typed:
        parse(whole(), "trainguard", shlex.split(line)[1:])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_given_a_document_when_the_page_is_read_then_its_fields_stand_there_in_order(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [field.name for field in msgspec.structs.fields(DOCUMENTS[name])]


def test_given_a_docstring_when_split_then_its_paragraphs_are_lines_and_its_examples_are_apart() -> None:
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


def test_given_an_example_with_brackets_when_helped_then_they_are_shown() -> None:
    own = typer.Typer(rich_markup_mode="rich")

    @own.command()
    def only() -> None:
        """Do it.

        Examples: `only [x]`
        """

    list_examples(own)
    assert "only [x]" in CliRunner().invoke(own, ["--help"]).stdout


def test_given_the_statuses_that_can_be_asked_for_when_compared_then_they_are_those_of_jobs() -> None:
    assert [each.value for each in StatusOf] == [each.value for each in JobStatus]


def test_given_the_version_asked_for_when_run_then_it_is_the_packages() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"trainguard {version('trainguard')}\n")


@pytest.mark.parametrize("words", [["no-such-command"], ["jobs", "--no-such-option"], ["explain", "only-a-job"]])
def test_given_words_that_it_does_not_know_when_run_then_it_says_so_and_exits_with_2(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
