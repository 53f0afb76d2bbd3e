"""Builds a job's report and writes it beside the profile: from state, or with the time lines of a run's parts."""

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
from trainguard.stack.report.build import BuildCall, StackReports

logger = Logger()
environment = load_environment(("jobs_table", "node_state_table"), function="build_report")
clients = Clients()
reports = StackReports(
    jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
    nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
    objects=S3ProfileObjects(client=clients.s3),
)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    del context
    return reports.answer(msgspec.convert(event, BuildCall), now=time.time())
