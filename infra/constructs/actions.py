"""The fire path: decide, stop where opted in, alert, and report; no branch waits for or fails another."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aws_cdk import Stack, Tokenization
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.config import STOP_SWITCH_VALUES
from infra.constructs import fire_machine
from infra.constructs.canary import no_canary
from infra.constructs.delivery import DeliveryLog
from infra.constructs.encryption import encrypt_with_key_of_sns, own_key
from infra.constructs.function import FunctionPlatform, FunctionSpec, TrainGuardFunction
from infra.constructs.policy import (
    allow,
    describe_training_jobs,
    look_at_resources,
    stop_opted_in_resources,
    stop_opted_in_training_jobs,
    training_jobs,
)
from infra.constructs.state_machine import state_machine
from infra.constructs.storage import Storage
from infra.constructs.subscribers import subscribe_address
from trainguard.aws.alert_channels import EVENT_SOURCE
from trainguard.aws.dynamodb.sent_alerts import ALERTS

STOPS_OF_ALL_JOBS = "*"
"""Key of the one item of RuleState that is of no job: the stops of the last hour. IAM takes it to the letter here."""


class Actions(Construct):
    """Two topics for alerts, the stop switch, a function for each step, and the state machine that calls them.

    Attributes
    ----------
    alerts : aws_sns.Topic
        Of rules; alarms about TrainGuard itself go elsewhere.
    delivery : DeliveryLog
        Alerts that their subscribers did not get.
    chat : aws_sns.Topic
        The same in the form that Amazon Q Developer in chat applications reads, for Slack and Teams.
    stop_switch : aws_ssm.StringParameter
        ``enabled``, ``dry-run`` or ``disabled``, for the whole stack.
    stop_switch_override : str
        Name of the operators' parameter, which the stack never writes: an update may write its own again.
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
        key = own_key(self, platform.config)
        self.alerts = self._build_alerts(undelivered, key)
        self.delivery = DeliveryLog(self, "Delivery", platform=platform, topic=self.alerts)
        self.chat = sns.Topic(self, "Chat", display_name="TrainGuard chat", enforce_ssl=True, master_key=key)
        if key is None:
            encrypt_with_key_of_sns(self.alerts)
            encrypt_with_key_of_sns(self.chat)
        self.stop_switch = ssm.StringParameter(
            self,
            "StopSwitch",
            parameter_name=f"/{platform.config.stack_name}/stop-switch",
            simple_name=False,
            description="Whether TrainGuard may stop opted-in training jobs: enabled, dry-run or disabled",
            string_value=platform.config.stop_switch,
            allowed_pattern=f"^({'|'.join(STOP_SWITCH_VALUES)})$",
        )
        self.stop_switch_override = f"/{platform.config.stack_name}/stop-switch-override"
        self.decide_stop = self._build_decide_stop()
        self.record_fire = self._build_step("RecordFire", "record_fire", [self._write_rows()])
        self.stop_job = self._build_step("StopJob", "stop_job", self._stop_statements())
        self.send_alert = self._build_send_alert()
        machine = self._build_state_machine()
        self.state_machine_arn = machine.attr_arn
        self.state_machine_name = machine.attr_name

    def _build_alerts(self, undelivered: sqs.IQueue, key: kms.IKey | None) -> sns.Topic:
        topic = sns.Topic(self, "Alerts", display_name="TrainGuard alerts", enforce_ssl=True, master_key=key)
        for address in self._platform.config.alert_emails:
            subscribe_address(topic, address, undelivered=undelivered, filter_policy={"Kind": no_canary()})
        return topic

    def _build_decide_stop(self) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            "DecideStop",
            platform=self._platform,
            spec=FunctionSpec(
                folder="decide_stop",
                statements=[
                    allow("ReadStopSwitch", ["ssm:GetParameter"], [self.stop_switch.parameter_arn, self._override_arn]),
                    describe_training_jobs(self),
                    allow("ReadJobs", ["dynamodb:GetItem"], [self._storage.jobs.table_arn]),
                    allow("ReadRuleState", ["dynamodb:GetItem"], [self._storage.rule_state.table_arn]),
                    self._count_stops(),
                    *look_at_resources(self._platform.config.stoppable),
                ],
                environment={
                    "STOP_SWITCH_PARAMETER": self.stop_switch.parameter_name,
                    "STOP_SWITCH_OVERRIDE_PARAMETER": self.stop_switch_override,
                    "JOBS_TABLE": self._storage.jobs.table_name,
                    "RULE_STATE_TABLE": self._storage.rule_state.table_name,
                    "STOP_BUDGET_TABLE": self._platform.config.stop_budget_table or self._storage.rule_state.table_name,
                    "MAX_STOPS_PER_HOUR": Tokenization.stringify_number(self._platform.config.max_stops_per_hour),
                    "STOPPABLE_RESOURCES": ",".join(self._platform.config.stoppable) or "none",
                },
                timeout_s=30,
                memory_mib=512,
            ),
        )

    @property
    def _override_arn(self) -> str:
        return Stack.of(self).format_arn(
            service="ssm", resource="parameter", resource_name=self.stop_switch_override.removeprefix("/")
        )

    def _count_stops(self) -> iam.PolicyStatement:
        """Return the statement for the one item that counts stops; that of another stack is not readable otherwise."""
        shared = self._platform.config.stop_budget_table
        return allow(
            "CountStops",
            ["dynamodb:GetItem", "dynamodb:PutItem"] if shared else ["dynamodb:PutItem"],
            [shared or self._storage.rule_state.table_arn],
            {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": STOPS_OF_ALL_JOBS}},
        )

    def _build_step(
        self,
        construct_id: str,
        folder: str,
        statements: Sequence[iam.PolicyStatement],
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> TrainGuardFunction:
        return TrainGuardFunction(
            self,
            construct_id,
            platform=self._platform,
            spec=FunctionSpec(
                folder=folder,
                statements=statements,
                environment={"RULE_STATE_TABLE": self._storage.rule_state.table_name, **environment},
                timeout_s=30,
                memory_mib=512,
            ),
        )

    def _write_rows(self) -> iam.PolicyStatement:
        return allow("WriteRows", ["dynamodb:UpdateItem"], [self._storage.rule_state.table_arn])

    def _stop_statements(self) -> list[iam.PolicyStatement]:
        """Return the rights of `stop_job`, which alone may stop; it reads a row to find a stop that was made."""
        return [
            self._write_rows(),
            allow("ReadRow", ["dynamodb:GetItem"], [self._storage.rule_state.table_arn]),
            stop_opted_in_training_jobs(self),
            allow("LookAtTrainingJobs", ["sagemaker:DescribeTrainingJob"], [training_jobs(self)]),
            *stop_opted_in_resources(self, self._platform.config.stoppable),
            *look_at_resources(self._platform.config.stoppable),
        ]

    def _build_send_alert(self) -> TrainGuardFunction:
        """Build the function that handles the most foreign text: it may send alerts, and write into no rule's row."""
        bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
        claim = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ALERTS}}
        statements = [
            allow("PublishAlerts", ["sns:Publish"], [self.alerts.topic_arn, self.chat.topic_arn]),
            allow("EmitFindings", ["events:PutEvents"], [bus], {"StringEquals": {"events:source": EVENT_SOURCE}}),
            allow(
                "ClaimAlerts",
                ["dynamodb:GetItem", "dynamodb:UpdateItem"],
                [self._storage.rule_state.table_arn],
                claim,
            ),
        ]
        topics = {"ALERT_TOPIC_ARN": self.alerts.topic_arn, "CHAT_TOPIC_ARN": self.chat.topic_arn}
        return self._build_step("SendAlert", "send_alert", statements, topics)

    def _build_state_machine(self) -> sfn.CfnStateMachine:
        functions = {
            "RecordFireArn": self.record_fire,
            "DecideStopArn": self.decide_stop,
            "StopJobArn": self.stop_job,
            "SendAlertArn": self.send_alert,
            "BuildReportArn": self._build_report,
        }
        arns = {name: part.function.function_arn for name, part in functions.items()}
        return state_machine(
            self,
            "Fire",
            platform=self._platform,
            definition=fire_machine.definition(),
            substitutions={**arns, "AlertTopicArn": self.alerts.topic_arn},
            statements=[
                allow("InvokeFunctions", ["lambda:InvokeFunction"], [*arns.values()]),
                allow("PublishBareAlerts", ["sns:Publish"], [self.alerts.topic_arn]),
            ],
        )
