"""Tells operators of events of AWS: free, where an alarm would read a metric for each."""

from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.dead_letters import DeadLetters

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
