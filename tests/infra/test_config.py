"""What a person may choose: text from the command line and values from ``cdk.json`` alike, all faults at once."""

import pytest

from infra.config import DeploymentConfig, DeploymentConfigError

A_STACKS_NAME = "a letter, then up to 59 letters, digits and hyphens, not beginning with aws or ssm"

ACCOUNTS = "at most 40 ids of accounts, of 12 digits each, separated by commas"
ALIAS = "arn:aws:kms:eu-west-1:111122223333:alias/ours"
KEY = {"profile_key_arn": "arn:aws:kms:eu-west-1:444455556666:key/mrk-0b6a1f0e5f4c4c539a9f7d1c1f1f8d10"}
BUCKET = {"profile_bucket": "our-profiles"}
QUEUE = {"profile_notifications": "queue"}
WRITERS = {"writer_accounts": "444455556666"}


def test_given_no_context_when_read_then_the_defaults_hold() -> None:
    config = DeploymentConfig.from_context({})
    assert config == DeploymentConfig()
    assert config.retain_data
    assert config.profile_retention_days == 30
    assert config.stop_switch == "enabled"
    assert not config.emulator


def test_text_and_json_values_mean_the_same() -> None:
    text = {
        "retain_data": "false",
        "profile_retention_days": "7",
        "log_retention_days": "90",
        "alert_emails": "a@example.com, b@example.com",
        "emulator": "true",
    }
    values = {
        "retain_data": False,
        "profile_retention_days": 7,
        "log_retention_days": 90,
        "alert_emails": ["a@example.com", "b@example.com"],
        "emulator": True,
    }
    assert DeploymentConfig.from_context(text) == DeploymentConfig.from_context(values)
    assert DeploymentConfig.from_context(text).alert_emails == ("a@example.com", "b@example.com")


def test_wrong_values_are_all_named_with_what_is_valid() -> None:
    context = {
        "retain_data": "maybe",
        "profile_bucket": "Not_A_Bucket",
        "profile_key_arn": ALIAS,
        "writer_accounts": "1234",
        "profile_retention_days": "0",
        "log_retention_days": 8,
        "max_write_units": True,
        "evaluator_concurrency": "1",
        "reconcile_concurrency": "0",
        "evaluator_memory_mb": "127",
        "reconcile_memory_mb": 10_241,
        "report_memory_mb": "2 GB",
        "alert_emails": "nobody",
        "operations_emails": 7,
        "stop_switch": "on",
        "stop_budget_table": "TrainGuard-Bookkeeping",
        "evaluate": "prod",
        "kms_key_arn": "alias/ours",
        "permissions_boundary": "arn:aws:iam::1:role/x",
        "vpc_id": "ours",
        "subnet_ids": "subnet-1",
        "security_group_ids": ["sg-0123456789abcdef0", 7],
        "route_table_ids": True,
        "central_bus_arn": "arn:aws:sns:eu-west-1:111122223333:x",
        "architecture": "riscv",
        "emulator": "yes",
        "stack_name": "1st",
    }
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context(context)
    assert failure.value.faults == [
        f"stack_name is '1st', expected {A_STACKS_NAME}",
        "retain_data is 'maybe', expected true or false",
        "profile_bucket is 'Not_A_Bucket', expected the name of an existing S3 bucket",
        f"profile_key_arn is '{ALIAS}', expected the ARN of a KMS key, not of an alias",
        f"writer_accounts is '1234', expected {ACCOUNTS}",
        "profile_retention_days is '0', expected a whole number from 1 to 3650",
        "log_retention_days is 8, expected one of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365",
        "max_write_units is True, expected a whole number from 1 to 40000",
        "evaluator_concurrency is '1', expected a whole number from 2 to 1000",
        "reconcile_concurrency is '0', expected a whole number from 1 to 1000",
        "evaluator_memory_mb is '127', expected a whole number from 128 to 10240",
        "reconcile_memory_mb is 10241, expected a whole number from 128 to 10240",
        "report_memory_mb is '2 GB', expected a whole number from 128 to 10240",
        "alert_emails is 'nobody', expected addresses separated by commas",
        "operations_emails is 7, expected addresses separated by commas",
        "stop_switch is 'on', expected one of enabled, dry-run, disabled",
        "stop_budget_table is 'TrainGuard-Bookkeeping', expected the ARN of another stack's Bookkeeping table",
        "evaluate is 'prod', expected all, tagged, off, or patterns such as prod-* separated by commas",
        "kms_key_arn is 'alias/ours', expected the ARN of a KMS key, not of an alias",
        "permissions_boundary is 'arn:aws:iam::1:role/x', expected the ARN or the name of an IAM policy",
        "vpc_id is 'ours', expected the id of a VPC",
        "subnet_ids is 'subnet-1', expected ids of subnets separated by commas",
        "security_group_ids is ['sg-0123456789abcdef0', 7], expected ids of security groups separated by commas",
        "route_table_ids is True, expected ids of route tables separated by commas",
        "central_bus_arn is 'arn:aws:sns:eu-west-1:111122223333:x', expected the ARN of an EventBridge event bus",
        "architecture is 'riscv', expected one of arm64, x86_64",
        "emulator is 'yes', expected true or false",
        "writer_accounts needs a bucket of the stack's own: the policy of profile_bucket is yours",
    ]


@pytest.mark.parametrize("name", DeploymentConfig.names())
def test_given_a_setting_when_listed_then_it_is_a_field(name: str) -> None:
    assert name in DeploymentConfig.__dataclass_fields__


def test_each_field_can_be_set_from_context() -> None:
    assert set(DeploymentConfig.names()) == set(DeploymentConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("kms_key_arm", "kms_key_arn"),
        ("kmsKeyArn", "kms_key_arn"),
        ("retain-data", "retain_data"),
        ("subnet_id", "subnet_ids"),
        ("Stack_Name", "stack_name"),
    ],
)
def test_misspelt_setting_is_named(given: str, meant: str) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context({given: "true", "profile_retention_days": 0})
    assert failure.value.faults == [
        "profile_retention_days is 0, expected a whole number from 1 to 3650",
        f"{given} is no setting, did you mean {meant}?",
    ]


def test_foreign_context_names_are_ignored() -> None:
    others = {"team": "vision", "@aws-cdk/core:retain_data": True, "availability-zones:account=1:region=x": ["a"]}
    assert DeploymentConfig.from_context(others) == DeploymentConfig()


@pytest.mark.parametrize("name", ["aws-trainguard", "AWSome", "ssm", "Ssm-Profiles"])
def test_stack_name_reserved_by_ssm_is_refused(
    name: str,
) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context({"stack_name": name})
    assert failure.value.faults == [f"stack_name is {name!r}, expected {A_STACKS_NAME}"]
    assert DeploymentConfig.from_context({"stack_name": f"Our-{name}"}).stack_name == f"Our-{name}"


VPC = {"vpc_id": "vpc-0123456789abcdef0"}
SUBNETS = {"subnet_ids": "subnet-0123456789abcdef0"}
GROUPS = {"security_group_ids": "sg-0123456789abcdef0"}
ROUTES = {"route_table_ids": "rtb-0123456789abcdef0"}


@pytest.mark.parametrize(
    ("context", "fault"),
    [
        (SUBNETS, "subnet_ids needs security_group_ids, or vpc_id to make a security group in"),
        (GROUPS, "security_group_ids needs subnet_ids"),
        (ROUTES, "route_table_ids needs vpc_id"),
        (VPC, "vpc_id needs subnet_ids or route_table_ids"),
    ],
)
def test_incomplete_network_error_says_what_is_missing(context: dict[str, object], fault: str) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context(context)
    assert failure.value.faults == [fault]


@pytest.mark.parametrize("context", [SUBNETS | GROUPS, SUBNETS | VPC, VPC | ROUTES, SUBNETS | GROUPS | VPC | ROUTES])
def test_given_a_whole_network_when_read_then_it_is_taken(context: dict[str, object]) -> None:
    config = DeploymentConfig.from_context(context)
    assert all(getattr(config, name) for name in context)


@pytest.mark.parametrize(
    ("context", "fault"),
    [
        (KEY, "profile_key_arn needs profile_bucket: kms_key_arn is the key of a bucket of the stack's own"),
        (WRITERS | BUCKET, "writer_accounts needs a bucket of the stack's own: the policy of profile_bucket is yours"),
        (QUEUE, "profile_notifications needs profile_bucket: a bucket of the stack's own notifies the queue"),
        (
            QUEUE | BUCKET | {"live_sources": "logs,wandb"},
            "profile_notifications=queue and wandb in live_sources: run files need the bucket's events",
        ),
    ],
)
def test_setting_in_conflict_with_the_bucket_says_why(context: dict[str, object], fault: str) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context(context)
    assert failure.value.faults == [fault]


def test_faulty_bucket_with_its_key_is_not_called_missing() -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context(KEY | {"profile_bucket": "Not_A_Bucket"})
    assert failure.value.faults == ["profile_bucket is 'Not_A_Bucket', expected the name of an existing S3 bucket"]


@pytest.mark.parametrize(
    "given",
    ["44445555666", "4444555566667", "arn:aws:iam::444455556666:root", "*", 444455556666, [444455556666], "१" * 12],
)
def test_invalid_writer_account_is_refused(given: object) -> None:
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context({"writer_accounts": given})
    assert failure.value.faults == [f"writer_accounts is {given!r}, expected {ACCOUNTS}"]


def test_accounts_count_once_and_up_to_the_policy_limit() -> None:
    many = [f"{number:012}" for number in range(40)]
    assert DeploymentConfig.from_context({"writer_accounts": ["000000000001", *many]}).writer_accounts == (
        "000000000001",
        "000000000000",
        *many[2:],
    )
    with pytest.raises(DeploymentConfigError):
        DeploymentConfig.from_context({"writer_accounts": [*many, "444455556666"]})


def test_existing_bucket_key_is_accepted_beside_a_stack_key() -> None:
    config = DeploymentConfig.from_context(KEY | BUCKET | {"kms_key_arn": KEY["profile_key_arn"]})
    assert (config.profile_bucket, config.profile_key_arn) == ("our-profiles", KEY["profile_key_arn"])
