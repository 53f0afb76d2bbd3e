"""Everything calls the alias ``live``; a new version takes over at once, or in steps with an alarm as the way back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config import DeploymentConfig
from infra.release.merging import merge, named
from infra.release.versions import with_versions
from tests.infra.template import Template

CODEDEPLOY = "AWS::CodeDeploy::DeploymentGroup"


@pytest.fixture(scope="module")
def release(releases: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads((releases / "release.json").read_text("utf-8"))
    return document


@pytest.fixture(scope="module")
def gradual(variants: Path) -> Template:
    return Template(variants / "organisation" / "TrainGuard.template.json")


def test_each_function_has_an_alias_of_a_published_version(template: Template) -> None:
    functions, aliases = template.of_type("AWS::Lambda::Function"), template.of_type("AWS::Lambda::Alias")
    assert {name.removesuffix("Function") for name in functions} == {name.removesuffix("Live") for name in aliases}
    for name, alias in aliases.items():
        function = f"{name.removesuffix('Live')}Function"
        assert alias.properties["FunctionName"] == "{" + function + "}"
        assert alias.properties["FunctionVersion"] == "{" + function + "CurrentVersion.Version}"
        assert alias.properties["Name"] == "live"
    assert not template.of_type(CODEDEPLOY)


@pytest.mark.parametrize("variant", ["production", "organisation", "verdict", "digest", "live", "central"])
def test_nothing_calls_a_function_but_by_its_alias(variants: Path, variant: str) -> None:
    (path,) = (variants / variant).glob("*.template.json")
    for name, resource in json.loads(path.read_text("utf-8"))["Resources"].items():
        if resource["Type"] in {"AWS::Lambda::Alias", "AWS::Lambda::Version", "AWS::CloudWatch::Dashboard"}:
            continue
        properties = resource.get("Properties", {})
        qualified = "Qualifier" in properties
        if not (qualified or name.startswith("RolloutRole") or resource["Type"] == "AWS::CloudWatch::Alarm"):
            assert not [each for each in _references(properties) if _is_function(each)], name


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [each for part in value for each in _references(part)]
    if not isinstance(value, dict):
        return []
    if set(value) == {"Ref"}:
        return [value["Ref"]]
    if set(value) == {"Fn::GetAtt"}:
        return [value["Fn::GetAtt"][0]]
    return [each for part in value.values() for each in _references(part)]


def _is_function(logical_id: str) -> bool:
    return logical_id[:-8].endswith("Function")


def test_asynchronous_settings_and_urls_are_of_the_alias(variants: Path) -> None:
    deployed = Template(variants / "verdict" / "TrainGuard.template.json")
    (url,) = deployed.of_type("AWS::Lambda::Url").values()
    configs = deployed.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert url.properties["Qualifier"] == "live"
    assert all("Live}" in str(each.properties["Qualifier"]) for each in configs)


def test_gradual_deployment_of_each_function_obeys_an_alarm(gradual: Template) -> None:
    groups = gradual.of_type(CODEDEPLOY)
    functions = gradual.of_type("AWS::Lambda::Function")
    assert len(groups) == len(functions) == 16
    alarms = {name: each.properties for name, each in gradual.of_type("AWS::CloudWatch::Alarm").items()}
    watched = []
    for group in groups.values():
        assert group.properties["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent15Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.properties["AutoRollbackConfiguration"]["Events"]
        ((alarm,),) = ((each["Name"] for each in group.properties["AlarmConfiguration"]["Alarms"]),)
        watched.append(alarm.strip("{}"))
    assert set(watched) <= set(alarms)
    faults = {each for each in watched if each.startswith("MonitoringFaultsFound")}
    assert faults == {
        f"MonitoringFaultsFound{each}" for each in ("EvaluateObjects", "Scheduler", "JobLifecycle", "Canary")
    }
    # Both versions count in a metric that names the function alone.
    of_errors = [alarms[each] for each in watched if each not in faults]
    assert {tuple(each["Name"] for each in alarm["Dimensions"]) for alarm in of_errors} == {("FunctionName",)}
    policies = [each["UpdatePolicy"] for each in gradual.document["Resources"].values() if "UpdatePolicy" in each]
    assert len(policies) == len(groups)


def test_codedeploy_may_move_these_aliases_and_no_others(gradual: Template) -> None:
    statements = [statement for role, statement in gradual.role_statements() if role == "RolloutRole"]
    moves = [each for each in statements if "lambda:UpdateAlias" in each.actions]
    assert {each for statement in statements for each in statement.actions} == {
        "cloudwatch:DescribeAlarms",
        *("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"),
    }
    named_functions = {resource for statement in moves for resource in statement.resources}
    functions = gradual.of_type("AWS::Lambda::Function")
    assert named_functions == {f"{{{name}.Arn}}{end}" for name in functions for end in ("", ":live")}


def test_release_publishes_again_when_a_parameter_changes(release: Mapping[str, Any]) -> None:
    resources = release["Resources"]
    versions = {name: each for name, each in resources.items() if each["Type"] == "AWS::Lambda::Version"}
    assert len(versions) == len([each for each in resources.values() if each["Type"] == "AWS::Lambda::Function"])
    for version in versions.values():
        function = resources[version["Properties"]["FunctionName"]["Ref"]]
        assert function["Properties"]["Description"] == version["Properties"]["Description"]
    (evaluate,) = (each for name, each in versions.items() if name.startswith("EvaluationEvaluateObjects"))
    text = json.dumps(evaluate["Properties"]["Description"])
    assert [name for name in ("EvaluatorMemoryMb", "ProfileBucket", "SubnetIds") if f'"{name}"' in text] == [
        *("EvaluatorMemoryMb", "ProfileBucket", "SubnetIds")
    ]
    assert "ReportMemoryMb" not in text
    assert "AssetBucket" not in text


@pytest.mark.parametrize("subnets", [0, 1, 3, 6])
def test_longest_description_of_a_version_fits(release: Mapping[str, Any], subnets: int) -> None:
    """Lambda takes 256 characters: with many subnets, and the longest name of a bucket, too."""
    given = {
        "SubnetIds": ",".join(f"subnet-{number:017x}" for number in range(subnets)),
        "SecurityGroupIds": ",".join(f"sg-{number:017x}" for number in range(subnets)),
        "ProfileBucket": "b" * 63,
        "StopLimitFunction": "arn:aws:lambda:eu-west-1:444455556666:function:" + "f" * 64 + ":live",
        "CentralBusArn": "arn:aws:events:eu-west-1:444455556666:event-bus/TrainGuardCentral",
    }
    for name, each in release["Resources"].items():
        if each["Type"] == "AWS::Lambda::Version":
            text = _made(each["Properties"]["Description"], given)
            assert len(text) <= 256, name
            if "SubnetIds" in set(_references(each["Properties"]["Description"])):
                assert [f"{number:017x}" in text for number in range(3)] == [number < subnets for number in range(3)]


def _made(value: Any, given: Mapping[str, str]) -> Any:
    """Return what CloudFormation makes of a value: of parts of a list, of others' ARNs and of parameters."""
    if not isinstance(value, dict):
        return value
    ((function, given_to),) = value.items()
    if function == "Ref":
        return (
            "arn:aws:lambda:eu-west-1:444455556666:layer:rules:123"
            if "Layer" in given_to
            else given.get(given_to, "10240")
        )
    first, second = given_to
    if function == "Fn::Join":
        parts = [_made(each, given) for each in second] if isinstance(second, list) else _made(second, given)
        return first.join(str(each) for each in parts)
    return _made(second, given).split(first) if function == "Fn::Split" else _made(second, given)[first]


def test_changed_property_changes_the_description() -> None:
    def described(timeout: int) -> Any:
        function = {"Type": "AWS::Lambda::Function", "Properties": {"Timeout": timeout, "Layers": [{"Ref": "L"}]}}
        version = {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "F"}}}
        resources = with_versions({"Resources": {"F": function, "V": version}, "Conditions": {}})["Resources"]
        return resources["V"]["Properties"]["Description"]

    assert described(30) == described(30)
    assert described(30) != described(31)


def test_resource_under_two_choices_needs_both() -> None:
    queue: dict[str, Any] = {"Type": "AWS::SQS::Queue", "Properties": {}}
    whole = named({"Resources": {"P": queue, "Q": queue}})
    first = merge("A", whole, whole, named({"Resources": {"P": queue}}))
    both = merge("B", first, whole, named({"Resources": {"P": queue}}))
    assert both["Resources"]["Q"]["Condition"] == "AAndB"
    assert both["Conditions"] == {"AAndB": {"Fn::And": [{"Condition": "A"}, {"Condition": "B"}]}}


def test_unknown_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match="rollout is 'Slowly', expected one of AllAtOnce, Canary10Percent5Minutes"):
        DeploymentConfig.from_context({"rollout": "Slowly"})
