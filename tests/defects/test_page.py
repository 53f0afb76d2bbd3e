"""The page of differences has every defect that a test here shows, under the name that marks the test, and no other."""

import ast
from pathlib import Path

from tests.unit.test_docs_parameters import table

HERE = Path(__file__).parent
DEFECTS = [row[0] for row in table("differences.md", "defect")]


def marked() -> dict[str, list[str]]:
    """Return the defects that each test of this folder is marked with, this file's left out."""
    return {
        node.name: [
            str(ast.literal_eval(each.args[0]))
            for each in node.decorator_list
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.defect"
        ]
        for file in sorted(HERE.glob("test_*.py"))
        if file != Path(__file__)
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_defect_of_the_page_stands_there_once() -> None:
    assert len(DEFECTS) > 50
    assert len(DEFECTS) == len(set(DEFECTS))


def test_each_defect_of_the_page_has_a_test() -> None:
    shown = {defect for defects in marked().values() for defect in defects}
    assert [defect for defect in DEFECTS if defect not in shown] == []


def test_each_test_shows_a_defect_of_the_page() -> None:
    assert {
        name: defects for name, defects in marked().items() if not defects or not set(defects) <= set(DEFECTS)
    } == {}
