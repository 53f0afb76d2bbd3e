"""What `trainguard doctor` says about the stack's own roles: of the bucket's objects, and of the bucket's key."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.functional.cli import doctor_account
from tests.functional.cli.doctor_account import Account
from tests.functional.cli.doctor_stack import ACCOUNT, BUCKET, REGION, STACK
from tests.functional.cli.healthy_answers import KEY, NOW, Given, always, encrypted
from tests.infra.done_by_services import ROLES
from tests.infra.test_keys import EXPECTED as KEYED
from tests.infra.test_permissions import BUCKET as BUCKET_ARN
from tests.infra.test_permissions import EXPECTED
from trainguard.cli.doctor.diagnosis import diagnose
from trainguard.cli.doctor.roles import KERNELS_MACHINE, LIST, REPORT_MACHINE, USES, grade_policy, needed
from trainguard.cli.doctor.site import CheckLevel, CheckResult, Site
from trainguard.cli.options import Where
from trainguard.cli.services.deployment import find_deployment

SIMULATE = ("iam", "SimulatePrincipalPolicy")
RESOURCES = ("cloudformation", "ListStackResources")
THEIR_KEY = KEY.replace(ACCOUNT, "444455556666")
ROLE_NAMES = {**ROLES, "ReportsReportRole": REPORT_MACHINE, "CapturesKernelsRole": KERNELS_MACHINE}
ROOT = f"arn:aws:iam::{ACCOUNT}:root"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    return account


def of_check(check: str, bucket: str | None = None) -> list[CheckResult]:
    deployment = find_deployment(Where(stack=STACK, region=REGION))
    found = diagnose(Site(deployment, now=NOW, bucket=bucket), None)
    return [finding for finding in found if finding.check == check]


def decide(role: str, action: str, **decision: Any) -> Any:
    """Return a change that decides one action of one role."""

    def change(answer: dict[str, Any], given: Given) -> None:
        for result in answer["EvaluationResults"]:
            if role in given["PolicySourceArn"] and result["EvalActionName"] == action:
                result.update({"EvalDecision": "implicitDeny", **decision})

    return change


def test_checked_role_permissions_match_the_template() -> None:
    for role, held in EXPECTED.items():
        wanted = {
            (action, BUCKET_ARN if action == LIST else f"{BUCKET_ARN}/{use.keys}")
            for use in USES.get(ROLE_NAMES.get(role, ""), ())
            for action in use.actions
        }
        assert wanted == {each for each in held if each[0].startswith("s3:")}, role
    assert {name: needed(name) for name in USES if needed(name)} == {
        ROLE_NAMES[role]: actions for role, actions in KEYED.items()
    }


def test_roles_of_a_deployed_stack_have_their_permissions(account: Account) -> None:
    (found,) = of_check("roles")
    assert (found.level, found.found) == (CheckLevel.OK, f"12 roles may do in {BUCKET} what they are for")


def test_emulator_has_one_line_that_roles_are_not_checked(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.encrypt_bucket(KEY, roles_may=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", "http://localhost:4566")
    found = [*of_check("roles"), *of_check("encryption")]
    said = [each.found for each in found if each.level is not CheckLevel.OK]
    assert said == ["not checked here: an emulator simulates no rights of roles"]


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ({}, "no statement of its policies allows it"),
        ({"EvalDecision": "explicitDeny"}, "a statement of its policies denies it"),
        (
            {"PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": False}},
            "its permissions boundary leaves it out",
        ),
        (
            {"OrganizationsDecisionDetail": {"AllowedByOrganizations": False}},
            "a policy of the organization keeps it from the account",
        ),
    ],
)
def test_role_without_write_permission_fails_with_the_reason(
    account: Account, decision: dict[str, Any], why: str
) -> None:
    account.change(*SIMULATE, decide("ReportsPlanReportRole", "s3:PutObject", **decision))
    (fault,) = of_check("roles")
    place = f"*/rule-output/TrainGuardReport/parts/* in {BUCKET}"
    assert (fault.level, fault.found) == (CheckLevel.FAIL, f"plan_report may not s3:PutObject on {place}: {why}")
    assert "docs/permissions.md" in str(fault.advice)


def test_roles_are_judged_for_a_caller_without_permissions(
    account: Account,
) -> None:
    for operation in ("HeadObject", "ListObjectsV2"):
        account.refuse("s3", operation, "AccessDenied", 403)
    assert {each.level for each in of_check("permissions")} == {CheckLevel.WARN}
    assert {each.level for each in of_check("roles")} == {CheckLevel.OK}


def test_other_bucket_skips_rights_of_roles_in_their_own(
    account: Account,
) -> None:
    assert of_check("roles", bucket="elsewhere") == []


def test_undecided_iam_is_no_all_clear(account: Account) -> None:
    account.answers[SIMULATE] = always({"EvaluationResults": []})
    (told,) = of_check("roles")
    assert told.level is CheckLevel.WARN
    assert "it decided nothing about s3:GetObject" in told.found


@pytest.mark.parametrize(
    ("answer", "keeper"),
    [
        (encrypted("AES256"), "S3 itself keeps"),
        (encrypted("aws:kms"), "AWS manages for S3"),
        (encrypted("aws:kms:dsse"), "AWS manages for S3"),
    ],
)
def test_key_of_nobody_needs_no_role_permission(account: Account, answer: dict[str, Any], keeper: str) -> None:
    account.answers["s3", "GetBucketEncryption"] = always(answer)
    (found,) = of_check("encryption")
    assert (found.level, found.found) == (CheckLevel.OK, f"{BUCKET} is encrypted with a key that {keeper}")


def test_bucket_without_chosen_encryption_uses_the_s3_key(account: Account) -> None:
    account.refuse("s3", "GetBucketEncryption", "ServerSideEncryptionConfigurationNotFoundError", 404)
    assert [each.level for each in of_check("encryption")] == [CheckLevel.OK]
    account.refuse("s3", "GetBucketEncryption", "NoSuchBucket", 404)
    assert of_check("encryption") == []


def test_alias_of_the_aws_managed_key_needs_no_permission(
    account: Account,
) -> None:
    account.encrypt_bucket(f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/aws/s3", roles_may=False)
    account.change("kms", "DescribeKey", lambda answer, _: answer["KeyMetadata"].update(KeyManager="AWS"))
    assert [each.level for each in of_check("encryption")] == [CheckLevel.OK]


@pytest.mark.parametrize("named", [KEY, KEY.rpartition("/")[2], f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/ours"])
def test_permitted_key_is_healthy_in_any_spelling(account: Account, named: str) -> None:
    account.encrypt_bucket(named)
    (found,) = of_check("encryption")
    assert (found.level, found.found) == (CheckLevel.OK, f"11 roles may use {KEY}, which encrypts {BUCKET}")


def without_bucket(answer: dict[str, Any], given: Given) -> None:
    kept = [each for each in answer["StackResourceSummaries"] if each["ResourceType"] != "AWS::S3::Bucket"]
    answer["StackResourceSummaries"] = kept


@pytest.mark.parametrize(
    ("is_existing", "bucket", "remedy"),
    [
        (True, None, f"Deploy with -c profile_key_arn={KEY}: "),
        (False, None, f"Deploy with -c kms_key_arn={KEY}, or give the bucket the encryption again that the stack made"),
        (True, "elsewhere", f"Deploy with -c profile_bucket=elsewhere -c profile_key_arn={KEY}: "),
    ],
)
def test_denied_key_fails_and_names_the_setting(
    account: Account, is_existing: bool, bucket: str | None, remedy: str
) -> None:
    account.encrypt_bucket(KEY, roles_may=False)
    if is_existing:
        account.change(*RESOURCES, without_bucket)
    decrypt, generate = of_check("encryption", bucket)
    place = f"{bucket or BUCKET} is encrypted with {KEY}, with which "
    writers = "plan_report, digest_profile, build_report, canary, plan_capture, digest_trace, join_capture"
    why = "no statement of its policies allows it"
    assert {decrypt.level, generate.level} == {CheckLevel.FAIL}
    assert decrypt.found == f"{place}{', '.join(filter(needed, USES))} may not kms:Decrypt: {why}"
    assert generate.found == f"{place}{writers} may not kms:GenerateDataKey: {why}"
    assert str(decrypt.advice).startswith(remedy)


def test_only_the_role_without_key_permission_is_named(account: Account) -> None:
    account.encrypt_bucket(KEY)
    account.change(*SIMULATE, decide("EvaluationReconcileJobRole", "kms:Decrypt"))
    (fault,) = of_check("encryption")
    assert "with which reconcile_job may not kms:Decrypt" in fault.found


@pytest.mark.parametrize(
    ("partition", "service"), [("aws", f"s3.{REGION}.amazonaws.com"), ("aws-cn", f"s3.{REGION}.amazonaws.com.cn")]
)
def test_iam_is_asked_for_the_key_as_s3_of_the_partition(account: Account, partition: str, service: str) -> None:
    account.encrypt_bucket(KEY)
    watermark_s: set[str] = set()

    def look(answer: dict[str, Any], given: Given) -> None:
        entries = given.get("ContextEntries", ())
        watermark_s.update(
            each["ContextKeyValues"][0] for each in entries if each["ContextKeyName"] == "kms:ViaService"
        )

    account.change(*SIMULATE, look)
    there = replace(find_deployment(Where(stack=STACK, region=REGION)), partition=partition)
    list(diagnose(Site(there, now=NOW), None))
    assert watermark_s == {service}


@pytest.mark.parametrize("state", ["Disabled", "PendingDeletion"])
def test_disabled_key_fails(account: Account, state: str) -> None:
    account.encrypt_bucket(KEY)
    account.change("kms", "DescribeKey", lambda answer, _: answer["KeyMetadata"].update(KeyState=state))
    (fault,) = of_check("encryption")
    assert (fault.level, fault.found) == (
        CheckLevel.FAIL,
        f"{KEY} is {state}: no object under it can be read or written",
    )


def test_key_of_another_account_says_what_its_policy_must_allow(
    account: Account,
) -> None:
    account.encrypt_bucket(THEIR_KEY)
    (told,) = of_check("encryption")
    assert told.level is CheckLevel.WARN
    assert "is of account 444455556666: its policy cannot be read from here" in told.found
    assert f"let account {ACCOUNT} use kms:Decrypt and kms:GenerateDataKey through S3" in str(told.advice)
    assert not {("kms", "DescribeKey"), ("kms", "GetKeyPolicy")} & set(account.asked)


def test_cross_account_key_denied_to_all_roles_fails_first(
    account: Account,
) -> None:
    account.encrypt_bucket(THEIR_KEY, roles_may=False)
    assert [each.level for each in of_check("encryption")] == [CheckLevel.FAIL, CheckLevel.FAIL, CheckLevel.WARN]


def test_key_policy_that_admits_nobody_warns(account: Account) -> None:
    account.encrypt_bucket(KEY)
    nobody = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:role/Admin"}, "Action": "kms:*"}
    account.answers["kms", "GetKeyPolicy"] = always({"Policy": json.dumps({"Statement": [nobody]})})
    (told,) = of_check("encryption")
    assert told.level is CheckLevel.WARN
    assert "lets in neither its account nor the roles of evaluate_objects, reconcile_job, " in told.found


LOOK, PLAN = (f"arn:aws:iam::{ACCOUNT}:role/{name}" for name in ("Look", "Plan"))
ROLE_ARNS = {"reconcile_job": LOOK, "plan_report": PLAN}


@pytest.mark.parametrize(
    ("statements", "left_out"),
    [
        ([], [*ROLE_ARNS]),
        ({"Effect": "Allow", "Principal": {"AWS": ROOT}, "Action": "kms:*"}, []),
        ([{"Effect": "Allow", "Principal": {"AWS": [ACCOUNT]}, "Action": ["kms:Decrypt", "kms:Generate*"]}], []),
        ([{"Effect": "Allow", "Principal": "*", "Action": "*"}], []),
        (
            [{"Effect": "Allow", "Principal": {"AWS": ROOT}, "Action": "kms:Describe*"}],
            [*ROLE_ARNS],
        ),
        ([{"Effect": "Allow", "Principal": {"AWS": [LOOK, PLAN]}, "Action": "KMS:decrypt"}], ["plan_report"]),
        ([{"Effect": "Deny", "Principal": {"AWS": ROOT}, "Action": "kms:*"}], [*ROLE_ARNS]),
        (
            [{"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "*"}],
            [*ROLE_ARNS],
        ),
    ],
)
def test_key_policy_must_delegate_to_iam_or_name_the_roles(statements: Any, left_out: list[str]) -> None:
    found = list(grade_policy(KEY, {"Statement": statements}, ROLE_ARNS))
    assert len(found) == bool(left_out)
    for each in found:
        assert each.found.endswith(f"the roles of {', '.join(left_out)}")
