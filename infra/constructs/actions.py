"""The fire path: decide, stop where opted in, alert, and report; no branch waits for or fails another."""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.config import STOP_SWITCH_VALUES
from infra.constructs import fire_machine
from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.policy import allow, describe_training_jobs, stop_opted_in_training_jobs
from infra.constructs.state_machine import state_machine
from infra.constructs.storage import Storage


class Actions(Construct):
    """The alert topic, the stop switch, two functions, and the state machine that calls them.

    Attributes
    ----------
    alerts : aws_sns.Topic
        What rules say; alarms about TrainGuard itself go elsewhere.
    stop_switch : aws_ssm.StringParameter
        ``enabled``, ``dry-run`` or ``disabled``, for the whole stack.
    state_machine_arn, state_machine_name : str
        The fire state machine.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        platform: FunctionPlatform,
        storage: Storage,
        undelivered: sqs.IQueue,
        build_report: TrainGuardFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        self._platform = platform
        self._storage = storage
        self._build_report = build_report
        self.alerts = self._build_alerts(undelivered)
        self.stop_switch = ssm.StringParameter(
            self,
            "StopSwitch",
            parameter_name=f"/{Stack.of(self).stack_name}/stop-switch",
            description="Whether TrainGuard may stop opted-in training jobs: enabled, dry-run or disabled",
            string_value=platform.config.stop_switch,
            allowed_pattern=f"^({'|'.join(STOP_SWITCH_VALUES)})$",
        )
        self.decide_stop = self._build_decide_stop()
        self.compose_alert = self._build_compose_alert()
        machine = self._build_state_machine()
        self.state_machine_arn = machine.attr_arn
        self.state_machine_name = machine.attr_name

    def _build_alerts(self, undelivered: sqs.IQueue) -> sns.Topic:
        # The key that AWS manages for SNS costs nothing and serves the roles of this account, of which one publishes.
        key = kms.Alias.from_alias_name(self, "SnsKey", "alias/aws/sns")
        topic = sns.Topic(self, "Alerts", display_name="TrainGuard alerts", enforce_ssl=True, master_key=key)
        for address in self._platform.config.alert_emails:
            topic.add_subscription(subscriptions.EmailSubscription(address, dead_letter_queue=undelivered))
        return topic

    def _build_decide_stop(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "DecideStop",
            platform=self._platform,
            spec=FunctionSpec(
                folder="decide_stop",
                statements=[
                    allow("ReadStopSwitch", ["ssm:GetParameter"], [self.stop_switch.parameter_arn]),
                    describe_training_jobs(self),
                ],
                environment={"STOP_SWITCH_PARAMETER": self.stop_switch.parameter_name},
                timeout_s=30,
                memory_mib=512,
            ),
        )

    def _build_compose_alert(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "ComposeAlert",
            platform=self._platform,
            spec=FunctionSpec(
                folder="compose_alert",
                statements=[],
                environment={},
                timeout_s=30,
                memory_mib=512,
            ),
        )

    def _build_state_machine(self) -> sfn.CfnStateMachine:
        return state_machine(
            self,
            "Fire",
            platform=self._platform,
            definition=fire_machine.definition(),
            substitutions={
                "AlertTopicArn": self.alerts.topic_arn,
                "RuleStateTable": self._storage.rule_state.table_name,
                "DecideStopArn": self.decide_stop.function.function_arn,
                "ComposeAlertArn": self.compose_alert.function.function_arn,
                "BuildReportArn": self._build_report.function.function_arn,
            },
            statements=self._fire_statements(),
        )

    def _fire_statements(self) -> list[iam.PolicyStatement]:
        functions = (self.decide_stop, self.compose_alert, self._build_report)
        return [
            allow("InvokeFunctions", ["lambda:InvokeFunction"], [part.function.function_arn for part in functions]),
            allow("PublishAlerts", ["sns:Publish"], [self.alerts.topic_arn]),
            allow("RecordOutcomes", ["dynamodb:UpdateItem"], [self._storage.rule_state.table_arn]),
            stop_opted_in_training_jobs(self),
        ]
