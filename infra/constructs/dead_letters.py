"""Queues of what could not be handled, whose policies have one statement for all rules of their stack."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.encryption import own_key

_DAYS = 14


class DeadLetters(sqs.Queue):
    """A queue that keeps what failed for two weeks.

    Attributes
    ----------
    of_rules : aws_sqs.IQueue
        The same for targets of rules: CDK would let in each rule by a statement of its own, of which SQS takes ten.
    """

    def __init__(self, scope: Construct, construct_id: str, config: DeploymentConfig) -> None:
        key = own_key(scope, config)
        super().__init__(
            scope,
            construct_id,
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=Duration.days(_DAYS),
        )
        self.of_rules = sqs.Queue.from_queue_arn(self, "OfRules", self.queue_arn)

    def let_rules_send(self) -> None:
        """Let all rules that the stack has by now send what they could not deliver, and no others."""
        rules = [each for each in Stack.of(self).node.find_all() if isinstance(each, events.CfnRule)]
        let_send(self, "ArnEquals", [rule.attr_arn for rule in rules])


def let_send(queue: sqs.Queue, operator: str, rules: str | list[str]) -> None:
    """Let rules, by their ARNs or a pattern, send to a queue."""
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid="EventsOfTheRules",
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions={operator: {"aws:SourceArn": rules}},
        )
    )
