"""A rule is named where it stands, and nowhere else: who knows rules by name must be edited for each new one."""

import re
from functools import cache
from pathlib import Path

import pytest

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import ALL_RULES, SPECS

ROOT = Path(__file__).parents[3]
# The rule's own file, its text, its line of registration, its twin in the replay and that one's line, its section, and
# a second comparison.
MOST_FILES = 7


@cache
def product() -> dict[Path, str]:
    """Return the product's sources by their files."""
    files = [file for folder in ("rules_layer", "lambdas", "infra") for file in (ROOT / folder).rglob("*.py")]
    return {file: file.read_text(encoding="utf-8") for file in files}


def names_of(rule: str) -> set[str]:
    """Return the rule's name, and those of its classes; a rule without parameters of its own has those of all."""
    kinds = [type(each) for each in ALL_RULES if each.name == rule]
    own = {kind.parameters_type for kind in kinds} - {RuleParameters}
    return {rule, *(kind.__name__ for kind in kinds), *(each.__name__ for each in own)}


@pytest.mark.parametrize("rule", SPECS)
def test_rule_is_named_in_few_files_of_the_product(rule: str) -> None:
    names = names_of(rule)
    name = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(sorted(names))})(?![A-Za-z])")
    may = [(path, text) for path, text in product().items() if any(each in text for each in names)]
    naming = [path for path, text in may if name.search(text)]
    assert naming, "the rule's own file names it"
    assert len(naming) <= MOST_FILES, [str(path.relative_to(ROOT)) for path in naming]
