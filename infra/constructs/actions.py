"""The fire path: decide, stop where opted in, have the report built, and alert; no step keeps another from running."""

from functools import partial

from aws_cdk import Stack, Tokenization
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.config import STOP_SWITCH_VALUES
from infra.constructs import fire_machine
from infra.constructs.canary import no_canary
from infra.constructs.encryption import encrypt_with_key_of_sns, own_key
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import (
    allow,
    describe_training_jobs,
    look_at_resources,
    stop_opted_in_resources,
    stop_opted_in_training_jobs,
    training_jobs,
)
from infra.constructs.report_machine import report_machine_arn
from infra.constructs.state_machine import state_machine
from infra.constructs.topics import DeliveryLog, subscribe_address
from trainguard.aws.alert_channels import EVENT_SOURCE
from trainguard.aws.dynamodb.bookkeeping import AGENTS, ALERTS, REQUESTS, STOPS


class Actions(Construct):
    """Two topics for alerts, the stop switch, a function for each step, and the state machine that calls them.

    Attributes
    ----------
    alerts : aws_sns.Topic
        Of rules; alarms about TrainGuard itself go elsewhere.
    delivery : DeliveryLog
        Alerts that their subscribers did not get.
    topics : dict of str
        ARNs by the variables of functions: of the alerts, and of the same in the form that Amazon Q Developer in chat
        applications reads, for Slack and Teams.
    stop_switch : aws_ssm.StringParameter
        ``enabled``, ``dry-run`` or ``disabled``, for the whole stack.
    stop_switch_override : str
        Name of the operators' parameter, which the stack never writes: an update may write its own again.
    """

    def __init__(self, scope: Construct, platform: Platform) -> None:
        super().__init__(scope, "Actions")
        function = partial(TrainGuardFunction, self, platform=platform)
        storage = platform.storage
        config, key, rows = platform.config, own_key(self, platform.config), storage.rule_state.table_arn
        self.alerts = sns.Topic(self, "Alerts", display_name="TrainGuard alerts", enforce_ssl=True, master_key=key)
        for address in config.alert_emails:
            subscribe_address(
                self.alerts, address, undelivered=platform.undelivered, filter_policy={"Kind": no_canary()}
            )
        self.delivery = DeliveryLog(self, "Delivery", platform=platform, topic=self.alerts)
        chat = sns.Topic(self, "Chat", display_name="TrainGuard chat", enforce_ssl=True, master_key=key)
        if key is None:
            encrypt_with_key_of_sns(self.alerts)
            encrypt_with_key_of_sns(chat)
        self.topics = {"ALERT_TOPIC_ARN": self.alerts.topic_arn, "CHAT_TOPIC_ARN": chat.topic_arn}
        self.stop_switch = ssm.StringParameter(
            self,
            "StopSwitch",
            parameter_name=f"/{config.stack_name}/stop-switch",
            simple_name=False,
            description="Whether TrainGuard may stop opted-in training jobs: enabled, dry-run or disabled",
            string_value=config.stop_switch,
            allowed_pattern=f"^({'|'.join(STOP_SWITCH_VALUES)})$",
        )
        self.stop_switch_override = f"/{config.stack_name}/stop-switch-override"
        self.stop_switch_variables = {
            "STOP_SWITCH_PARAMETER": self.stop_switch.parameter_name,
            "STOP_SWITCH_OVERRIDE_PARAMETER": self.stop_switch_override,
        }
        decide_stop = self._build_decide_stop(platform)
        variables = storage.variables("RULE_STATE_TABLE")
        write_rows = allow("WriteRows", ["dynamodb:UpdateItem"], [rows])
        self.record_fire = function("record_fire", statements=[write_rows], environment=variables, timeout_s=30)
        # It alone may stop; it reads a row to find a stop that was made.
        stop_job = function(
            "stop_job",
            statements=[
                write_rows,
                allow("ReadRow", ["dynamodb:GetItem"], [rows]),
                storage.keep_books("AskAgents", ["UpdateItem"], [f"{REQUESTS}*", f"{AGENTS}*"]),
                storage.keep_books("ReadAnswers", ["GetItem"], [f"{AGENTS}*"]),
                stop_opted_in_training_jobs(self),
                allow("LookAtTrainingJobs", ["sagemaker:DescribeTrainingJob"], [training_jobs(self)]),
                *stop_opted_in_resources(self, config.stoppable_by_aws),
                *look_at_resources(config.stoppable_by_aws),
            ],
            environment=storage.variables("RULE_STATE_TABLE", "BOOKKEEPING_TABLE"),
            timeout_s=30,
            audited=True,
        )
        # It handles the most foreign text: it may send alerts, and reach no job's row.
        bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
        webhook = {"WEBHOOK_SERVICE": config.webhook_service, "STACK_NAME": config.stack_name}
        self.send_alert = function(
            "send_alert",
            statements=[
                allow("PublishAlerts", ["sns:Publish"], [*self.topics.values()]),
                allow("EmitFindings", ["events:PutEvents"], [bus], {"StringEquals": {"events:source": EVENT_SOURCE}}),
                storage.keep_books("ClaimAlerts", ["GetItem", "UpdateItem"], [ALERTS]),
                platform.settings.read_brakes(),
            ],
            environment={
                **storage.variables("BOOKKEEPING_TABLE"),
                **self.topics,
                **platform.settings.environment_of_brakes(),
                **(webhook if config.webhook_secret else {}),
            },
            timeout_s=30,
        )
        self.functions = (self.record_fire, decide_stop, stop_job, self.send_alert)
        reports = report_machine_arn(Stack.of(self), config.stack_name)
        self.state_machine_arn = state_machine(
            self,
            "Fire",
            platform=platform,
            definition=fire_machine.definition(),
            functions=self.functions,
            substitutions={"AlertTopicArn": self.alerts.topic_arn, "ReportMachineArn": reports},
            statements=[
                allow("PublishBareAlerts", ["sns:Publish"], [self.alerts.topic_arn]),
                allow("StartReports", ["states:StartExecution"], [reports]),
            ],
        ).attr_arn

    def read_stop_switch(self) -> iam.PolicyStatement:
        override = Stack.of(self).format_arn(
            service="ssm", resource="parameter", resource_name=self.stop_switch_override.removeprefix("/")
        )
        return allow("ReadStopSwitch", ["ssm:GetParameter"], [self.stop_switch.parameter_arn, override])

    def _build_decide_stop(self, platform: Platform) -> TrainGuardFunction:
        storage = platform.storage
        config, shared = platform.config, platform.config.stop_budget_table
        stop_limit = config.stop_limit_function
        return TrainGuardFunction(
            self,
            "decide_stop",
            platform=platform,
            statements=[
                self.read_stop_switch(),
                describe_training_jobs(self),
                allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
                allow("ReadRuleState", ["dynamodb:GetItem"], [storage.rule_state.table_arn]),
                storage.keep_books("CountStops", ["GetItem", "PutItem"], [STOPS], shared),
                storage.keep_books("ReadAgents", ["GetItem"], [f"{AGENTS}*"]),
                platform.settings.read_brakes(),
                *look_at_resources(config.stoppable_by_aws),
                *([allow("AskStopLimit", ["lambda:InvokeFunction"], [stop_limit])] if stop_limit else []),
            ],
            environment={
                **self.stop_switch_variables,
                **platform.settings.environment_of_brakes(),
                **storage.variables("JOBS_TABLE", "RULE_STATE_TABLE", "BOOKKEEPING_TABLE"),
                "STOP_BUDGET_TABLE": shared or storage.bookkeeping.table_name,
                "MAX_STOPS_PER_HOUR": Tokenization.stringify_number(config.max_stops_per_hour),
                "STOPPABLE_RESOURCES": ",".join(("none", *config.stoppable)),
                **({"STOP_LIMIT_FUNCTION": stop_limit} if stop_limit else {}),
            },
            timeout_s=30,
            audited=True,
        )
