"""The template of a release: for each choice of parameters it is what CDK makes of the same settings."""

import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config import DeploymentConfig, DeploymentConfigError
from infra.release.folder import write_archive
from infra.release.parameters import PARAMETERS, declarations
from infra.release.template import MOST_BYTES
from infra.release.versions import with_steady_names
from tests.infra.cloudformation import Resolver
from tests.infra.releases import BOUNDARY, BUS, CHOSEN, KEY, ORGANISATION, THEIR_KEY
from tests.infra.test_cfn_lint import STANDS, found
from tests.infra.variants import CANARY_IMAGE

ASSETS = {"AssetBucket": "our-releases"}
EMPTY_LISTS = {
    "W1033": "the linter splits the default, an empty text, in a branch that is taken for another text alone"
}
_CODE = re.compile(r"(?P<name>\w+)-[0-9a-f]{16}\.zip")


@pytest.fixture(scope="module")
def document(releases: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((releases / "release.json").read_text(encoding="utf-8"))
    return read


def parameters_of(context: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that say what context values do."""
    named = {each.setting: each.name for each in PARAMETERS}
    return {**ASSETS, **{named[name]: value for name, value in context.items() if name != "stack_name"}}


def resolved(document: Mapping[str, Any], context: Mapping[str, str], stack_name: str) -> Resolver:
    return Resolver(document, parameters_of(context), stack_name=stack_name)


def comparable(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return resources without where their code lies, and without what is only a matter of names and order."""
    compared = {}
    for name, resource in resources.items():
        properties = dict(resource.get("Properties", {}))
        is_versioned = resource["Type"] in {"AWS::Lambda::Function", "AWS::Lambda::Version"}
        for code in {"Code", "Content", *(["Description"] if is_versioned else [])} & properties.keys():
            del properties[code]
        # A subscription is named after its address, which a template with parameters does not know.
        is_subscription = resource["Type"] == "AWS::SNS::Subscription"
        compared[properties["TopicArn"] if is_subscription else name] = in_order({**resource, "Properties": properties})
    return compared


def in_order(value: Any) -> Any:
    """Return a value with the statements of policies in the order of what they say."""
    if isinstance(value, dict):
        return {name: in_order(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    parts = [in_order(part) for part in value]
    are_statements = all(isinstance(part, dict) and "Effect" in part for part in parts)
    return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True)) if are_statements else parts


ANY_RULE = {"ArnLike": {"aws:SourceArn": "arn:{AWS::Partition}:events:{AWS::Region}:{AWS::AccountId}:rule/*"}}


def with_any_rule(resources: dict[str, Any]) -> dict[str, Any]:
    """Return resources whose evaluation queue takes any rule of account and Region, as a release's always does.

    Its bucket may wait for the queue's policy, which so can name no rule that names the bucket.
    """
    found: dict[str, Any] = json.loads(json.dumps(resources))
    for resource in found.values():
        if resource["Type"] != "AWS::SQS::QueuePolicy":
            continue
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
            rules = statement.get("Condition", {}).get("ArnEquals", {}).get("aws:SourceArn", [])
            if statement.get("Sid") == "EventsOfTheRules" and "Doorbells" in json.dumps(statement["Resource"]):
                assert rules or statement["Condition"] == ANY_RULE
                statement["Condition"] = ANY_RULE
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_resolved_parameters_match_cdk_with_the_same_settings(
    releases: Path, document: dict[str, Any], name: str
) -> None:
    stack_name = CHOSEN[name].get("stack_name", "TrainGuard")
    synthesised = with_steady_names(json.loads((releases / f"{name}.json").read_text("utf-8")))
    by_cdk = Resolver(synthesised, {}, stack_name=stack_name)
    released = resolved(document, CHOSEN[name], stack_name)
    assert comparable(released.resources()) == comparable(with_any_rule(by_cdk.resources()))
    assert released.outputs() == by_cdk.outputs()
    assert released.refusals() == []


def test_release_code_lies_below_the_prefix_in_the_bucket(
    document: dict[str, Any],
) -> None:
    code = [
        resource["Properties"].get("Code") or resource["Properties"].get("Content")
        for resource in document["Resources"].values()
        if resource["Type"] in {"AWS::Lambda::Function", "AWS::Lambda::LayerVersion"}
    ]
    by_region = ["HasBucketByRegion", {"Fn::Sub": "${AssetBucket}-${AWS::Region}"}, {"Ref": "AssetBucket"}]
    assert [each["S3Bucket"] for each in code] == [{"Fn::If": by_region}] * len(code)
    files = [each["S3Key"]["Fn::Sub"].removeprefix("${AssetPrefix}") for each in code]
    names = [match["name"] for file in files if (match := _CODE.fullmatch(file))]
    folders = {
        each.name for each in (Path(__file__).parents[2] / "lambdas").iterdir() if (each / "handler.py").exists()
    }
    off = {"poll_source", "verdict"}  # Settings without a parameter add them.
    off |= {"keep_statement", "draw_fleet", "admit_stop"}  # The central stack has them.
    assert sorted(names) == sorted({*folders, "layer"} - off)


def test_release_has_nothing_of_cdk_bootstrap_or_this_machine(releases: Path, document: dict[str, Any]) -> None:
    text = (releases / "release.json").read_text("utf-8")
    assert not re.findall(r"cdk-|bootstrap|hnb659fds|BootstrapVersion|CDKMetadata|aws:asset|aws:cdk", text)
    assert str(releases) not in text
    assert str(Path.home()) not in text
    assert not re.findall(r'"/(?:tmp|home|root|work|Users)/', text)
    assert list(document["Parameters"]) == [each.name for each in PARAMETERS]
    assert len(text.encode()) < MOST_BYTES


def test_archive_bytes_are_independent_of_time_and_permissions(
    tmp_path: Path,
) -> None:
    for folder, names, rights, time_s in (("a", "xy", 0o600, 1_000_000_000), ("b", "yx", 0o755, 1_700_000_000)):
        for name in names:
            file = tmp_path / folder / "sub" / f"{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{name}\n" * 100, encoding="utf-8")
            file.chmod(rights)
            os.utime(file, (time_s, time_s))
        write_archive(tmp_path / f"{folder}.zip", tmp_path / folder, below="release/")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["release/sub/x.txt", "release/sub/y.txt"]
        assert archive.read("release/sub/x.txt") == b"x\n" * 100


def test_given_the_release_when_linted_then_nothing_is_found(releases: Path) -> None:
    assert found(releases / "release.json", STANDS | EMPTY_LISTS) == []


def test_release_parameters_have_group_label_and_description(
    document: dict[str, Any],
) -> None:
    form = document["Metadata"]["AWS::CloudFormation::Interface"]
    grouped = [name for group in form["ParameterGroups"] for name in group["Parameters"]]
    assert sorted(grouped) == sorted(form["ParameterLabels"]) == sorted(document["Parameters"])
    assert all(each["Description"].endswith(".") for each in document["Parameters"].values())
    assert [name for name, each in document["Parameters"].items() if "Default" not in each] == ["AssetBucket"]


@pytest.mark.parametrize(
    ("context", "refusal"),
    [
        ({"profile_key_arn": THEIR_KEY}, "ProfileKeyArn needs ProfileBucket: "),
        ({"profile_notifications": "queue"}, "ProfileNotifications needs ProfileBucket: "),
        (
            {"organization_id": "o-a1b2c3d4e5", "profile_bucket": "our-profiles"},
            "OrganizationId needs a bucket of the stack's own",
        ),
        ({"subnet_ids": "subnet-0123456789abcdef0"}, "SubnetIds needs SecurityGroupIds."),
        ({"security_group_ids": "sg-0123456789abcdef0"}, "SecurityGroupIds needs SubnetIds."),
    ],
)
def test_conflicting_parameters_are_refused_by_the_rules(
    document: dict[str, Any], context: dict[str, str], refusal: str
) -> None:
    (found_refusal,) = resolved(document, context, "TrainGuard").refusals()
    assert found_refusal.startswith(refusal)


SWITCH = (("true", "false"), ("yes", ""))
VALUES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ProfileBucket": (("our-profiles", "a.b-c"), ("Our-Profiles", "ab", "s3://our-profiles")),
    "ProfileKeyArn": ((THEIR_KEY,), ("alias/aws/s3", THEIR_KEY.replace(":key/", ":alias/"))),
    "ProfileNotifications": (("eventbridge", "queue"), ("sns", "")),
    "ProfileRetentionDays": (("1", "3650"), ("0", "3651", "1.5")),
    "Evaluate": (("all", "tagged", "off"), ("some",)),
    "AlertEmail": (("ml@example.com",), ("ml@example", "ml at example.com")),
    "OperationsEmail": (("a.b+c@d.example.com",), ("@example.com",)),
    "CentralBusArn": ((BUS,), (BUS.replace("event-bus", "rule"), "default")),
    **dict.fromkeys(("OpsItems", "WeeklyDigest", "EventSchemas"), SWITCH),
    "StopSwitch": (("enabled", "dry-run", "disabled"), ("on", "true")),
    "MaxStopsPerHour": (("0", "1000"), ("-1", "1001")),
    "StopLimitFunction": ((ORGANISATION["stop_limit_function"],), ("admit_stop", BUS)),
    **dict.fromkeys(("StopBatchJobs", "StopInstances", "StopWorkloads", "ActOnNodes"), SWITCH),
    "Rollout": (("AllAtOnce", "Linear10PercentEvery3Minutes"), ("Canary", "")),
    "Canary": (("true", "false"), ("yes",)),
    "CanaryImage": ((CANARY_IMAGE, f"{CANARY_IMAGE.partition(':')[0]}@sha256:{64 * 'a'}"), ("busybox:1",)),
    "Dashboard": (("true", "false"), ("no",)),
    "Tracing": (("pass-through", "active"), ("on", "")),
    "LogRetentionDays": (("1", "365"), ("2", "366")),
    "EvaluatorConcurrency": (("2", "1000"), ("1", "1001")),
    "EvaluatorMemoryMb": (("128", "10240"), ("127", "10241")),
    "ReportMemoryMb": (("128", "10240"), ("127", "10241")),
    **{
        f"{name}MemoryMb": (("128", "10240"), ("127", "10241"))
        for name in ("Scheduler", "Reconcile", "Lifecycle", "PlanReport", "KernelDigest", "KernelJoin")
    },
    "KmsKeyArn": ((KEY,), ("alias/ours",)),
    "PermissionsBoundary": ((BOUNDARY, "arn:aws:iam::aws:policy/ReadOnlyAccess"), ("arn:aws:iam::1:role/x",)),
    "RolePath": (("/trainguard/", "/a/b-c/"), ("trainguard", "/", "/trainguard")),
    "CodeSigningConfigArn": ((ORGANISATION["code_signing_config_arn"],), ("csc-0123456789abcdef0",)),
    "OrganizationId": (("o-a1b2c3d4e5",), ("o-1", "111122223333")),
    "SubnetIds": (("subnet-01234567", "subnet-01234567,subnet-89abcdef"), ("sn-01234567",)),
    "SecurityGroupIds": (("sg-01234567",), ("sg-01234567,x",)),
}
# What a setting needs beside itself.
TOGETHER = {
    "profile_key_arn": {"profile_bucket": "our-profiles"},
    "profile_notifications": {"profile_bucket": "our-profiles"},
    "subnet_ids": {"security_group_ids": "sg-0123456789abcdef0"},
    "security_group_ids": {"subnet_ids": "subnet-0123456789abcdef0"},
}


def test_each_parameter_with_a_setting_is_tried() -> None:
    assert list(VALUES) == [each.name for each in PARAMETERS if each.setting]


@pytest.mark.parametrize("name", VALUES)
def test_parameter_takes_exactly_what_its_setting_takes(document: dict[str, Any], name: str) -> None:
    (parameter,) = (each for each in PARAMETERS if each.name == name)
    setting = str(parameter.setting)
    taken, refused = VALUES[name]
    assert parameter.name.lower().removesuffix("s") == setting.replace("_", "").removesuffix("s")
    for value in taken:
        DeploymentConfig.from_context({setting: value, **TOGETHER.get(setting, {})})
        assert takes(document["Parameters"][name], value), value
    for value in refused:
        with pytest.raises(DeploymentConfigError):
            DeploymentConfig.from_context({setting: value, **TOGETHER.get(setting, {})})
        assert not takes(document["Parameters"][name], value), value


def takes(declared: Mapping[str, Any], value: str) -> bool:
    """Return whether CloudFormation takes a value for a parameter, as its declaration says."""
    if "AllowedValues" in declared:
        return value in declared["AllowedValues"]
    if "MinValue" in declared:
        return value.isdigit() and declared["MinValue"] <= int(value) <= declared["MaxValue"]
    return re.fullmatch(declared["AllowedPattern"], value) is not None


def test_settings_become_defaults_of_release_parameters() -> None:
    config = DeploymentConfig.from_context({**CHOSEN["all-with-own-bucket"], "stack_name": "TrainGuard"})
    defaults = {name: each.get("Default") for name, each in declarations(config).items()}
    given = parameters_of(CHOSEN["all-with-own-bucket"])
    assert {name: defaults[name] for name in given if name not in ASSETS} == {
        name: value for name, value in given.items() if name not in ASSETS
    }
    assert (defaults["Evaluate"], defaults["ProfileBucket"], defaults["Canary"]) == ("tagged", "", "true")


def test_release_with_run_files_reads_its_bucket_by_events_alone() -> None:
    config = DeploymentConfig.from_context({"live_sources": "logs,wandb"})
    assert declarations(config)["ProfileNotifications"]["AllowedValues"] == ["eventbridge"]


@pytest.mark.parametrize(
    ("context", "fault"),
    [
        ({"alert_emails": "ml@example.com,oncall@example.com"}, "alert_emails is 'ml@example.com,oncall@example.com'"),
        ({"evaluate": "prod-*"}, "evaluate is 'prod-*', which the parameter Evaluate of a release cannot be"),
        ({"permissions_boundary": "Boundary"}, "permissions_boundary is 'Boundary'"),
        ({"stack_name": "Ours"}, "stack_name is chosen when a release's stack is created"),
        (
            {"vpc_id": "vpc-0123456789abcdef0", "subnet_ids": "subnet-0123456789abcdef0"},
            "vpc_id makes no security group in a release",
        ),
    ],
)
def test_setting_no_release_can_have_is_refused(context: dict[str, str], fault: str) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        declarations(DeploymentConfig.from_context(context))
    (told,) = failure.value.faults
    assert told.startswith(fault)
