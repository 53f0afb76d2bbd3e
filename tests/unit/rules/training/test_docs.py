"""The pages of the rules over steps, and their parameters in the reference, say what the code does."""

import html
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.site.reference import rules
from tests.support.steps import RULES
from tests.unit.test_docs_parameters import ACCEPTED_BY_ALL, in_reference
from trainguard.rules.training.step_words import StepText

DOCS = Path(__file__).parents[4] / "docs" / "rules" / "training"
# Parameters that the page of all rules explains.
SHARED = {"start_step", "end_step", "collection_names", "tensor_regex"}


def shown(value: Any) -> str:
    """Show a default as the reference does."""
    if value is None or value is msgspec.NODEFAULT:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    return value if isinstance(value, str) else f"{value:.7g}"


@pytest.mark.parametrize("rule", RULES)
def test_parameters_in_the_reference_are_those_of_the_code(rule: str) -> None:
    fields = {field.name: field.default for field in msgspec.structs.fields(RULES[rule].parameters_type)}
    expected = {
        name: [shown(fields[name]), words.unit, words.meaning]
        for name, words in RULES[rule].spec.parameters.items()
        if name != ACCEPTED_BY_ALL
    }
    listed = {name: [default, unit, meaning] for name, (default, unit, _, meaning) in in_reference(rule).items()}
    assert listed == expected
    text = (DOCS / f"{rule}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {rule}\n")
    assert [name for name in expected if f"`{name}`" not in text and name not in SHARED] == []
    assert set(re.findall(r"`(\w+)`", (DOCS / "README.md").read_text(encoding="utf-8"))) >= SHARED


@pytest.mark.parametrize("rule", RULES)
def test_the_reference_says_what_to_record(rule: str) -> None:
    section = rules().partition(f"\n## {rule}\n")[2].partition("\n## ")[0]
    said = RULES[rule].text
    assert isinstance(said, StepText)
    assert said.needs in html.unescape(section)


def test_the_page_of_all_rules_links_to_each() -> None:
    page = (DOCS / "README.md").read_text(encoding="utf-8").partition("## ")[0]
    assert sorted(re.findall(r"\[(\w+)\]\(\1\.md\)", page)) == sorted(RULES)
    assert {path.stem for path in DOCS.glob("*.md")} == {*RULES, "README"}
