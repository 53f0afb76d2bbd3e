"""Plans a job's full report: which nodes and days are to be read."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.environment import load_environment
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.stack.report.plan import PlanCall, ReportPlanner

RESERVE_MS = 60_000

logger = Logger()
environment = load_environment(("jobs_table", "node_state_table"), function="plan_report")
clients = Clients()
planner = ReportPlanner(
    jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
    nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
    objects=S3ProfileObjects(client=clients.s3),
)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the number of items, the place of their list, and few items; or with a listing for the next call."""
    call = msgspec.convert(event, PlanCall)
    planned = planner.plan(
        call.job,
        call.run,
        now=time.time(),
        listing=call.listing,
        has_time=lambda: context.get_remaining_time_in_millis() > RESERVE_MS,
    )
    logger.info("report planned", extra={"job": call.job, "run": call.run, "items": planned.count})
    answer: dict[str, Any] = msgspec.to_builtins(planned)
    return answer
