"""What makes a command of a function."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner, Result

from trainguard.cli.command import command, complete
from trainguard.cli.options import Where
from trainguard.cli.output.rendering import Line
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import RequestError

Name = Annotated[str, typer.Argument(help="A name.")]


def ran(function: Any, *words: str) -> Result:
    own = typer.Typer()
    own.command()(function)
    return CliRunner().invoke(own, list(words))


def found(**more: Any) -> CommandResult:
    return CommandResult(document={"schema_version": "1"}, blocks=[Line("Found.")], **more)


@command(fails_on_fire=True)
def look(name: Name, *, where: Where, as_json: bool) -> CommandResult:
    """Look."""
    return CommandResult(
        document={"name": name, "as_json": as_json}, blocks=[Line(f"{name} in {where.region}")], fired=name == "fires"
    )


def test_stack_options_become_one_parameter() -> None:
    result = ran(look, "job", "--region", "eu-west-1")
    assert (result.exit_code, result.stdout) == (0, "job in eu-west-1\n")


def test_json_option_prints_the_document_and_is_passed_on() -> None:
    assert json.loads(ran(look, "job", "--json").stdout) == {
        "schema_version": "1",
        "name": "job",
        "as_json": True,
    }


@pytest.mark.parametrize(
    ("words", "code"), [(["fires"], 0), (["fires", "--fail-on-fire"], 1), (["--fail-on-fire", "x"], 0)]
)
def test_given_a_fire_then_the_exit_code_is_1_where_asked(words: list[str], code: int) -> None:
    assert ran(look, *words).exit_code == code


@pytest.mark.parametrize(("made", "code"), [(found(), 0), (found(failed=True), 1), (found(evaluated=False), 3), (7, 7)])
def test_given_what_it_returns_then_it_is_the_exit_code(made: CommandResult | int, code: int) -> None:
    @command()
    def only() -> CommandResult | int:
        return made

    assert ran(only).exit_code == code
    assert ran(only, "--fail-on-fire").exit_code == 2
    assert ran(only, "--stack", "x").exit_code == 2


def test_given_a_fault_then_it_is_told_and_the_exit_code_is_2() -> None:
    @command()
    def only() -> CommandResult:
        raise RequestError("it cannot be", "Leave it.")

    result = ran(only)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("trainguard: it cannot be")


def test_common_options_are_listed_last() -> None:
    shown = typer.main.get_command(_app(look)).params
    assert [each.name for each in shown] == ["name", "fail_on_fire", "stack", "region", "profile", "as_json"]


def _app(function: Any) -> typer.Typer:
    own = typer.Typer(add_completion=False)
    own.command()(function)
    return own


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], {"name": "a", "folder": None, "sort": "one", "count": 2, "more": []}),
        (["a", "--folder", "x/y", "--sort", "TWO"], {"folder": Path("x/y"), "sort": "two"}),
        (["7", "--count", "3", "--more", "b", "--more", "c"], {"name": "7", "count": 3, "more": ["b", "c"]}),
    ],
)
def test_words_are_converted_as_their_types_say(words: list[str], expected: dict[str, Any]) -> None:
    found: dict[str, Any] = {}

    def only(
        name: Name,
        folder: Annotated[Path | None, typer.Option()] = None,
        sort: Annotated[Literal["one", "two"], typer.Option(case_sensitive=False)] = "one",
        count: Annotated[int, typer.Option(min=1)] = 2,
        more: Annotated[list[str] | None, typer.Option()] = None,
    ) -> None:
        found.update(name=name, folder=folder, sort=sort, count=count, more=more or [])

    own = _app(only)
    complete(own)
    assert CliRunner().invoke(own, words).exit_code == 0
    assert found | expected == found


@pytest.mark.parametrize("words", [[], ["a", "--count", "x"], ["a", "--count", "0"], ["a", "--sort", "three"]])
def test_words_that_do_not_fit_are_refused(words: list[str]) -> None:
    def only(
        name: Name,
        sort: Annotated[Literal["one", "two"], typer.Option()] = "one",
        count: Annotated[int, typer.Option(min=1)] = 2,
    ) -> None: ...

    own = _app(only)
    complete(own)
    assert CliRunner().invoke(own, words).exit_code == 2
