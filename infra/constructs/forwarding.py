"""Findings for a central account: events of the fire path on this account's bus go on to another one."""

from aws_cdk import Aws
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.function import Platform, role_with
from infra.constructs.policy import allow
from trainguard.aws.alert_channels import EVENT_SOURCE
from trainguard.core.canary_name import CANARY_PREFIX


class Forwarding(Construct):
    """The rule that sends findings of this account on to the bus ``central_bus_arn``."""

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
                detail={"job": [{"anything-but": {"prefix": CANARY_PREFIX}}]},
            ),
            targets=[targets.EventBus(bus, role=role.without_policy_updates(), dead_letter_queue=platform.undelivered)],
        )
