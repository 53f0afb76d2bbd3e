"""Lets training jobs of other accounts write profiles into the stack's bucket, below their account's id."""

from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from infra.config import DeploymentConfig
from trainguard.core.canary_name import CANARY_PREFIX
from trainguard.engine.installed import FAMILIES

# Keys of a job below an account's prefix, the first folder of all keys: the families' objects, the dumps and stacks of
# its standstills, and job files.
WRITTEN_BY_JOBS = (*(keys for family in FAMILIES for keys in family.written), "*/hang-dumps/*", "*/job.json")

# Keys that those wildcards would let through: results, and the names of canaries.
KEPT_FROM_WRITERS = ("*/rule-output/*", f"*/{CANARY_PREFIX}*")

_ALGORITHM = "s3:x-amz-server-side-encryption"
_KEY = "s3:x-amz-server-side-encryption-aws-kms-key-id"
_CUSTOMER_ALGORITHM = "s3:x-amz-server-side-encryption-customer-algorithm"


def let_accounts_write(bucket: s3.Bucket, config: DeploymentConfig) -> None:
    """Put into the bucket's policy the rights of ``config``'s accounts, or organisation, and refusals for all others.

    An object that names a key of another account, or that S3 keeps no key for, could not be read here, and is refused.
    Other keys than the families' are refused in one statement for all accounts: a policy takes 20 KB.
    """
    for account in config.writer_accounts:
        bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid=f"WriteProfilesOf{account}",
                principals=[iam.AccountPrincipal(account)],
                actions=["s3:PutObject"],
                resources=[bucket.arn_for_objects(f"{account}/*")],
            )
        )
    if config.organization_id:
        bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="WriteProfilesOfTheOrganisation",
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                # IAM puts in the account of who writes.
                resources=[bucket.arn_for_objects("${aws:PrincipalAccount}/*")],
                conditions={"StringEquals": {"aws:PrincipalOrgID": config.organization_id}},
            )
        )
    lets_others_in = config.writer_accounts or config.organization_id
    for refusal in _refusals(bucket, config.kms_key_arn) if lets_others_in else ():
        bucket.add_to_resource_policy(refusal)


def _refusals(bucket: s3.Bucket, key_arn: str | None) -> Iterator[iam.PolicyStatement]:
    """Yield what no principal of another account may write, whatever lets it write."""
    all_objects = [bucket.arn_for_objects("*")]
    written = [bucket.arn_for_objects(f"*/{keys}") for keys in WRITTEN_BY_JOBS]
    yield _refuse("RefuseWhatNobodyReads", {}, not_resources=written)
    yield _refuse("KeepResultsFromOthers", {}, resources=[bucket.arn_for_objects(keys) for keys in KEPT_FROM_WRITERS])
    yield _refuse("RefuseKeysOfCustomers", {"Null": {_CUSTOMER_ALGORITHM: "false"}}, resources=all_objects)
    readable = {_KEY: key_arn} if key_arn else {_ALGORITHM: "AES256"}
    foreign = {"Null": {_ALGORITHM: "false"}, "StringNotEquals": readable}
    yield _refuse("RefuseKeysOfOthers", foreign, resources=all_objects)


def _refuse(
    sid: str,
    conditions: Mapping[str, Mapping[str, str]],
    *,
    resources: list[str] | None = None,
    not_resources: list[str] | None = None,
) -> iam.PolicyStatement:
    others = {"aws:PrincipalAccount": Aws.ACCOUNT_ID}
    merged: dict[str, Any] = {**conditions, "StringNotEquals": {**conditions.get("StringNotEquals", {}), **others}}
    return iam.PolicyStatement(
        sid=sid,
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["s3:PutObject"],
        resources=resources,
        not_resources=not_resources,
        conditions=merged,
    )
