"""A weekly digest of waste by mail and chat: a function behind a schedule."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.actions import Actions
from infra.constructs.function import FunctionPlatform, TrainGuardFunction
from infra.constructs.policy import allow
from infra.constructs.storage import Storage

DAY, HOUR_UTC = "MON", 8
_MOST_AGE = Duration.hours(6)


class WeeklyDigest(Construct):
    """The function, which reads jobs and rows and publishes, and its schedule: Mondays, for the week before."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        platform: FunctionPlatform,
        storage: Storage,
        actions: Actions,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = TrainGuardFunction(
            self,
            "weekly_digest",
            platform=platform,
            statements=[
                allow("ReadJobs", ["dynamodb:Scan"], [storage.jobs.table_arn]),
                allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
                allow("PublishDigest", ["sns:Publish"], [*actions.topics.values()]),
            ],
            environment={
                **storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
                **actions.topics,
                "STACK_NAME": platform.config.stack_name,
            },
            timeout_s=300,
            dead_letters=undelivered,
        )
        self.function.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=2)
        self.function.call_by_rule(
            "EachWeek",
            "Asks TrainGuard once a week what was wasted",
            schedule=events.Schedule.cron(week_day=DAY, hour=str(HOUR_UTC), minute="0"),
            event={"time": events.EventField.time},
            most_age=_MOST_AGE,
        )
