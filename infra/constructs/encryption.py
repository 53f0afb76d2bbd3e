"""The keys that the deployment names: the stack's own, and an existing bucket's; a role's rights to use them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import cast

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import DeploymentConfig

_KEY_ID = "OwnKey"

_WRITES = frozenset(
    {
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:DeleteItem",
        "s3:PutObject",
        "sns:Publish",
        "sqs:SendMessage",
    }
)
_READS = frozenset({"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan", "s3:GetObject", "sqs:ReceiveMessage"})


def own_key(scope: Construct, config: DeploymentConfig) -> kms.IKey | None:
    """Return the key that ``config`` names, or None; the stack holds it once."""
    if config.kms_key_arn is None:
        return None
    stack = Stack.of(scope)
    if (known := stack.node.try_find_child(_KEY_ID)) is not None:
        return known  # type: ignore[return-value]  # the one child of this name is made below
    return kms.Key.from_key_arn(stack, _KEY_ID, config.kms_key_arn)


def encrypt_with_key_of_sns(topic: sns.Topic) -> None:
    """Encrypt a topic with the key that AWS manages for SNS, which costs nothing and serves the account's roles.

    It is named by its short name: in an account that never encrypted a topic SNS has it made for that name alone. CDK
    would write the alias's ARN, by which nothing is found there.
    """
    cast("sns.CfnTopic", topic.node.default_child).kms_master_key_id = "alias/aws/sns"


def use_keys(config: DeploymentConfig, statements: Sequence[iam.PolicyStatement]) -> list[iam.PolicyStatement]:
    """Return the statements on keys that a role with ``statements`` needs.

    A reader decrypts; a writer needs data keys, and decrypts them to check. A key serves through the services whose
    data the statements name, never directly. The key of an existing bucket serves through S3 alone.
    """
    actions = {action for statement in statements for action in statement.actions} & (_WRITES | _READS)
    of_bucket = {action for action in actions if config.profile_key_arn and action.startswith("s3:")}
    wanted = {
        "UseKey": (config.kms_key_arn, actions - of_bucket),
        "UseProfileKey": (config.profile_key_arn, of_bucket),
    }
    return [_use(sid, key, touched) for sid, (key, touched) in wanted.items() if key and touched]


def _use(sid: str, key_arn: str, touched: AbstractSet[str]) -> iam.PolicyStatement:
    services = sorted({action.split(":")[0] for action in touched})
    # In China the service's name ends in `.cn`.
    watermark_s = [f"{service}.{Aws.REGION}.amazonaws.com*" for service in services]
    return iam.PolicyStatement(
        sid=sid,
        actions=["kms:Decrypt", *(["kms:GenerateDataKey"] if touched & _WRITES else [])],
        resources=[key_arn],
        conditions={"StringLike": {"kms:ViaService": watermark_s}},
    )
