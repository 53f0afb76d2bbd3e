"""Functions that a deployment may have: OpsItems for broken GPUs, a weekly digest, and an endpoint for verdicts."""

from collections.abc import Mapping

from aws_cdk import Aws, CfnOutput, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import Ground, Platform, TrainGuardFunction
from infra.constructs.policy import allow
from trainguard.aws.alert_channels import EVENT_SOURCE, EVENT_TYPE
from trainguard.core.records import AlertKind
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.stack.actions.ops_items import BROKEN


def build_ops_items(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build the function, which may open OpsItems and nothing else, and its rule: each finding that is not withheld."""
    function = TrainGuardFunction(
        Construct(stack, "OpsItems"),
        "open_ops_items",
        platform=platform,
        # A new item has no ARN to allow.
        statements=[allow("OpenOpsItems", ["ssm:CreateOpsItem"], ["*"])],
        timeout_s=30,
        most_age=Duration.hours(6),
    )
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
    )
    return function


DAY, HOUR_UTC = "MON", 8


def build_weekly_digest(stack: Construct, platform: Ground, topics: Mapping[str, str]) -> TrainGuardFunction:
    """Build the function, which reads jobs and rows and publishes, and its schedule: Mondays, for the week before.

    ``topics`` are ARNs by the function's variables.
    """
    storage = platform.storage
    digest = TrainGuardFunction(
        Construct(stack, "WeeklyDigest"),
        "weekly_digest",
        platform=platform,
        statements=[
            allow("ReadJobs", ["dynamodb:Scan"], [storage.jobs.table_arn]),
            allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
            allow("PublishDigest", ["sns:Publish"], [*topics.values()]),
        ],
        environment={
            **storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
            **topics,
            "STACK_NAME": platform.config.stack_name,
        },
        timeout_s=300,
        most_age=Duration.hours(6),
    )
    digest.call_by_rule(
        "EachWeek",
        "Asks TrainGuard once a week what was wasted",
        schedule=events.Schedule.cron(week_day=DAY, hour=str(HOUR_UTC), minute="0"),
        event={"time": events.EventField.time},
    )
    return digest


def build_verdict(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build the function, which only reads jobs and rows, and its URL, an output of the stack.

    A caller needs ``lambda:InvokeFunctionUrl`` and ``lambda:InvokeFunction`` on the function, and signs its requests.
    """
    storage = platform.storage
    verdict = TrainGuardFunction(
        Construct(stack, "Verdict"),
        "verdict",
        platform=platform,
        statements=[
            allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
            allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
        ],
        environment=storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
        timeout_s=20,
    )
    url = verdict.function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.AWS_IAM).url
    CfnOutput(stack, "VerdictUrl", value=url)
    return verdict
