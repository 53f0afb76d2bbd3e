"""Has every active job evaluated once a minute; its log has the brakes in force, and that the canary is silent."""

from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.brakes import KnownBrakes, SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.environment import SCHEDULE, load_environment
from trainguard.aws.function_limits import lambda_timing
from trainguard.aws.lambda_invocations import LambdaInvocations
from trainguard.aws.observability import PowertoolsJournal
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.ssm import written_at
from trainguard.engine.reconcile import Scheduler
from trainguard.stack.canary import watch_canary

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(SCHEDULE, function="scheduler")
clients = Clients()
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
requests = LambdaInvocations(client=clients.functions, function=environment.reconcile_job_function)
brakes = KnownBrakes(SsmBrakes(client=lambda: clients.ssm, parameter=environment.brakes_parameter), journal)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run the scheduler once; a job for which no request is taken is counted and left to the next one."""
    del event  # a run of the scheduler carries nothing: what is to be done stands in the tables
    timing = lambda_timing(context)
    brakes.count_in_force(timing.now())
    active, failed = Scheduler(jobs=jobs, requests=requests, timing=timing, journal=journal).run()
    if environment.canary == "on":
        objects = S3ProfileObjects(client=clients.s3)
        deployed_at = partial(written_at, clients.ssm, environment.default_settings_parameter)
        watch_canary(objects, environment.profile_bucket, journal, deployed_at=deployed_at, now=timing.now())
    return {"jobs": active, "failed": failed}
