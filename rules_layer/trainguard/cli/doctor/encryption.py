"""Checks of the key that encrypts the bucket: whether it works, and whether the stack's roles may use it."""

import shlex
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.cli.doctor.check import CheckResult, asking, fail, ok, unless, warn
from trainguard.cli.doctor.roles import PUT, USES, denials, roles_of
from trainguard.cli.doctor.site import Site, allows, listed
from trainguard.core.units import counted

_DECRYPT, _GENERATE = "kms:Decrypt", "kms:GenerateDataKey"
_SECTION = "docs/deployment.md, section An existing bucket"
_NEVER_CHOSEN = "ServerSideEncryptionConfigurationNotFoundError"
"""S3's answer for an old bucket whose encryption nobody has chosen: then S3 keeps the key."""


def check_encryption(site: Site) -> Iterator[CheckResult]:
    """Judge the bucket's encryption by the roles' rights; a missing bucket was reported before."""
    chosen: Mapping[str, Any] = {}
    with asking("s3:GetEncryptionConfiguration"):
        try:
            answer = site.clients.s3.get_bucket_encryption(Bucket=site.bucket)
            (rule,) = answer["ServerSideEncryptionConfiguration"]["Rules"]
            chosen = rule.get("ApplyServerSideEncryptionByDefault", {})
        except ClientError as error:
            if error_code(error) == "NoSuchBucket":
                return
            if error_code(error) != _NEVER_CHOSEN:
                raise
    if (key := chosen.get("KMSMasterKeyID")) is not None:
        yield from _check_key(site, key)
    else:
        keeper = "S3 itself keeps" if chosen.get("SSEAlgorithm", "AES256") == "AES256" else "AWS manages for S3"
        yield ok(f"{site.bucket} is encrypted with a key that {keeper}")


def _check_key(site: Site, named: str) -> Iterator[CheckResult]:
    if ":key/" in named and _account(named) != site.deployment.account:
        yield from _grade_rights(site, named, roles_of(site))
        yield _of_another_account(site, named)
        return
    with asking("kms:DescribeKey"):
        described = site.clients.kms.describe_key(KeyId=named)["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        yield ok(f"{site.bucket} is encrypted with a key that AWS manages for S3")
        return
    key, roles = described["Arn"], roles_of(site)
    faults = [*_grade_rights(site, key, roles)]
    if (state := described.get("KeyState", "Enabled")) != "Enabled":
        found = f"{key} is {state}: no object under it can be read or written"
        faults.append(fail(found, "Enable it, cancel its deletion, or give the bucket another key."))
    faults += grade_policy(key, site.key_policy(key), roles)
    yield from unless(faults, f"{counted(len(roles), 'role')} may use {key}, which encrypts {site.bucket}")


def _account(arn: str) -> str:
    return arn.split(":")[4]


def needed(role: str) -> tuple[str, ...]:
    """Return the actions on the key that a role of `USES` needs; who writes decrypts to check."""
    writes = any(PUT in use.actions for use in USES[role])
    return (_DECRYPT, _GENERATE) if writes else (_DECRYPT,)


def _grade_rights(site: Site, key: str, roles: Mapping[str, str]) -> Iterator[CheckResult]:
    if not site.asks_aws:
        return  # The line on roles says so.
    service = f"s3.{site.deployment.region}.amazonaws.com"
    context = {"kms:ViaService": f"{service}.cn" if site.deployment.partition == "aws-cn" else service}
    lacking: dict[str, list[str]] = {}
    for name, role in roles.items():
        for action, why in denials(site, role, needed(name), key, context):
            lacking.setdefault(f"{action}: {why}", []).append(name)
    for what, names in lacking.items():
        found = f"{site.bucket} is encrypted with {key}, with which {', '.join(names)} may not {what}"
        yield fail(found, _remedy(site, key))


def _remedy(site: Site, key: str) -> str:
    if site.bucket != site.own_bucket:
        return f"Deploy with -c profile_bucket={shlex.quote(site.bucket)} -c profile_key_arn={key}: {_SECTION}."
    if site.names("AWS::S3::Bucket"):
        return f"Deploy with -c kms_key_arn={key}, or give the bucket the encryption again that the stack made."
    return f"Deploy with -c profile_key_arn={key}: {_SECTION}."


def grade_policy(key: str, policy: Mapping[str, Any], roles: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge whether a key's own policy leaves its use to IAM, or names the roles; warns, as grants are not read."""
    partition, account = key.split(":")[1], _account(key)
    everybody = {"*", account, f"arn:{partition}:iam::{account}:root"}
    left_out = [
        name
        for name, role in roles.items()
        if not all(_lets_in(policy, everybody | {role}, action) for action in needed(name))
    ]
    if left_out:
        found = f"the policy of {key} lets in neither its account nor the roles of {', '.join(left_out)}"
        yield warn(found, f"Let the account use it, or these roles: {_SECTION}.")


def _lets_in(policy: Mapping[str, Any], principals: AbstractSet[str], action: str) -> bool:
    for statement in listed(policy.get("Statement")):
        named = statement.get("Principal")
        if allows(statement, action) and not principals.isdisjoint(
            listed(named.get("AWS") if isinstance(named, dict) else named)
        ):
            return True
    return False


def _of_another_account(site: Site, key: str) -> CheckResult:
    """Return what the policy of another account's key must say, which that account alone may read."""
    return warn(
        f"{key}, which encrypts {site.bucket}, is of account {_account(key)}: its policy cannot be read from here",
        f"It must let account {site.deployment.account} use {_DECRYPT} and {_GENERATE} through S3; "
        f"{_SECTION}, has the statement.",
    )
