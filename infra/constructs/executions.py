"""Notifies people about executions that failed, by EventBridge: free, where an alarm would read three metrics."""

from collections.abc import Sequence

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

BAD_ENDS = ("FAILED", "TIMED_OUT", "ABORTED")


class FailedExecutions(Construct):
    """A rule that publishes each execution of some state machines with a bad end to a topic.

    Executions of a machine's own Distributed Map have another machine's ARN, and are not among them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        machine_arns: Sequence[str],
        topic: sns.Topic,
        runbook: str,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        rule = events.Rule(
            self,
            "Rule",
            description="Tells TrainGuard's operators of executions that failed",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": list(machine_arns), "status": list(BAD_ENDS)},
            ),
        )
        field = events.EventField.from_path
        ended = f"{field('$.detail.executionArn')} ended as {field('$.detail.status')}"
        # The form in which a chat takes messages of its own; anything else it drops without a word.
        notice = {
            "version": "1.0",
            "source": "custom",
            "content": {
                "textType": "client-markdown",
                "title": f":warning: TrainGuard: {construct_id}",
                "description": f"{ended}. What it means, and what to do: {runbook}",
            },
        }
        # Given as an ARN: CDK would let in the rules of every account.
        known = sns.Topic.from_topic_arn(self, "Topic", topic.topic_arn)
        rule.add_target(
            targets.SnsTopic(known, message=events.RuleTargetInput.from_object(notice), dead_letter_queue=undelivered)
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid=construct_id,
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.rule_arn}},
            )
        )
