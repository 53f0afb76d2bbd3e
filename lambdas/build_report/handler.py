"""Builds a job's report from state and writes it beside the profile."""

import os
import time
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_jobs import DynamoJobs
from trainguard.adapters.dynamodb_node_states import DynamoNodeStates
from trainguard.adapters.environment import BuildReportEnvironment, load_environment
from trainguard.adapters.s3_objects import S3ProfileObjects
from trainguard.report.write import ReportWriter

logger = Logger()
environment = load_environment(BuildReportEnvironment, os.environ, function="build_report")
clients = Clients()
writer = ReportWriter(
    jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
    nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
    objects=S3ProfileObjects(client=clients.s3),
)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the report's place and the number of files."""
    del context
    written = writer.write(event["job"], now=time.time())
    return {"reportUri": written.uri, "files": written.files}
