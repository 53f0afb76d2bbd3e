"""The pages of the rules over steps say what the code does."""

import html
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.steps import RULES
from tests.unit.test_docs_parameters import first_sentence
from trainguard.rules.training.step_words import StepText

DOCS = Path(__file__).parents[4] / "docs" / "rules" / "training"
UNKNOWN = "\N{EN DASH}"


def shown(value: Any) -> str:
    """Show a default as the pages do."""
    if value is None or value is msgspec.NODEFAULT:
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    return value if isinstance(value, str) else f"{value:.7g}"


def rows(page: str, first: str) -> list[list[str]]:
    """Return the cells of the table whose heading begins with ``first``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [
        [html.unescape(re.sub("</?code>", "", cell.strip())) for cell in line.strip("|").split("|")] for line in table
    ]


def parameters(page: str) -> dict[str, list[str]]:
    """Return the cells of each parameter in a page's table: default, unit and, of those that rules share, meaning."""
    return {cells[0].split(" ")[0].strip("`"): cells[1:] for cells in rows(page, "parameter")}


@pytest.mark.parametrize("rule", RULES)
def test_parameters_on_a_rules_page_are_those_of_the_code(rule: str) -> None:
    fields = {field.name: field.default for field in msgspec.structs.fields(RULES[rule].parameters_type)}
    expected = {
        name: [shown(fields[name]), words.unit or UNKNOWN, words.meaning]
        for name, words in RULES[rule].spec.parameters.items()
    }
    shared = parameters("README.md")
    own = {name: said[:2] for name, said in expected.items() if shared.get(name) != said}
    assert parameters(f"{rule}.md") == own
    text = (DOCS / f"{rule}.md").read_text(encoding="utf-8")
    assert [name for name in own if text.count(f"`{name}`") < 2] == []


def test_the_parameters_on_the_page_of_all_rules_are_some_rules() -> None:
    known = {(name, words.meaning) for rule in RULES.values() for name, words in rule.spec.parameters.items()}
    assert {(name, said[-1]) for name, said in parameters("README.md").items()} <= known


@pytest.mark.parametrize("rule", RULES)
def test_a_rules_page_says_what_to_record(rule: str) -> None:
    text = (DOCS / f"{rule}.md").read_text(encoding="utf-8")
    joined = " ".join(text.split())
    assert text.startswith(f"# {rule}\n")
    said = RULES[rule].text
    assert isinstance(said, StepText)
    assert " ".join(said.needs.split()) in joined


def test_the_page_of_all_rules_has_the_first_sentence_of_each() -> None:
    assert rows("README.md", "rule") == [
        [f"[{name}]({name}.md)", first_sentence(DOCS / f"{name}.md")] for name in RULES
    ]
