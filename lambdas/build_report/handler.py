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
from trainguard.stack.report.build import StackReports
from trainguard.stack.report.calls import BuildCall

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
    """Answer with the place of the page and the number of files; with ``drop``, delete the parts of a run."""
    del context
    call = msgspec.convert(event, BuildCall)
    if call.run and call.drop:
        return {"dropped": reports.drop(call.job, call.run, now=time.time())}
    if call.run:
        page, files = reports.full(call.job, call.run, now=time.time())
    elif call.kind == "hang":
        page, files = reports.of_hang(call.job, now=time.time())
    elif call.kind == "fire":
        page, files = reports.of_fire(call.job, now=time.time())
    else:
        page, files = reports.from_state(call.job, now=time.time())
    return {"reportUri": page, "files": files}
