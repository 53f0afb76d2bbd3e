"""Answers over HTTPS what a job does with what it is paid for; callers are admitted by IAM."""

import time
from http import HTTPStatus
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import LambdaFunctionUrlResolver, Response, content_types
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.core.errors import TrainGuardError
from trainguard.report.job_verdict import job_verdict

LONGEST_NAME = 1_024

logger = Logger()
environment = load_environment(("jobs_table", "rule_state_table"), function="verdict")
clients = Clients()
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)
app = LambdaFunctionUrlResolver()


@app.get("/verdict")
def verdict() -> Response[str]:
    """Answer for the job that the query names; a name may hold characters that a path may not."""
    job = app.current_event.get_query_string_value("job") or ""
    if not job or len(job) > LONGEST_NAME:
        return _answer(HTTPStatus.BAD_REQUEST, {"message": "job is missing or too long, expected /verdict?job=NAME"})
    try:
        found = job_verdict(jobs, rows, job, now=time.time())
    except TrainGuardError as fault:
        logger.exception("no verdict", extra={"job": job})
        return _answer(HTTPStatus.SERVICE_UNAVAILABLE, {"message": str(fault)})
    logger.info("verdict", extra={"job": job, "verdict": found.verdict, "rules": found.rules})
    return _answer(HTTPStatus.OK, found)


def _answer(status: HTTPStatus, document: Any) -> Response[str]:
    body = msgspec.json.encode(document).decode()
    return Response(status, content_types.APPLICATION_JSON, body, headers={"Cache-Control": "no-store"})


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    return app.resolve(event, context)
