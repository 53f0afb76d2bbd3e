"""What a person may choose beside the defaults: own key, network, boundary, central bus, names, partitions, Regions."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.infra.template import Statement, Template
from tests.infra.variants import CANARY_IMAGE, CHINA_KEY, CONTEXTS, GOVCLOUD_BUS, SHARED_BUDGET

TEMPLATES = {"second": "TrainGuard-Research", "everything": "Everything"}
SYNTHESISED = [name for name in CONTEXTS if name != "emulator"]
# What a choice adds that GovCloud, or some Region, lacks, as the documents say.
_WEBHOOK = {"AWS::Events::Connection", "AWS::Events::ApiDestination"}
ABROAD = {
    "verdict": {"AWS::Lambda::Url"},
    "organisation": {"AWS::CodeDeploy::Application", "AWS::CodeDeploy::DeploymentGroup"},
    "webhook": _WEBHOOK,
    "all-rules": _WEBHOOK,
    "opsgenie": {*_WEBHOOK, "AWS::EventSchemas::Registry", "AWS::EventSchemas::Schema"},
}

# Types that CloudFormation knows in every partition and Region.
EVERYWHERE = {
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::DynamoDB::Table",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::VPCEndpoint",
    "AWS::Events::Rule",
    "AWS::IAM::Role",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::EventSourceMapping",
    "AWS::Lambda::Function",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Version",
    "AWS::Logs::LogGroup",
    "AWS::Logs::MetricFilter",
    "AWS::Logs::QueryDefinition",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::Queue",
    "AWS::SQS::QueuePolicy",
    "AWS::SSM::Parameter",
    "AWS::StepFunctions::StateMachine",
}


def read(variants: Path, name: str) -> Template:
    return Template(variants / name / f"{TEMPLATES.get(name, 'TrainGuard')}.template.json")


def statements_by_role(template: Template) -> dict[str, list[Statement]]:
    found = defaultdict(list)
    for role, statement in template.role_statements():
        found[role].append(statement)
    return found


@pytest.mark.parametrize("name", CONTEXTS)
def test_no_rule_pack_finds_anything_in_a_choice(variants: Path, name: str) -> None:
    error = variants / f"{name}.error"
    assert not error.exists(), error.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SYNTHESISED)
def test_choices_contain_no_fixed_partition_or_region(variants: Path, name: str) -> None:
    text = read(variants, name).text
    for given in re.findall(r'["+]((?:arn:|https:|\d+[.]dkr[.]ecr[.])[^",]*)', str(CONTEXTS[name]).replace("'", '"')):
        text = text.replace(given, "")
    # The repository of an image has its place from there.
    text = text.replace(f":ecr:{CANARY_IMAGE.split('.')[3]}:", "")
    assert not re.findall(r"arn:aws[a-z-]*:", text)
    assert not re.findall(r"(?:us|eu|ap|cn|ca|sa|me|af|il|mx)-(?:gov-)?[a-z]+-\d", text)


@pytest.mark.parametrize("name", SYNTHESISED)
def test_choices_use_only_what_every_region_has(variants: Path, name: str) -> None:
    template = read(variants, name)
    assert {resource.type for resource in template.resources} <= EVERYWHERE | ABROAD.get(name, set())
    principals = set(re.findall(r'"([a-z0-9.]+\.amazonaws\.com[a-z.]*)"', template.text))
    deploys = ("codedeploy",) if name == "organisation" else ()
    services = ("lambda", "states", "events", "cloudwatch", "s3", "sns", "sagemaker", *deploys)
    assert principals <= {f"{each}.amazonaws.com" for each in services}


def test_own_key_encrypts_all_data_at_rest(variants: Path) -> None:
    template = read(variants, "china")
    (bucket,) = template.of_type("AWS::S3::Bucket").values()
    (rule,) = bucket.properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": CHINA_KEY}
    assert rule["BucketKeyEnabled"] is True
    for table in template.of_type("AWS::DynamoDB::Table").values():
        expected = {"KMSMasterKeyId": CHINA_KEY, "SSEEnabled": True, "SSEType": "KMS"}
        assert table.properties["SSESpecification"] == expected
    for kind, name in {
        "AWS::SQS::Queue": "KmsMasterKeyId",
        "AWS::SNS::Topic": "KmsMasterKeyId",
        "AWS::Logs::LogGroup": "KmsKeyId",
    }.items():
        keys = {resource.name: resource.properties.get(name) for resource in template.of_type(kind).values()}
        assert set(keys.values()) == {CHINA_KEY}, keys


def test_roles_use_the_own_key_through_their_services(
    variants: Path,
) -> None:
    template = read(variants, "china")
    for role, statements in statements_by_role(template).items():
        actions = {action for statement in statements for action in statement.actions}
        # Names of objects are listed without the key.
        encrypted = {action.split(":")[0] for action in actions - {"s3:ListBucket"}} & {"dynamodb", "s3", "sns", "sqs"}
        keyed = [statement for statement in statements if statement.sid == "UseKey"]
        assert bool(keyed) == bool(encrypted), role
        for statement in keyed:
            assert statement.resources == (CHINA_KEY,)
            assert set(statement.actions) <= {"kms:Decrypt", "kms:GenerateDataKey"}
            services = statement.condition["StringLike"]["kms:ViaService"]
            assert {each.split(".")[0] for each in services} == encrypted
    evaluate = statements_by_role(template)["EvaluationEvaluateObjectsRole"]
    (use_key,) = (statement for statement in evaluate if statement.sid == "UseKey")
    assert use_key.actions == ("kms:Decrypt", "kms:GenerateDataKey")


def test_roles_without_a_key_may_use_none(template: Template) -> None:
    assert "kms:" not in str([statement.actions for _, statement in template.role_statements()])


def test_functions_in_a_vpc_run_behind_a_closed_group(
    variants: Path,
) -> None:
    template = read(variants, "govcloud")
    for function in template.of_type("AWS::Lambda::Function").values():
        assert function.properties["VpcConfig"] == {
            "SubnetIds": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
            "SecurityGroupIds": ["{NetworkFunctions.GroupId}"],
        }
    (group,) = template.of_type("AWS::EC2::SecurityGroup").values()
    assert "SecurityGroupIngress" not in group.properties
    assert [(rule["FromPort"], rule["ToPort"]) for rule in group.properties["SecurityGroupEgress"]] == [(443, 443)]
    endpoints = {each.properties["ServiceName"] for each in template.of_type("AWS::EC2::VPCEndpoint").values()}
    assert endpoints == {"com.amazonaws.{AWS::Region}.s3", "com.amazonaws.{AWS::Region}.dynamodb"}


def test_own_security_groups_create_no_group_or_endpoint(variants: Path) -> None:
    template = read(variants, "everything")
    assert not template.of_type("AWS::EC2::SecurityGroup")
    assert not template.of_type("AWS::EC2::VPCEndpoint")
    placed = [function.properties["VpcConfig"] for function in template.of_type("AWS::Lambda::Function").values()]
    assert all(each["SecurityGroupIds"] == ["sg-0123456789abcdef0"] for each in placed)


def test_no_function_runs_in_a_vpc_without_subnets(template: Template) -> None:
    functions = template.of_type("AWS::Lambda::Function").values()
    assert not [function.name for function in functions if "VpcConfig" in function.properties]
    assert "ec2:" not in template.text


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("govcloud", "arn:{AWS::Partition}:iam::{AWS::AccountId}:policy/PlatformBoundary"),
        ("everything", "arn:aws:iam::111122223333:policy/platform/Boundary"),
    ],
)
def test_boundary_applies_to_every_role(variants: Path, name: str, policy: str) -> None:
    roles = read(variants, name).of_type("AWS::IAM::Role").values()
    assert {role.properties.get("PermissionsBoundary") for role in roles} == {policy}


def test_central_bus_gets_only_findings_of_this_account(variants: Path) -> None:
    template = read(variants, "govcloud")
    rule = template.one("AWS::Events::Rule", "ForwardingFindings")
    assert rule["EventPattern"] == {
        "source": ["trainguard"],
        "account": ["{AWS::AccountId}"],
        "detail": {"job": [{"anything-but": {"prefix": "trainguard-canary-"}}]},
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == GOVCLOUD_BUS
    assert target["RoleArn"] == "{ForwardingRole.Arn}"
    assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}
    (statement,) = statements_by_role(template)["ForwardingRole"]
    assert (statement.actions, statement.resources) == (("events:PutEvents",), (GOVCLOUD_BUS,))


def test_two_stacks_share_no_fixed_name(variants: Path) -> None:
    fixed = {"StateMachineName", "Name", "BucketName", "TableName", "QueueName", "TopicName", "FunctionName"}
    fixed |= {"LogGroupName", "RoleName", "AlarmName", "DashboardName", "LayerName", "KeyName"}

    def names(read_from: Template) -> set[tuple[str, Any]]:
        return {
            (resource.type, value)
            for resource in read_from.resources
            if resource.type != "AWS::Lambda::Alias"  # a name within its function
            for name, value in resource.properties.items()
            if name in fixed and not re.search(r"^\{|\{\w+\.\w+\}", str(value))
        }

    first, second = names(read(variants, "watched")), names(read(variants, "second"))
    assert first
    assert len(first) == len(second)
    assert not first & second


def test_two_stacks_have_separate_metric_namespaces(variants: Path) -> None:
    template = read(variants, "second")
    functions = template.of_type("AWS::Lambda::Function").values()
    variables = [function.properties["Environment"]["Variables"] for function in functions]
    assert {each["POWERTOOLS_METRICS_NAMESPACE"] for each in variables} == {"TrainGuard-Research"}
    assert '"Namespace":"TrainGuard"' not in template.text.replace(" ", "")


def test_other_architecture_applies_to_functions_and_layer(variants: Path) -> None:
    template = read(variants, "china")
    assert {each.properties["Architectures"][0] for each in template.of_type("AWS::Lambda::Function").values()} == {
        "x86_64"
    }
    (layer,) = template.of_type("AWS::Lambda::LayerVersion").values()
    assert layer.properties["CompatibleArchitectures"] == ["x86_64"]


def test_shared_ceiling_counts_stops_in_its_item_alone(
    variants: Path,
) -> None:
    template = read(variants, "everything")
    statements = statements_by_role(template)["ActionsDecideStopRole"]
    (count,) = (statement for statement in statements if statement.sid == "CountStops")
    assert (count.actions, count.resources) == (("dynamodb:GetItem", "dynamodb:PutItem"), (SHARED_BUDGET,))
    assert count.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["stops"]}}
    assert [statement.sid for statement in statements if "dynamodb:PutItem" in statement.actions] == ["CountStops"]
    function = template.one("AWS::Lambda::Function", "ActionsDecideStopFunction")
    assert function["Environment"]["Variables"]["STOP_BUDGET_TABLE"] == SHARED_BUDGET


@pytest.mark.parametrize("name", ["person", "everything"])
def test_disposable_data_does_not_outlive_the_stack(variants: Path, name: str) -> None:
    resources = read(variants, name).resources
    kept = [resource.name for resource in resources if str(resource.deletion_policy).startswith("Retain")]
    assert kept == []
