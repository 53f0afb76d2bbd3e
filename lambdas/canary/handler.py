"""Plants the canary, and checks minutes later that it was found, alerted, reported and closed."""

import os
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.canary_jobs import SageMakerCanaryJobs
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.environment import CANARY, CANARY_JOB, load_environment
from trainguard.aws.observability import PowertoolsJournal
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.stoppable import stop_switches
from trainguard.stack.canary import Canary, CanaryCall
from trainguard.stack.canary_job import JobCanary

logger = Logger()
metrics = Metrics()
is_job = "CANARY_IMAGE" in os.environ
environment = load_environment(CANARY_JOB if is_job else CANARY, function="canary")
clients = Clients()
parts: dict[str, Any] = {
    "bucket": environment.profile_bucket,
    "objects": S3ProfileObjects(client=clients.s3),
    "jobs": DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
    "rows": DynamoRuleStates(client=clients.dynamodb, table=environment.rule_state_table),
    "journal": PowertoolsJournal(logger=logger, metrics=metrics),
}
canary = Canary(**parts)
if is_job:
    own = SageMakerCanaryJobs(environment, clients)
    canary = JobCanary(**parts, own=own, switches=stop_switches(environment, clients))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Do the step that a schedule asks for; its time is the canary's, which bears the id of this very request."""
    call = msgspec.convert(event, CanaryCall)
    at = call.time.timestamp()
    if call.due == "plant":
        return {"job": canary.plant(at, context.aws_request_id)}
    verdict = canary.look(at) if call.due == "look" else canary.end(at)
    return {"job": verdict.job, "passed": verdict.passed, "missing": list(verdict.missing)}
