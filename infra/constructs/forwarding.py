"""Findings for a central account: events of the fire path on this account's bus go on to another one."""

from aws_cdk import Aws
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.canary import CANARY_PREFIX
from infra.constructs.function import role_with
from infra.constructs.policy import allow

EVENT_SOURCE = "trainguard"


class Forwarding(Construct):
    """The rule that sends findings of this account on to the bus ``central_bus_arn``."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: DeploymentConfig,
        central_bus_arn: str,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        this_account = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        role = role_with(
            self,
            "Role",
            config=config,
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
            targets=[targets.EventBus(bus, role=role.without_policy_updates(), dead_letter_queue=undelivered)],
        )
