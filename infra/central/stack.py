"""The central stack: a bus for all accounts, tables of their jobs, one page, one digest, one stop rate limit."""

from collections.abc import Sequence
from typing import cast

from aws_cdk import Aws, CfnOutput, Duration, Stack, Tokenization
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.dead_letters import DeadLetters
from infra.constructs.encryption import encrypt_with_key_of_sns, own_key
from infra.constructs.extras import build_weekly_digest
from infra.constructs.function import Ground, TrainGuardFunction
from infra.constructs.layer import RulesLayer
from infra.constructs.nag import NO_ASYNC_DESTINATION, NO_DLQ, Accepted, acknowledge, findings_of_functions
from infra.constructs.policy import allow, bound_roles
from infra.constructs.storage import JobStorage
from infra.constructs.topics import subscribe_address
from infra.overlay import Overlay
from trainguard import __version__
from trainguard.aws.alert_channels import EVENT_SOURCE
from trainguard.aws.dynamodb.bookkeeping import STOPS
from trainguard.aws.dynamodb.central import BY_TEAM_INDEX
from trainguard.stack.organisation.statement import EVENT_TYPE

_MOST_AGE = Duration.hours(6)
_PERIOD = Duration.minutes(5)


class CentralStack(Stack):
    """Has the tables of an account's stack, whose jobs are named ``<account>/<region>/<job>``."""

    def __init__(self, scope: Construct, construct_id: str, *, config: DeploymentConfig, overlay: Overlay) -> None:
        super().__init__(scope, construct_id, description="TrainGuard: jobs and stops of an organisation's accounts")
        self._config, self._organization = config, str(config.organization_id)
        self._key = own_key(self, config)
        storage = JobStorage(self, config)
        for table, sort_key in ((storage.jobs, "StatedAt"), (storage.rule_state, "FiredAt")):
            table.add_global_secondary_index(
                index_name=BY_TEAM_INDEX,
                partition_key=dynamodb.Attribute(name="Team", type=dynamodb.AttributeType.STRING),
                sort_key=dynamodb.Attribute(name=sort_key, type=dynamodb.AttributeType.STRING),
                max_write_request_units=config.max_write_units,
            )
        self._undelivered = DeadLetters(self, "Undelivered", config)
        self._ground = Ground(
            config=config,
            overlay=overlay,
            layer=RulesLayer(self, "RulesLayer", overlay=overlay, prices=config.prices),
            placement=None,
            undelivered=self._undelivered,
            storage=storage,
        )
        operations = self._build_topic("Operations", config.operations_emails)
        alerts, chat = self._build_topic("Alerts", config.alert_emails), self._build_topic("Chat")
        bus = self._build_bus()
        admit = self._build_stop_limit()
        keep, draw = self._build_keeper(bus), self._build_page()
        topics = {"ALERT_TOPIC_ARN": alerts.topic_arn, "CHAT_TOPIC_ARN": chat.topic_arn}
        digest = build_weekly_digest(self, self._ground, topics)
        self._build_alarms(operations, admit)
        let_people_read(self, storage)
        outputs = {
            "CentralBusArn": bus.event_bus_arn,
            "StopLimitFunction": admit.arn,
            "FleetPage": f"s3://{storage.bucket_name}/fleet.html",
            "JobsTable": storage.jobs.table_name,
            "RuleStateTable": storage.rule_state.table_name,
            "AlertTopicArn": alerts.topic_arn,
            "ChatTopicArn": chat.topic_arn,
            "OperationsTopicArn": operations.topic_arn,
            "Version": __version__,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        self._undelivered.let_rules_send()
        bound_roles(self, config)
        acknowledge(self, findings_that_stand(config, (admit, keep, draw, digest)))

    def _build_topic(self, name: str, addresses: tuple[str, ...] = ()) -> sns.Topic:
        topic = sns.Topic(self, name, display_name=f"TrainGuard {name.lower()}", enforce_ssl=True, master_key=self._key)
        # CloudWatch may not use the key that AWS manages for SNS.
        if self._key is None and name != "Operations":
            encrypt_with_key_of_sns(topic)
        for address in addresses:
            subscribe_address(topic, address, undelivered=self._undelivered)
        return topic

    def _build_bus(self) -> events.EventBus:
        """Build the bus: accounts of the organisation may put TrainGuard's events there, and nothing else."""
        bus = events.EventBus(self, "Bus", event_bus_name=self._config.stack_name)
        bus.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AccountsOfTheOrganisation",
                principals=[iam.AnyPrincipal()],
                actions=["events:PutEvents"],
                resources=[bus.event_bus_arn],
                conditions={"StringEquals": {"aws:PrincipalOrgID": self._organization, "events:source": EVENT_SOURCE}},
            )
        )
        return bus

    def _build_keeper(self, bus: events.EventBus) -> TrainGuardFunction:
        storage = self._ground.storage
        tables = [storage.jobs.table_arn, storage.rule_state.table_arn]
        keeper = TrainGuardFunction(
            Construct(self, "Keeper"),
            "keep_statement",
            platform=self._ground,
            statements=[allow("KeepStatements", ["dynamodb:PutItem"], tables)],
            environment=storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
            timeout_s=60,
            most_age=_MOST_AGE,
        )
        keeper.call_by_rule(
            "Statements",
            "Keeps what accounts state of their jobs",
            bus=bus,
            pattern=events.EventPattern(source=[EVENT_SOURCE], detail_type=[EVENT_TYPE]),
        )
        return keeper

    def _build_page(self) -> TrainGuardFunction:
        storage = self._ground.storage
        page = TrainGuardFunction(
            Construct(self, "Page"),
            "draw_fleet",
            platform=self._ground,
            statements=[
                allow("ReadJobs", ["dynamodb:Scan"], [storage.jobs.table_arn]),
                allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
                allow("WritePage", ["s3:PutObject"], [f"{storage.bucket_arn}/fleet.{end}" for end in ("html", "json")]),
            ],
            environment={
                **storage.variables("JOBS_TABLE", "RULE_STATE_TABLE", "PROFILE_BUCKET"),
                "STACK_NAME": self._config.stack_name,
            },
            memory_mib=1_024,
            timeout_s=300,
            most_age=_MOST_AGE,
        )
        page.call_by_rule(
            "EachHour",
            "Draws the fleet page over all accounts",
            schedule=events.Schedule.rate(Duration.hours(1)),
        )
        return page

    def _build_stop_limit(self) -> TrainGuardFunction:
        """Build the function that accounts ask before a stop: it counts in one item, and the limit is its own."""
        storage, limit = self._ground.storage, self._config.max_stops_per_hour
        stop_limit = TrainGuardFunction(
            Construct(self, "StopLimit"),
            "admit_stop",
            platform=self._ground,
            statements=[storage.keep_books("CountStops", ["GetItem", "PutItem"], [STOPS])],
            environment={
                "STOP_BUDGET_TABLE": storage.bookkeeping.table_name,
                "MAX_STOPS_PER_HOUR": Tokenization.stringify_number(limit),
            },
            timeout_s=15,
            audited=True,
        )
        stop_limit.function.add_permission(
            "AccountsOfTheOrganisation", principal=iam.OrganizationPrincipal(self._organization)
        )
        return stop_limit

    def _build_alarms(self, operations: sns.Topic, admit: TrainGuardFunction) -> None:
        action = cloudwatch_actions.SnsAction(cast("sns.ITopic", operations))
        alarms = {
            "CentralDeadLettersPresent": self._undelivered.metric_approximate_number_of_messages_visible(
                period=_PERIOD
            ),
            "StopLimitFails": admit.function.metric_errors(period=_PERIOD),
        }
        for name, metric in alarms.items():
            alarm = cloudwatch.Alarm(
                self,
                name,
                alarm_description=f"Runbook: docs/organisation.md, section {name}",
                metric=metric,
                threshold=1,
                evaluation_periods=1,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)


ACCOUNT_TAG, TEAM_TAG = "trainguard-account", "trainguard-team"

_READ = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PartiQLSelect"]


def let_people_read(stack: Construct, storage: JobStorage) -> None:
    """Make two policies for roles of people, outputs of the stack; a session without the tag reads nothing."""
    tables = [storage.jobs.table_arn, storage.rule_state.table_arn]
    own_account = allow(
        "ReadOwnAccount",
        _READ,
        tables,
        {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": f"${{aws:PrincipalTag/{ACCOUNT_TAG}}}/*"},
            "Null": {"dynamodb:LeadingKeys": "false", f"aws:PrincipalTag/{ACCOUNT_TAG}": "false"},
        },
    )
    own_team = allow(
        "ReadOwnTeam",
        ["dynamodb:Query", "dynamodb:PartiQLSelect"],
        [f"{table}/index/{BY_TEAM_INDEX}" for table in tables],
        {
            "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": f"${{aws:PrincipalTag/{TEAM_TAG}}}"},
            "Null": {"dynamodb:LeadingKeys": "false", f"aws:PrincipalTag/{TEAM_TAG}": "false"},
        },
    )
    for name, statement in {"ReadersOfAccount": own_account, "ReadersOfTeam": own_team}.items():
        policy = iam.ManagedPolicy(
            stack,
            name,
            description=f"Reads a part of TrainGuard's central tables in {Aws.REGION}",
            document=iam.PolicyDocument(statements=[statement]),
        )
        CfnOutput(stack, f"{name}Policy", value=policy.managed_policy_arn)


_KEPT = "The function's dead-letter queue keeps a failed event as it came, ready to be sent again."


def findings_that_stand(config: DeploymentConfig, functions: Sequence[TrainGuardFunction]) -> tuple[Accepted, ...]:
    return (
        ("Storage/Profiles/Resource", "AwsSolutions::AwsSolutions-S1", "It holds one page and its document."),
        (
            "Undelivered/Resource",
            "Serverless::Serverless-SQSRedrivePolicy",
            "It is a dead-letter queue: what it holds waits for a person, for whom an alarm fires.",
        ),
        (
            "StopLimit/AdmitStop/Function/Resource",
            NO_DLQ,
            "Accounts ask it synchronously: without an answer they stop nothing.",
        ),
        *(
            (f"{function}/Function/EventInvokeConfig/Resource", NO_ASYNC_DESTINATION, _KEPT)
            for function in ("Keeper/KeepStatement", "Page/DrawFleet", "WeeklyDigest/WeeklyDigest")
        ),
        *findings_of_functions(config, functions),
    )
