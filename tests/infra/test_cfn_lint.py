"""cfn-lint finds nothing in the template, whatever is chosen, in a Region of each partition."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import ManualArgs, lint_file  # type: ignore[import-untyped]  # the package ships no types

from tests.infra.variants import CONTEXTS

REGIONS = ["us-east-1", "cn-north-1", "us-gov-west-1"]

ABROAD = {"verdict": ("us-gov-west-1", "Lambda has no function URLs there, and the documents say so")}
"""Regions in which a choice cannot be made, each with its reason."""

LIKE_OTHERS = {"emulator", "person", "second", "stops", "watched", "without-canary"}
"""Choices without a property that those which are linted lack: cfn-lint reads a template for four seconds."""

STANDS = {
    "W3005": "CDK says that a function depends on its role, beside naming it; CloudFormation takes both",
}
"""Checks that are left out, each with its reason."""


def found(path: Path, stands: Mapping[str, str] = STANDS, regions: Sequence[str] = REGIONS) -> list[str]:
    settings = ManualArgs(regions=list(regions), ignore_checks=sorted(stands))
    matches = lint_file(path, config=settings)
    return [f"{match.rule.id} {'/'.join(map(str, match.path))}: {match.message}" for match in matches]


def test_default_template_lints_clean(production: Path) -> None:
    assert found(production / "TrainGuard.template.json") == []


@pytest.mark.parametrize("name", sorted(CONTEXTS.keys() - LIKE_OTHERS))
def test_template_of_each_choice_lints_clean(variants: Path, name: str) -> None:
    (template,) = (variants / name).glob("*.template.json")
    abroad = ABROAD.get(name, ("",))[0]
    assert found(template, regions=[region for region in REGIONS if region != abroad]) == []


def test_unlinted_choices_have_no_property_of_their_own(production: Path, variants: Path) -> None:
    linted = [production, *(variants / name for name in CONTEXTS.keys() - LIKE_OTHERS)]
    known = {each for folder in linted for each in _properties(folder)}
    assert not {name: own for name in LIKE_OTHERS if (own := _properties(variants / name) - known)}


def _properties(folder: Path) -> set[tuple[str, str]]:
    """Return the type of each resource of a template with the path of each property that it has."""
    (template,) = folder.glob("*.template.json")
    resources = json.loads(template.read_text("utf-8"))["Resources"].values()
    return {(each["Type"], path) for each in resources for path in _paths({**each, "Metadata": None})}


def _paths(value: Any, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict | list):
        yield path
        return
    for name, part in value.items() if isinstance(value, dict) else (("", each) for each in value):
        yield from _paths(part, f"{path}/{name}")


def test_placeholder_within_an_arn_is_found(production: Path, tmp_path: Path) -> None:
    """The linter reads definitions, and accepts a placeholder for a whole ARN alone."""
    document = json.loads((production / "TrainGuard.template.json").read_text("utf-8"))
    ((name, machine),) = (
        each
        for each in document["Resources"].items()
        if each[1]["Type"] == "AWS::StepFunctions::StateMachine" and each[0].startswith("Reports")
    )
    properties: dict[str, Any] = machine["Properties"]
    definition = properties["DefinitionString"].replace("${StatesLambdaInvoke}", "arn:${Partition}:states:::lambda")
    alone = {"DefinitionString": definition, "RoleArn": "arn:aws:iam::111122223333:role/any"}
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"Resources": {name: {"Type": machine["Type"], "Properties": alone}}}), "utf-8")
    assert "E3601" in {line.partition(" ")[0] for line in found(path)}
