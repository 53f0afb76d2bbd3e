"""A weekly digest of waste by mail and chat: a function behind a schedule."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_events as events
from constructs import Construct

from infra.constructs.function import Ground, TrainGuardFunction
from infra.constructs.policy import allow

DAY, HOUR_UTC = "MON", 8
_MOST_AGE = Duration.hours(6)


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
        dead_letters=platform.undelivered,
    )
    digest.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=2)
    digest.call_by_rule(
        "EachWeek",
        "Asks TrainGuard once a week what was wasted",
        schedule=events.Schedule.cron(week_day=DAY, hour=str(HOUR_UTC), minute="0"),
        event={"time": events.EventField.time},
        most_age=_MOST_AGE,
    )
    return digest
