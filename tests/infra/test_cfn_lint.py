"""cfn-lint finds nothing in the template, whatever is chosen, in a Region of each partition."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import ManualArgs, lint_file  # type: ignore[import-untyped]  # the package ships no types

from tests.infra.variants import CONTEXTS

REGIONS = ["us-east-1", "cn-north-1", "us-gov-west-1"]

# Regions in which a choice cannot be made, each with its reason.
NO_WEBHOOK = ("us-gov-west-1", "EventBridge has no API destinations there, and the documents say so")
ABROAD = {
    "verdict": ("us-gov-west-1", "Lambda has no function URLs there, and the documents say so"),
    "webhook": NO_WEBHOOK,
    "opsgenie": NO_WEBHOOK,
}

# Choices without a property that those which are linted lack: cfn-lint reads a template for seconds.
LIKE_OTHERS = {
    "all-rules",
    "china",
    "emulator",
    "second",
    "stops",
    "their-bucket",
    "watched",
    "without-canary",
    "writers",
}

# Checks that are left out, each with its reason.
STANDS = {
    "W3005": "CDK says that a function depends on its role, beside naming it; CloudFormation takes both",
}


def found(path: Path, stands: Mapping[str, str] = STANDS, regions: Sequence[str] = REGIONS) -> list[str]:
    settings = ManualArgs(regions=list(regions), ignore_checks=sorted(stands))
    matches = lint_file(path, config=settings)
    return [f"{match.rule.id} {'/'.join(map(str, match.path))}: {match.message}" for match in matches]


def changed(path: Path, linted: Path, target: Path) -> set[str]:
    """Write a template without the properties of the resources that another has as well; return the others' names.

    cfn-lint reads a whole template for five seconds, and one without most properties for one.
    """
    document, other = (json.loads(each.read_text("utf-8")) for each in (path, linted))
    same = {name for name, each in document["Resources"].items() if other["Resources"].get(name) == each}
    for name in same:
        document["Resources"][name] = {"Type": document["Resources"][name]["Type"]}
    target.write_text(json.dumps(document), "utf-8")
    return set(document["Resources"]) - same


@pytest.fixture(scope="module")
def default(production: Path) -> Path:
    return production / "TrainGuard.template.json"


def test_default_template_lints_clean(default: Path) -> None:
    assert found(default) == []


@pytest.mark.parametrize("name", sorted(CONTEXTS.keys() - LIKE_OTHERS))
def test_template_of_each_choice_lints_clean(variants: Path, default: Path, tmp_path: Path, name: str) -> None:
    (template,) = (variants / name).glob("*.template.json")
    abroad = ABROAD.get(name, ("",))[0]
    own = changed(template, default, tmp_path / "own.json")
    assert own
    said = found(tmp_path / "own.json", regions=[region for region in REGIONS if region != abroad])
    assert [line for line in said if not _is_of_another(line, own)] == []


def _is_of_another(line: str, own: set[str]) -> bool:
    """Whether a finding is of a resource whose properties were left out."""
    section, _, rest = line.partition(" ")[2].partition(":")[0].partition("/")
    return section == "Resources" and rest.partition("/")[0] not in own


def test_changed_resource_of_a_choice_is_linted(default: Path, tmp_path: Path) -> None:
    document = json.loads(default.read_text("utf-8"))
    (name,) = (each for each in document["Resources"] if each.startswith("IngestDoorbells") and "Policy" not in each)
    document["Resources"][name]["Properties"]["VisibilityTimeout"] = 50_000
    document["Resources"][name]["Properties"]["KmsMasterKeyId"] = {"Fn::GetAtt": ["Nowhere", "Arn"]}
    (tmp_path / "broken.json").write_text(json.dumps(document), "utf-8")
    own = changed(tmp_path / "broken.json", default, tmp_path / "own.json")
    assert own == {name}
    said = found(tmp_path / "own.json")
    assert {line.partition(" ")[0] for line in said if not _is_of_another(line, own)} >= {"E1010", "E3034"}


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


def test_placeholder_within_an_arn_is_found(default: Path, tmp_path: Path) -> None:
    """The linter reads definitions, and accepts a placeholder for a whole ARN alone."""
    document = json.loads(default.read_text("utf-8"))
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
