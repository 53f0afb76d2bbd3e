"""CloudFormation on the emulator through the CDK command line, with the lesser services that the stack uses."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from emulator.deploy import deploy, destroy
from emulator.errors import DeployError
from tests.localstack.plain_stack import PlainStack

if TYPE_CHECKING:
    from pathlib import Path

    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack

RESOURCES: dict[str, Any] = {
    "Parameter": {"Type": "AWS::SSM::Parameter", "Properties": {"Name": "/stack/p", "Type": "String", "Value": "60"}},
    "Topic": {"Type": "AWS::SNS::Topic"},
    "Alarm": {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": "stack-alarm",
            "Namespace": "AWS/SQS",
            "MetricName": "ApproximateNumberOfMessagesVisible",
            "Statistic": "Maximum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "notBreaching",
            "AlarmActions": [{"Ref": "Topic"}],
        },
    },
}
BAD_RULE: dict[str, Any] = {
    "Type": "AWS::Events::Rule",
    "Properties": {"EventPattern": {"detail": {"key": [{"wildcat": "*"}]}}},
}


def _assembly(folder: Path, name: str, resources: dict[str, Any]) -> Path:
    """Write the least cloud assembly that the CDK command line deploys: one stack without assets."""
    template = {"Resources": resources, "Outputs": {"Answer": {"Value": {"Ref": "Parameter"}}}}
    artifact = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://000000000000/us-east-1",
        "properties": {"templateFile": "template.json"},
    }
    folder.mkdir()
    (folder / "template.json").write_text(json.dumps(template), encoding="utf-8")
    manifest = {"version": "36.0.0", "artifacts": {name: artifact}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_assembly_resources_come_and_go(emulator: Emulator, tmp_path: Path) -> None:
    assembly = _assembly(tmp_path / "assembly", "Small", RESOURCES)

    outputs = deploy(emulator, assembly=assembly, home=tmp_path / "home")

    ssm = emulator.client("ssm")
    assert outputs == {"Answer": "/stack/p"}
    assert ssm.get_parameter(Name="/stack/p")["Parameter"]["Value"] == "60"
    alarms = emulator.client("cloudwatch").describe_alarms(AlarmNames=["stack-alarm"])["MetricAlarms"]
    assert [alarm["Threshold"] for alarm in alarms] == [1.0]

    destroy(emulator, assembly=assembly, home=tmp_path / "home")

    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/stack/p")


def test_refused_resource_is_named_with_its_reason(emulator: Emulator, tmp_path: Path) -> None:
    assembly = _assembly(tmp_path / "assembly", "Broken", {"Parameter": RESOURCES["Topic"], "Rule": BAD_RULE})

    with pytest.raises(DeployError, match=r"Broken/Rule \(AWS::Events::Rule\): CREATE_FAILED: .*pattern is not valid"):
        deploy(emulator, assembly=assembly, home=tmp_path / "home")


CONDITIONAL: dict[str, Any] = {
    "Parameters": {"Wanted": {"Type": "String", "Default": "no"}},
    "Conditions": {"IsWanted": {"Fn::Equals": [{"Ref": "Wanted"}, "yes"]}},
    "Resources": {
        "Queue": {"Type": "AWS::SQS::Queue", "Condition": "IsWanted"},
        "Name": {
            "Type": "AWS::SSM::Parameter",
            "Condition": "IsWanted",
            "Properties": {
                "Name": "conditional",
                "Type": "String",
                "Value": {"Fn::GetAtt": ["Queue", "QueueName"]},
            },
        },
        "Label": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {
                "Name": "label",
                "Type": "String",
                "Value": {"Fn::If": ["IsWanted", {"Fn::GetAtt": ["Queue", "QueueName"]}, "none"]},
            },
        },
    },
}


def test_resources_of_a_condition_come_and_go_together(emulator: Emulator) -> None:
    stack = PlainStack(emulator, "Conditional", {"TemplateBody": json.dumps(CONDITIONAL)})

    ssm = emulator.client("ssm")

    def values() -> dict[str, str]:
        names = ["conditional", "label"]
        return {each["Name"]: each["Value"] for each in ssm.get_parameters(Names=names)["Parameters"]}

    stack.deploy("create_stack", {"Wanted": "no"})
    assert values() == {"label": "none"}
    stack.deploy("update_stack", {"Wanted": "yes"})
    seen = values()
    assert seen["conditional"].startswith("Conditional-")
    assert seen["label"] == seen["conditional"]
    stack.deploy("update_stack", {"Wanted": "no"})
    assert values() == {"label": "none"}
    stack.delete()


VERSIONED: dict[str, Any] = {
    "Parameters": {"Said": {"Type": "String"}},
    "Resources": {
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": "versioned",
                "Description": {"Ref": "Said"},
                "Code": {"ZipFile": "def handler(event, context):\n    return context.function_version\n"},
                "Handler": "index.handler",
                "Runtime": f"python3.{sys.version_info.minor}",
                "Role": "arn:aws:iam::000000000000:role/any",
            },
        },
        "Version": {
            "Type": "AWS::Lambda::Version",
            "Properties": {"FunctionName": {"Ref": "Function"}, "Description": {"Ref": "Said"}},
        },
        "Live": {
            "Type": "AWS::Lambda::Alias",
            "Properties": {
                "FunctionName": {"Ref": "Function"},
                "FunctionVersion": {"Fn::GetAtt": ["Version", "Version"]},
                "Name": "live",
            },
        },
    },
}


def test_new_description_publishes_a_version_for_the_alias(emulator: Emulator) -> None:
    stack = PlainStack(emulator, "Versioned", {"TemplateBody": json.dumps(VERSIONED)})
    client = emulator.client("lambda")
    for said, version in (("a", "1"), ("b", "2")):
        stack.deploy("create_stack" if said == "a" else "update_stack", {"Said": said})
        alias = client.get_alias(FunctionName="versioned", Name="live")
        listed = client.list_versions_by_function(FunctionName="versioned")["Versions"]
        assert alias["FunctionVersion"] == version
        assert [each["Version"] for each in listed] == ["$LATEST", version]
    stack.delete()


def test_set_alarm_state_is_kept(emulator: Emulator) -> None:
    cloudwatch = emulator.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="late-objects",
        Namespace="TrainGuard",
        MetricName="LateObjects",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="ignore",
    )

    cloudwatch.set_alarm_state(AlarmName="late-objects", StateValue="ALARM", StateReason="by hand")

    (alarm,) = cloudwatch.describe_alarms(AlarmNames=["late-objects"])["MetricAlarms"]
    assert alarm["StateValue"] == "ALARM"
