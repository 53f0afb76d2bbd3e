"""What the policy of the evaluation queue lets S3 send, and by which key the queue is encrypted."""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

S3 = "s3.amazonaws.com"


class S3Sends(Enum):
    """For which buckets S3 may send messages: none, the named one, or all of the account."""

    NOTHING = "nothing"
    OF_BUCKET = "of the bucket"
    OF_ACCOUNT = "of the account"


def s3_sends(client: "SQSClient", url: str) -> S3Sends:
    """Return for which buckets the policy of a queue lets S3 send."""
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    policy = msgspec.json.decode(answer.get("Attributes", {}).get("Policy", "{}"))
    for statement in policy.get("Statement", []):
        if statement["Effect"] == "Allow" and S3 in services_of(statement):
            named = any("aws:SourceArn" in keys for keys in statement.get("Condition", {}).values())
            return S3Sends.OF_BUCKET if named else S3Sends.OF_ACCOUNT
    return S3Sends.NOTHING


def services_of(statement: Mapping[str, Any]) -> list[str]:
    """Return the services that a policy's statement is about."""
    principal = statement.get("Principal")
    named = principal.get("Service", []) if isinstance(principal, dict) else []
    return named if isinstance(named, list) else [named]
