"""What each rule takes and measures: no default, unit or bound of any family changes unseen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.answers.recorded import compare
from trainguard.core.records import FIRST_FAMILY
from trainguard.rules.family_rules import OTHER_FAMILIES
from trainguard.rules.parameters import PARAMETERS_TYPES, accepted, own_defaults
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import SPECS, help_of
from trainguard.rules.spec import RuleSpec

FOLDER = Path(__file__).with_name("parameters")
FAMILIES: Mapping[str, tuple[Mapping[str, RuleSpec], Mapping[str, type[RuleParameters]]]] = {
    FIRST_FAMILY: (SPECS, PARAMETERS_TYPES),
    **{each.family: (each.specs(), each.parameters_types()) for each in OTHER_FAMILIES},
}


def _parameters(rule: str, kind: type[RuleParameters]) -> Mapping[str, Any]:
    """Return what a rule takes, a place for each parameter."""
    documented, shipped = kind.defaults(), own_defaults(rule, "shipped")
    return {
        f"parameter {field.name}": {
            "documented": documented[field.name],
            "shipped": shipped.get(field.name, documented[field.name]),
            "accepts": accepted(field.type),
            "unit": help_of(rule, field.name).unit,
        }
        for field in msgspec.structs.fields(kind)
        if field.name in kind.settable()
    }


def _said(spec: RuleSpec) -> Mapping[str, Any]:
    if spec.text is None and spec.family != FIRST_FAMILY:  # a group of settings, which measures nothing
        return {}
    measures = [f"{each.what} ({each.unit or 'no unit'})" for each in spec.measures]
    counted: dict[str, Any] = {"measures": measures, "counts": spec.counts, "informs_only": spec.informs_only}
    return counted


@pytest.mark.parametrize("family", FAMILIES)
def test_rule_parameters_of_a_family_match_the_reviewed(family: str) -> None:
    specs, kinds = FAMILIES[family]
    assert list(specs) == list(kinds)
    answer = {rule: {**_said(specs[rule]), **_parameters(rule, kind)} for rule, kind in kinds.items()}
    compare(answer, FOLDER / f"{family}.json")
