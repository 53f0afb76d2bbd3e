"""Has every active job evaluated once a minute."""

import os
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_jobs import DynamoJobs
from trainguard.adapters.environment import TickEnvironment, load_environment
from trainguard.adapters.lambda_looks import LambdaJobLooks
from trainguard.adapters.observability import PowertoolsJournal
from trainguard.adapters.timing import lambda_timing
from trainguard.engine.tick.tick import Tick

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(TickEnvironment, os.environ, function="tick")
clients = Clients()
jobs = DynamoJobs(client=clients.dynamodb, table=environment.jobs_table)
looks = LambdaJobLooks(client=clients.functions, function=environment.look_after_job_function)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run one tick; a job for which no look is taken is counted and left to the next one."""
    del event  # a tick carries nothing: what is to be done stands in the tables
    outcome = Tick(jobs=jobs, looks=looks, timing=lambda_timing(context), journal=journal).run()
    return {"jobs": outcome.jobs, "failed": outcome.failed}
