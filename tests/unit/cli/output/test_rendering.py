"""The one renderer: what is stored cannot steer a terminal, and every shape is printed in full."""

import json
import unicodedata
from collections.abc import Iterator
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from trainguard.cli.output.rendering import (
    Block,
    Cell,
    Grid,
    Item,
    Line,
    TerminalColumn,
    TerminalFacts,
    heading,
    print_json,
    show,
    status_cell,
)
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.core.errors import RequestError
from trainguard.core.records import Status
from trainguard.core.text import one_line

STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
texts = st.text(st.characters(exclude_categories=["Cs"]))


def steers(text: str) -> bool:
    return any(unicodedata.category(each) in STEERING for each in text)


@given(text=st.text())
def test_escaped_text_cannot_control_a_terminal(text: str) -> None:
    assert not steers(one_line(text))


@given(text=st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_escaping_keeps_letters_and_signs(text: str) -> None:
    assert one_line(text) == text


@given(names=st.lists(texts, max_size=5))
@example(names=["\x7f", "\x9b", "\u202e", "\U000e0001"])
def test_json_texts_read_back_equal_and_control_no_terminal(
    names: list[str],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        print_json({"names": names})
    document = "".join(written)
    assert json.loads(document) == {"names": names}
    assert not steers(document.replace("\n", ""))


@given(text=texts, columns=st.integers(20, 200))
def test_only_console_styles_control_the_terminal_in_any_block(text: str, columns: int) -> None:
    console = Console(force_terminal=True, color_system=None, width=columns, highlight=False)
    grid = Grid(
        (TerminalColumn("a"), TerminalColumn("b", folds=True), TerminalColumn("c", drops=1)),
        [[text, Cell(text, "red"), text]],
    )
    with console.capture() as shown:
        item = Item([(text, 4), (Cell(text), 18)], text, text, text)
        stacked = replace(grid, stacks_below=100)
        show(
            console,
            [heading(text), Line(text), TerminalFacts([(text, text)]), grid, stacked, item, Line(text, whole=True)],
        )
    assert not steers(shown.get().replace("\n", ""))


def shown_on(width: int, block: Block) -> list[str]:
    """Return the lines that a terminal of so many columns shows of a block."""
    console = Console(force_terminal=True, color_system=None, no_color=True, width=width, highlight=False)
    with console.capture() as shown:
        show(console, [block])
    return [line.rstrip() for line in shown.get().splitlines()]


def test_stacking_grid_puts_its_last_cell_below_if_too_narrow() -> None:
    columns = (TerminalColumn("status"), TerminalColumn("severity"), TerminalColumn("why", folds=True))
    grid = Grid(columns, [["FIRED", "high", "one two three four five"], ["OK", "", "well"]], stacks_below=40)
    assert shown_on(40, grid)[0].split() == ["status", "severity", "why"]
    assert shown_on(20, grid) == ["FIRED high", "  one two three four", "  five", "OK", "  well"]


ITEM = Item([(Cell("FAIL"), 4), ("queue", 8)], "one two three", "Do this and that.", "aws sqs " + "x" * 40)


def test_command_of_an_item_is_one_line_below_the_advice() -> None:
    assert shown_on(27, ITEM) == [
        "FAIL queue    one two three",
        "              Do this and",
        "              that.",
        "    " + str(ITEM.command),
    ]


def test_piped_item_is_a_line_without_missing_parts() -> None:
    console = Console(force_terminal=False, width=10, highlight=False)
    with console.capture() as shown:
        show(console, [ITEM, Item([("OK", 4), ("stack", 8)], "it\tstands")])
    first, second = shown.get().splitlines()
    assert first.split("\t") == ["FAIL", "queue", "one two three", "Do this and that.", ITEM.command]
    assert second.split("\t") == ["OK", "stack", "it stands"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_slow_blocks_are_printed_before_the_next_is_requested(
    is_terminal: bool,
) -> None:
    console = Console(file=StringIO(), force_terminal=is_terminal, width=80, highlight=False)

    def slow() -> Iterator[Block]:
        yield Item([("OK", 4)], "first")
        assert isinstance(console.file, StringIO)
        assert "first" in console.file.getvalue()
        yield Line("second")

    show(console, slow())


def test_narrow_grid_drops_columns_in_order_and_keeps_others() -> None:
    columns = (
        TerminalColumn("name"),
        TerminalColumn("first", drops=2),
        TerminalColumn("second", drops=1),
        TerminalColumn("why", folds=True),
    )
    grid = Grid(columns, [["n" * 20, "f" * 10, "s" * 10, "w " * 30]])

    def headings(width: int) -> list[str]:
        console = Console(force_terminal=True, color_system=None, no_color=True, width=width, highlight=False)
        with console.capture() as shown:
            show(console, [grid])
        first, second, *_ = shown.get().splitlines()
        assert second.startswith("n" * 20)
        return first.split()

    assert headings(66) == ["name", "first", "second", "why"]
    assert headings(65) == ["name", "second", "why"]
    assert headings(53) == ["name", "why"]
    assert headings(30) == ["name", "why"]


def test_piped_grid_is_tab_separated_with_a_dash_for_nothing() -> None:
    console = Console(force_terminal=False, width=10, highlight=False)
    grid = Grid((TerminalColumn("a"), TerminalColumn("b", drops=1)), [["x" * 30, ""], ["one\ttwo\nthree", Cell("[b]")]])
    with console.capture() as shown:
        show(console, [grid])
    assert shown.get() == f"{'x' * 30}\t-\none two three\t[b]\n"


@pytest.mark.parametrize(("fail", "fired", "code"), [(False, True, 0), (True, True, 1), (True, False, 0)])
def test_exit_code_is_that_of_analyze(capsys: pytest.CaptureFixture[str], fail: bool, fired: bool, code: int) -> None:
    result = CommandResult(document={"schema_version": "1"}, blocks=[Line("said")], notes=["noted"], fired=fired)
    assert print_result(lambda: result, as_json=False, fail_on_fire=fail) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("said\n", "noted\n")


def test_fault_is_printed_on_stderr_only_with_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> CommandResult:
        raise RequestError("[red]no\x1b[2J", "Do not.")

    assert print_result(refuse, as_json=True) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "trainguard: [red]no\\x1b[2J. Do not.\n")


def test_rule_waiting_for_data_is_too_short_in_an_ended_job() -> None:
    assert [status_cell(Status.WARMING_UP, over=over).text for over in (False, True)] == ["WARMING_UP", "TOO_SHORT"]
    assert status_cell(Status.OK, over=True).text == "OK"
