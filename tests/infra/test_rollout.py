"""Queue and scheduler call the alias ``live``; a new version takes over at once, or in steps that alarms end."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.release.versions import with_versions
from tests.infra.cloudformation import Resolver
from tests.infra.template import Template

EVALUATING = {"EvaluationEvaluateObjects", "EvaluationReconcileJob"}
ASSETS = {"AssetBucket": "our-releases"}


@pytest.fixture(scope="module")
def release(releases: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads((releases / "release.json").read_text("utf-8"))
    return document


@pytest.fixture(scope="module")
def gradual(variants: Path) -> Template:
    return Template(variants / "organisation" / "TrainGuard.template.json")


def test_evaluating_functions_are_called_by_their_alias_alone(template: Template) -> None:
    aliases = template.of_type("AWS::Lambda::Alias")
    assert {name.removesuffix("Live") for name in aliases} == EVALUATING
    for name, alias in aliases.items():
        assert alias.properties["FunctionName"] == "{" + name.removesuffix("Live") + "Function}"
        assert alias.properties["FunctionVersion"].startswith(
            "{" + name.removesuffix("Live") + "FunctionCurrentVersion"
        )
    scheduler = template.one("AWS::Lambda::Function", "EvaluationSchedulerFunction")
    assert scheduler["Environment"]["Variables"]["RECONCILE_JOB_FUNCTION"] == "{EvaluationReconcileJobLive}"
    called = {"AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission", "AWS::Lambda::EventInvokeConfig"}
    for resource in template.resources:
        functions = {f"{{{name}Function}}" for name in EVALUATING} | {f"{{{name}Function.Arn}}" for name in EVALUATING}
        if resource.type in called and resource.properties["FunctionName"] in functions:
            assert resource.properties["Qualifier"] == "live", resource.name


def test_each_step_obeys_the_alarms_of_the_functions_faults(gradual: Template, template: Template) -> None:
    assert not template.of_type("AWS::CodeDeploy::DeploymentGroup")
    groups = gradual.of_type("AWS::CodeDeploy::DeploymentGroup").values()
    assert len(groups) == len(EVALUATING)
    for group in groups:
        assert group.properties["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent15Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.properties["AutoRollbackConfiguration"]["Events"]
        alarms = {each["Name"].strip("{}") for each in group.properties["AlarmConfiguration"]["Alarms"]}
        assert alarms == {"MonitoringFaultsFoundEvaluateObjects", "MonitoringFaultsFoundScheduler"}
        assert alarms <= set(gradual.of_type("AWS::CloudWatch::Alarm"))
    policies = [each["UpdatePolicy"] for each in gradual.document["Resources"].values() if "UpdatePolicy" in each]
    assert [list(each) for each in policies] == [["CodeDeployLambdaAliasUpdate"]] * len(EVALUATING)


def test_codedeploy_may_move_these_aliases_and_no_others(gradual: Template) -> None:
    held = {str(each.sid): each for role, each in gradual.role_statements() if role == "RolloutRole"}
    assert {sid: set(each.resources) for sid, each in held.items()} == {
        "LookAtAlarms": {"*"},
        "MoveAliases": {f"{{{name}Function.Arn}}{end}" for name in EVALUATING for end in ("", ":live")},
    }
    assert held["LookAtAlarms"].actions == ("cloudwatch:DescribeAlarms",)


def described(release: Mapping[str, Any], **given: str) -> dict[str, str]:
    resources = Resolver(release, {**ASSETS, **given}, stack_name="TrainGuard").resources()
    return {
        name: each["Properties"]["Description"]
        for name, each in resources.items()
        if each["Type"] == "AWS::Lambda::Version"
    }


@pytest.mark.parametrize(
    ("changed", "evaluator"),
    [
        ({"EvaluatorMemoryMb": "1536"}, True),
        ({"ProfileBucket": "our-profiles"}, True),
        ({"SubnetIds": "subnet-01234567", "SecurityGroupIds": "sg-01234567"}, True),
        ({"ReportMemoryMb": "1536", "StopSwitch": "disabled", "Canary": "false", "AssetBucket": "other"}, False),
    ],
)
def test_release_publishes_when_a_parameter_changes(
    release: Mapping[str, Any], changed: dict[str, str], evaluator: bool
) -> None:
    before, after = described(release), described(release, **changed)
    (name,) = (each for each in before if each.startswith("EvaluationEvaluateObjects"))
    assert (before[name] != after[name]) is evaluator
    functions = {
        name: each["Properties"] for name, each in release["Resources"].items() if "FunctionCurrent" not in name
    }
    for each in before:
        # Lambda refuses a version of a function that did not change.
        version = release["Resources"][each]["Properties"]
        assert functions[version["FunctionName"]["Ref"]]["Description"] == version["Description"]


def test_longest_description_of_a_version_fits(release: Mapping[str, Any]) -> None:
    """Lambda takes 256 characters; an id of a role has 21."""
    given = {
        "ProfileBucket": "b" * 63,
        "EvaluatorMemoryMb": "10240",
        "ReconcileMemoryMb": "10240",
        "SubnetIds": ",".join(f"subnet-{number:017x}" for number in range(6)),
        "SecurityGroupIds": ",".join(f"sg-{number:017x}" for number in range(2)),
    }
    declared = release["Parameters"]
    for name, one in (("SubnetIds", "subnet-01234567"), ("SecurityGroupIds", "sg-01234567")):
        pattern = re.compile(declared[name]["AllowedPattern"])
        most = len(given[name].split(","))
        assert pattern.fullmatch(given[name])
        assert pattern.fullmatch(",".join([one] * most))
        assert not pattern.fullmatch(",".join([one] * (most + 1)))
    texts = described(release, **given).values()
    assert all(200 < len(_ROLE.sub("r" * 21, text)) <= 256 for text in texts)
    assert all(f"{number:017x}" in text for text in texts for number in range(6))


_ROLE = re.compile(r"\{Fn::GetAtt\[[^\]]*\]\}")


def test_changed_layer_or_property_changes_the_description() -> None:
    def of(timeout: int, layer: str) -> Any:
        role = {"Fn::GetAtt": ["R", "Arn"]}
        function = {"Timeout": timeout, "Layers": [{"Ref": "L"}], "Role": role}
        resources = {
            "F": {"Type": "AWS::Lambda::Function", "Properties": function},
            "L": {"Type": "AWS::Lambda::LayerVersion", "Properties": {"Content": {"S3Key": layer}}},
            "V": {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "F"}}},
        }
        return json.dumps(with_versions({"Resources": resources})["Resources"]["V"]["Properties"]["Description"])

    assert of(30, "a") == of(30, "a")
    assert len({of(30, "a"), of(31, "a"), of(30, "b")}) == 3
