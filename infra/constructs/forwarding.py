"""What a central account gets: findings of this account's bus go on to its bus, and statements of jobs go there."""

from aws_cdk import Aws, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction, role_with
from infra.constructs.policy import allow
from trainguard.aws.alert_channels import EVENT_SOURCE, EVENT_TYPE
from trainguard.core.canary_name import CANARY_PREFIX

_NO_CANARY = {"job": [{"anything-but": {"prefix": CANARY_PREFIX}}]}


class Forwarding(Construct):
    """The rule that sends findings on to the bus ``central_bus_arn``, and the function that states jobs there."""

    def __init__(self, scope: Construct, platform: Platform, central_bus_arn: str) -> None:
        super().__init__(scope, "Forwarding")
        this_account = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        role = role_with(
            self,
            "Role",
            config=platform.config,
            principal=iam.ServicePrincipal("events.amazonaws.com", conditions=this_account),
            statements=[allow("ForwardFindings", ["events:PutEvents"], [central_bus_arn])],
        )
        bus = events.EventBus.from_event_bus_arn(self, "CentralBus", central_bus_arn)
        events.Rule(
            self,
            "Findings",
            description="Forwards TrainGuard's findings of this account to the central bus",
            # Neither another account's forwarded findings nor a canary's are sent on.
            event_pattern=events.EventPattern(
                source=[EVENT_SOURCE],
                account=[Aws.ACCOUNT_ID],
                detail=_NO_CANARY,
            ),
            targets=[
                targets.EventBus(
                    bus, role=role.without_policy_updates(), dead_letter_queue=platform.undelivered.of_rules
                )
            ],
        )
        self.function = self._build_statements(platform, central_bus_arn)

    def _build_statements(self, platform: Platform, central_bus_arn: str) -> TrainGuardFunction:
        storage = platform.storage
        from_here = {"StringEquals": {"events:source": EVENT_SOURCE}}
        function = TrainGuardFunction(
            self,
            "send_statements",
            platform=platform,
            statements=[
                allow("ReadJobs", ["dynamodb:GetItem", "dynamodb:Scan"], [storage.jobs.table_arn]),
                allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
                allow("StateJobs", ["events:PutEvents"], [central_bus_arn], from_here),
            ],
            environment={
                **storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
                "CENTRAL_BUS_ARN": central_bus_arn,
                "STACK_NAME": platform.config.stack_name,
            },
            timeout_s=300,
            most_age=Duration.hours(1),
        )
        function.call_by_rule(
            "EachHour",
            "Asks TrainGuard each hour to state its jobs to the central account",
            schedule=events.Schedule.rate(Duration.hours(1)),
            event={"time": events.EventField.time},
        )
        function.call_by_rule(
            "EachFinding",
            "Asks TrainGuard to state a job with a new finding to the central account",
            pattern=events.EventPattern(
                source=[EVENT_SOURCE], detail_type=[EVENT_TYPE], account=[Aws.ACCOUNT_ID], detail=_NO_CANARY
            ),
            event={"time": events.EventField.time, "job": events.EventField.from_path("$.detail.job")},
        )
        return function
