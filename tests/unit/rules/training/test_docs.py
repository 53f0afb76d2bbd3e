"""The pages of the rules over steps say what the code does."""

import html
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.steps import RULES
from trainguard.rules.training.create_xgboost_report import CreateXgboostReport

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


@pytest.mark.parametrize("rule", RULES)
def test_given_a_rules_page_when_its_parameters_are_read_then_they_are_the_codes(rule: str) -> None:
    fields = {field.name: field.default for field in msgspec.structs.fields(RULES[rule].parameters_type)}
    told = {cells[0].split(" ")[0].strip("`"): cells[1:] for cells in rows(f"{rule}.md", "parameter")}
    assert told == {
        name: [shown(fields[name]), words.unit or UNKNOWN, words.meaning]
        for name, words in RULES[rule].spec.parameters.items()
    }


@pytest.mark.parametrize("rule", RULES)
def test_given_a_rules_page_when_read_then_it_says_what_to_record_and_shows_a_finding(rule: str) -> None:
    text = (DOCS / f"{rule}.md").read_text(encoding="utf-8")
    joined = " ".join(text.split())
    assert text.startswith(f"# {rule}\n")
    assert " ".join(RULES[rule].needs.split()) in joined
    assert bool(re.search(r"\n> Step \d+: ", text)) is (not isinstance(RULES[rule], CreateXgboostReport))


def test_given_the_page_of_all_rules_when_read_then_it_lists_them_in_their_order() -> None:
    assert rows("README.md", "rule") == [
        [f"[{name}]({name}.md)", rule.spec.looks_at, rule.spec.fires_when] for name, rule in RULES.items()
    ]
