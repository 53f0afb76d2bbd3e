"""Draws the fleet page over all accounts, and puts it with its document into the central bucket."""

import time
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.report.fleet.document import encode_fleet
from trainguard.report.fleet.fleet import Fleet, build_fleet, read_fleet
from trainguard.report.html.fleet import render_fleet

SHOWN_S = 30 * 86_400.0

logger = Logger()
environment = load_environment(
    ("jobs_table", "rule_state_table", "profile_bucket", "stack_name"), function="draw_fleet"
)
clients = Clients()
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)
objects = S3ProfileObjects(client=clients.s3)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Draw the jobs of the last 30 days; a repetition replaces the page."""
    del event, context
    now = time.time()
    fleet = Fleet(stack=environment.stack_name, region="all accounts", since=now - SHOWN_S)
    report = build_fleet(fleet, read_fleet(fleet, jobs, lambda job: rows.of_whole_job(job.job)), now=now)
    bucket = environment.profile_bucket
    objects.put(bucket, "fleet.json", encode_fleet(report), "application/json")
    objects.put(bucket, "fleet.html", render_fleet(report).encode(), "text/html; charset=utf-8")
    logger.info("fleet", extra={"jobs": report.totals.jobs, "with_findings": report.totals.with_findings})
    return {"jobs": report.totals.jobs}
