"""The log of alerts that a subscriber of a topic did not get: SNS writes it, and a line of it is a fault.

Mails are not in it: SNS sends those that it could not deliver to the subscription's dead letters.
"""

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.function import Platform, log_group, role_with
from infra.constructs.policy import allow

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
