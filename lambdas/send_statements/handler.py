"""States to the central account what is known of jobs: of one with a new finding, and each hour of all that go on."""

import time
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.alert_channels import put_event
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.central import statement_of
from trainguard.aws.dynamodb.fire_path import region_of
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import load_environment
from trainguard.core.records import JobRecord
from trainguard.report.job_verdict import rows_that_matter
from trainguard.stack.organisation.statement import EVENT_TYPE, StatementCall, send_all

logger = Logger()
environment = load_environment(
    ("jobs_table", "rule_state_table", "central_bus_arn", "stack_name"), function="send_statements"
)
clients = Clients()
# A bus takes events in its own Region alone.
bus = Clients(region=region_of(environment.central_bus_arn)).events
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
rows = DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table)


def send(region: str, job: JobRecord) -> None:
    now = time.time()
    known = rows_that_matter(rows, job.job)
    said = statement_of(job, known, stack=environment.stack_name, region=region, now=now)
    put_event(bus, EVENT_TYPE, msgspec.json.encode(said), environment.central_bus_arn)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Send a statement of each job that the event asks for; a repetition sends newer ones."""
    region = context.invoked_function_arn.split(":")[3]
    call = msgspec.convert(event, StatementCall)
    named = jobs.load(call.job) if call.job else None
    wanted = [named] if named else [] if call.job else call.wanted(jobs.all())
    send_all(wanted, partial(send, region))
    logger.info("statements", extra={"jobs": len(wanted)})
    return {"jobs": len(wanted)}
