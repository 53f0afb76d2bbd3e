"""The key of one's own, where the deployment names one, and what a role needs to work with what it encrypts."""

from collections.abc import Sequence
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

    The key is named by its short name: in an account that never encrypted a topic it does not exist, and SNS has it
    made for that name alone. CDK would write the alias's ARN, by which nothing is found there, and nothing published.
    """
    cast("sns.CfnTopic", topic.node.default_child).kms_master_key_id = "alias/aws/sns"


def use_key(config: DeploymentConfig, statements: Sequence[iam.PolicyStatement]) -> list[iam.PolicyStatement]:
    """Return the statement that a role with ``statements`` needs on the key beside them, if it needs one.

    Who reads what the key encrypts decrypts; who writes it needs data keys, and decrypts them to check. The key serves
    through the services whose data the statements speak of, and never directly.
    """
    actions = {action for statement in statements for action in statement.actions}
    writes, touched = actions & _WRITES, actions & (_WRITES | _READS)
    if config.kms_key_arn is None or not touched:
        return []
    services = sorted({action.split(":")[0] for action in touched})
    # In China the service's name ends in `.cn`.
    through = [f"{service}.{Aws.REGION}.amazonaws.com*" for service in services]
    return [
        iam.PolicyStatement(
            sid="UseKey",
            actions=["kms:Decrypt", *(["kms:GenerateDataKey"] if writes else [])],
            resources=[config.kms_key_arn],
            conditions={"StringLike": {"kms:ViaService": through}},
        )
    ]
