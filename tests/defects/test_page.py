"""The page of differences names every test here, by the defect's own name, and no test that does not exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "differences.md"
_TEST = re.compile(r"`(tests/[^`]+\.py::test_[^`]+)`")


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield each defect's name and the tests that its row names."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        tests = _TEST.findall(line)
        if line.startswith("| ") and tests:
            yield line.split("|")[1].strip(), tests


def defined() -> list[str]:
    """Return the tests of this folder, this file's left out."""
    return [
        f"{file.relative_to(ROOT).as_posix()}::{node.name}"
        for file in sorted(HERE.glob("test_*.py"))
        if file != Path(__file__)
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_given_the_page_when_its_tests_are_looked_up_then_each_exists_and_each_is_named_once() -> None:
    assert sorted(name for _, tests in rows() for name in tests) == sorted(defined())


def test_given_a_defects_name_when_its_tests_are_read_then_they_bear_it() -> None:
    for defect, tests in rows():
        for name in tests:
            assert f"::test_given_{defect.lower().replace(' ', '_')}_when_" in name


def test_given_the_tables_when_read_then_every_row_names_a_test() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    without = [line for line in lines if "::test_" not in line and not line.startswith("| defect |")]
    assert without == []
