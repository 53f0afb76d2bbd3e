"""Mail subscriptions of a topic."""

from collections.abc import Mapping

from aws_cdk import Token
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

_ADDRESS_BY_PARAMETER = "Address"


def subscribe_address(
    topic: sns.Topic,
    address: str,
    *,
    undelivered: sqs.IQueue,
    filter_policy: Mapping[str, sns.SubscriptionFilter] | None = None,
) -> None:
    """Subscribe a mail address under an id of its own; ``undelivered`` gets what SNS cannot deliver."""
    sns.Subscription(
        topic,
        _ADDRESS_BY_PARAMETER if Token.is_unresolved(address) else address,
        topic=topic,
        protocol=sns.SubscriptionProtocol.EMAIL,
        endpoint=address,
        dead_letter_queue=undelivered,
        filter_policy=filter_policy,
    )
