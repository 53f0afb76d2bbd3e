"""The one room for answers: what is stored cannot steer a terminal, and every shape is printed in full."""

import json
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from trainguard.cli.output.rendering import Answer, Cell, Column, Facts, Grid, Heading, Line, give, print_json, show
from trainguard.errors import RequestError
from trainguard.plain_text import one_line

STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
texts = st.text(st.characters(exclude_categories=["Cs"]))
COMMAND = [sys.executable, "-m", "trainguard", "params", "StepOutlier"]


def steers(text: str) -> bool:
    return any(unicodedata.category(each) in STEERING for each in text)


@given(text=st.text())
def test_given_any_text_when_made_harmless_then_nothing_in_it_steers_a_terminal(text: str) -> None:
    assert not steers(one_line(text))


@given(text=st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_given_a_text_of_letters_and_signs_when_made_harmless_then_it_stays(text: str) -> None:
    assert one_line(text) == text


@given(names=st.lists(texts, max_size=5))
@example(names=["\x7f", "\x9b", "\u202e", "\U000e0001"])
def test_given_any_texts_when_printed_as_json_then_they_read_back_equal_and_nothing_steers_a_terminal(
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
def test_given_any_text_in_any_block_when_shown_on_a_terminal_then_only_the_consoles_own_styles_steer_it(
    text: str, columns: int
) -> None:
    console = Console(force_terminal=True, color_system=None, width=columns, highlight=False)
    grid = Grid((Column("a"), Column("b", folds=True), Column("c", drops=1)), [[text, Cell(text, "red"), text]])
    with console.capture() as shown:
        show(console, [Heading(text), Line(text), Facts([(text, text)]), grid, Line(text, whole=True)])
    assert not steers(shown.get().replace("\n", ""))


def test_given_a_grid_when_the_terminal_is_too_narrow_then_columns_go_in_order_and_the_others_stay_whole() -> None:
    columns = (Column("name"), Column("first", drops=2), Column("second", drops=1), Column("why", folds=True))
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


def test_given_no_terminal_when_a_grid_is_shown_then_tabs_part_its_cells_and_a_dash_stands_for_nothing() -> None:
    console = Console(force_terminal=False, width=10, highlight=False)
    grid = Grid((Column("a"), Column("b", drops=1)), [["x" * 30, ""], ["one\ttwo\nthree", Cell("[b]")]])
    with console.capture() as shown:
        show(console, [grid])
    assert shown.get() == f"{'x' * 30}\t-\none two three\t[b]\n"


@pytest.mark.parametrize(("fail", "fired", "code"), [(False, True, 0), (True, True, 1), (True, False, 0)])
def test_given_an_answer_when_given_then_the_exit_code_is_that_of_analyze(
    capsys: pytest.CaptureFixture[str], fail: bool, fired: bool, code: int
) -> None:
    answer = Answer(document={"schema_version": "1"}, blocks=[Line("said")], notes=["noted"], fired=fired)
    assert give(lambda: answer, as_json=False, fail_on_fire=fail) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("said\n", "noted\n")


def test_given_a_fault_when_made_then_it_is_told_on_stderr_alone_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> Answer:
        raise RequestError("[red]no\x1b[2J", "Do not.")

    assert give(refuse, as_json=True) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "trainguard: [red]no\\x1b[2J. Do not.\n")


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_given_a_reader_that_goes_away_when_answered_then_there_is_no_traceback(how: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_given_an_encoding_that_lacks_a_character_when_answered_then_it_is_spelled_out() -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONIOENCODING": "ascii"}
    )
    assert "\\u2026" in done.stdout
