"""A rule is named where it stands, and nowhere else: who knows rules by name must be edited for each new one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainguard.rules.registry import ALL_RULES, SPECS

ROOT = Path(__file__).parents[3]
MOST_FILES = 7
"""The rule's own file, its text, its line of registration, its twin in the replay and that one's line, its section, and
a second comparison."""


def product() -> Iterator[Path]:
    for folder in ("rules_layer", "lambdas", "infra"):
        yield from (ROOT / folder).rglob("*.py")


def names_of(rule: str) -> set[str]:
    """Return the rule's name, and those of its classes."""
    kinds = [type(each) for each in ALL_RULES if each.name == rule]
    return {rule, *(kind.__name__ for kind in kinds), *(kind.parameters_type.__name__ for kind in kinds)}


@pytest.mark.parametrize("rule", SPECS)
def test_rule_is_named_in_few_files_of_the_product(rule: str) -> None:
    name = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(sorted(names_of(rule)))})(?![A-Za-z])")
    naming = [path for path in product() if name.search(path.read_text(encoding="utf-8"))]
    assert naming, "the rule's own file names it"
    assert len(naming) <= MOST_FILES, [str(path.relative_to(ROOT)) for path in naming]
