"""Tells operators of events of AWS: free, where an alarm would read a metric for each."""

from collections.abc import Sequence
from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

BAD_ENDS = ("FAILED", "TIMED_OUT", "ABORTED")


def let_send(notices: Sequence["Notices"], undelivered: sqs.IQueue) -> None:
    """Let rules send what a topic did not take: in one statement, as a queue's policy has at most ten conditions."""
    undelivered.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Notices",
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[undelivered.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": [each.rule_arn for each in notices]}},
        )
    )


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
        undelivered: sqs.IQueue,
    ) -> None:
        """Make the rule, which reports ``what``; ``notice`` is its title and description."""
        super().__init__(scope, construct_id)
        rule = events.Rule(self, "Rule", description=f"Tells TrainGuard's operators of {what}", event_pattern=pattern)
        self.rule_arn = rule.rule_arn
        # The form in which a chat takes messages of its own; anything else it drops without a word.
        content: dict[str, Any] = {"textType": "client-markdown", "title": notice[0], "description": notice[1]}
        message = events.RuleTargetInput.from_object({"version": "1.0", "source": "custom", "content": content})
        # Given as ARNs: CDK would let in the rules of every account.
        known = sns.Topic.from_topic_arn(self, "Topic", topic.topic_arn)
        dead_letters = sqs.Queue.from_queue_arn(self, "DeadLetters", undelivered.queue_arn)
        rule.add_target(targets.SnsTopic(known, message=message, dead_letter_queue=dead_letters))
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
