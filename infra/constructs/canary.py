"""The canary: a synthetic job a day that proves that the deployment detects, alerts and reports."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow
from trainguard.core.canary_name import CANARY_KIND, CANARY_PREFIX
from trainguard.stack.canary import LOOKED_AFTER_MINUTES

PLANTED_HOUR_UTC = 6

_MOST_AGE = Duration.minutes(10)


def no_canary() -> sns.SubscriptionFilter:
    """Return the filter on the attribute ``Kind`` of alerts that lets all through but a canary's."""
    return sns.SubscriptionFilter.string_filter(denylist=[CANARY_KIND])


def build_canary(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build one function behind a schedule: it plants, and checks a quarter of an hour later."""
    storage = platform.storage
    rows = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": f"{CANARY_PREFIX}*"}}
    objects = f"{storage.bucket_arn}/{CANARY_PREFIX}*"
    canary = TrainGuardFunction(
        Construct(stack, "Canary"),
        "canary",
        platform=platform,
        statements=[
            allow("PlantCanaries", ["s3:PutObject", "s3:DeleteObject"], [objects]),
            storage.list_canaries(),
            allow(
                "ReadRowsOfCanaries", ["dynamodb:GetItem"], [storage.rule_state.table_arn, storage.jobs.table_arn], rows
            ),
        ],
        environment=storage.variables("RULE_STATE_TABLE", "JOBS_TABLE", "PROFILE_BUCKET"),
        timeout_s=60,
        dead_letters=platform.undelivered,
    )
    canary.function.configure_async_invoke(max_event_age=_MOST_AGE, retry_attempts=2)
    canary.call_by_rule(
        "Daily",
        "Calls TrainGuard's canary, which plants and looks",
        schedule=events.Schedule.cron(hour=str(PLANTED_HOUR_UTC), minute=f"0,{LOOKED_AFTER_MINUTES}"),
        event={"step": "scheduled", "time": events.EventField.time},
        most_age=_MOST_AGE,
    )
    return canary
