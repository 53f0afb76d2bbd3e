"""Sums up once a week what the jobs that ended in it wasted, and publishes that on the topics of alerts."""

from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.aws.sns_digest import publish_digest
from trainguard.core.timestamps import TimedEvent
from trainguard.report.fleet.fleet import read_fleet
from trainguard.report.fleet.weekly_digest import fleet_of_week, last_week, weekly_digest

logger = Logger()
environment = load_environment(
    ("jobs_table", "rule_state_table", "alert_topic_arn", "chat_topic_arn", "stack_name"),
    function="weekly_digest",
)
clients = Clients()
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Publish the digest of the week before the event's time, so that a repeat is of the same week."""
    del context
    now = msgspec.convert(event, TimedEvent).time.timestamp()
    monday = last_week(now)
    fleet = fleet_of_week(monday, stack=environment.stack_name, region=environment.alert_topic_arn.split(":")[3])
    digest = weekly_digest(
        fleet, read_fleet(fleet, jobs, lambda job: rows.of_whole_job(job.job)), monday=monday, now=now
    )
    publish_digest(digest, clients.sns, alerts=environment.alert_topic_arn, chats=environment.chat_topic_arn)
    logger.info("digest", extra={"week": digest.monday, "jobs": digest.ended.jobs, "lost": digest.ended.lost})
    return {"week": digest.monday, "jobs": digest.ended.jobs, "with_findings": digest.ended.with_findings}
