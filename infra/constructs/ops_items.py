"""OpsItems for broken GPUs: a function behind the findings on their health."""

from aws_cdk import Aws, Duration
from aws_cdk import aws_events as events
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow
from trainguard.aws.alert_channels import EVENT_SOURCE, EVENT_TYPE
from trainguard.core.records import AlertKind
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.stack.actions.ops_items import BROKEN

_MOST_AGE = Duration.hours(6)


def build_ops_items(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build the function, which may open OpsItems and nothing else, and its rule: each finding that is not withheld."""
    function = TrainGuardFunction(
        Construct(stack, "OpsItems"),
        "open_ops_items",
        platform=platform,
        # A new item has no ARN to allow.
        statements=[allow("OpenOpsItems", ["ssm:CreateOpsItem"], ["*"])],
        timeout_s=30,
        dead_letters=platform.undelivered,
    )
    function.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=2)
    function.call_by_rule(
        "EachBrokenGpu",
        "Has TrainGuard open an OpsItem for each broken GPU",
        pattern=events.EventPattern(
            source=[EVENT_SOURCE],
            detail_type=[EVENT_TYPE],
            account=[Aws.ACCOUNT_ID],
            detail={
                "rule": [GPUHealth.spec.name],
                "kind": [AlertKind.FIRE.value, AlertKind.ESCALATION.value],
                "finding_kind": list(BROKEN),
                "canary": [False],
                "withheld": [None],
            },
        ),
        most_age=_MOST_AGE,
    )
    return function
