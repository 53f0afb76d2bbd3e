"""Plans a job's full report: which nodes and days are to be read."""

import os
import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_jobs import DynamoJobs
from trainguard.adapters.dynamodb_node_states import DynamoNodeStates
from trainguard.adapters.environment import PlanReportEnvironment, load_environment
from trainguard.adapters.s3_objects import S3ProfileObjects
from trainguard.report.stack.plan import ReportPlanner

logger = Logger()
environment = load_environment(PlanReportEnvironment, os.environ, function="plan_report")
clients = Clients()
planner = ReportPlanner(
    jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
    nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
    objects=S3ProfileObjects(client=clients.s3),
)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with how many items there are, where their list lies, and the items where those are few."""
    del context
    planned = planner.plan(event["job"], event["run"], now=time.time())
    logger.info("report planned", extra={"job": event["job"], "run": event["run"], "items": planned.count})
    answer: dict[str, Any] = msgspec.to_builtins(planned)
    return answer
