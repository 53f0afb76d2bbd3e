"""What topics send and get: mails to addresses, notices of AWS to operators, and the log of alerts not delivered."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import ArnFormat, Aws, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.dead_letters import DeadLetters
from infra.constructs.function import Platform, log_group, role_with
from infra.constructs.policy import allow

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


BAD_ENDS = ("FAILED", "TIMED_OUT", "ABORTED")


class Notices(Construct):
    """A rule that publishes each event of a pattern to a topic, in the form that chats and mails show."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        pattern: events.EventPattern,
        what: str,
        notice: tuple[str, str],
        topic: sns.Topic,
        undelivered: DeadLetters,
    ) -> None:
        """Make the rule, which reports ``what``; ``notice`` is its title and description."""
        super().__init__(scope, construct_id)
        rule = events.Rule(self, "Rule", description=f"Tells TrainGuard's operators of {what}", event_pattern=pattern)
        # The form in which a chat takes messages of its own; anything else it drops without a word.
        content: dict[str, Any] = {"textType": "client-markdown", "title": notice[0], "description": notice[1]}
        message = events.RuleTargetInput.from_object({"version": "1.0", "source": "custom", "content": content})
        # Given as an ARN: CDK would let in the rules of every account.
        known = sns.Topic.from_topic_arn(self, "Topic", topic.topic_arn)
        rule.add_target(targets.SnsTopic(known, message=message, dead_letter_queue=undelivered.of_rules))
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid=construct_id,
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.rule_arn}},
            )
        )


def ended_badly(machine_arns: list[str]) -> events.EventPattern:
    """Return the pattern of executions with a bad end, but for those of a machine's own Distributed Map."""
    return events.EventPattern(
        source=["aws.states"],
        detail_type=["Step Functions Execution Status Change"],
        detail={"stateMachineArn": machine_arns, "status": list(BAD_ENDS)},
    )


def recovered(alarm_arns: list[str]) -> events.EventPattern:
    """Return the pattern of alarms that are over: a new alarm, which has raised none, is OK without a word."""
    return events.EventPattern(
        source=["aws.cloudwatch"],
        detail_type=["CloudWatch Alarm State Change"],
        resources=alarm_arns,
        detail={"state": {"value": ["OK"]}, "previousState": {"value": ["ALARM"]}},
    )


_LOGGED = (
    sns.LoggingProtocol.HTTP,
    sns.LoggingProtocol.SQS,
    sns.LoggingProtocol.LAMBDA,
    sns.LoggingProtocol.FIREHOSE,
    sns.LoggingProtocol.APPLICATION,
)


class DeliveryLog(Construct):
    """The role by which SNS logs failed deliveries of a topic, and the log, under SNS's name for it."""

    def __init__(self, scope: Construct, construct_id: str, *, platform: Platform, topic: sns.Topic) -> None:
        super().__init__(scope, construct_id)
        config = platform.config
        folder = f"sns/{Aws.REGION}/{Aws.ACCOUNT_ID}"
        # The topic names its role, so the role cannot name the topic: it reaches the logs of the stack's topics.
        own = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{folder}/{config.stack_name}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        role = role_with(
            self,
            "Role",
            config=config,
            principal=iam.ServicePrincipal(
                "sns.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
            statements=[
                allow("LogFailures", ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], [own])
            ],
        )
        for protocol in _LOGGED if platform.overlay.logs_deliveries else ():
            topic.add_logging_config(protocol=protocol, failure_feedback_role=role)
        self.log_group: logs.LogGroup = log_group(self, "Failures", config, name=f"{folder}/{topic.topic_name}/Failure")
