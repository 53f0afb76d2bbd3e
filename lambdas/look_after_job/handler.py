"""Looks after one active job, when a tick asks for it."""

import os
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.adapters.clients import Clients
from trainguard.adapters.environment import LookAfterJobEnvironment, load_environment
from trainguard.adapters.lambda_looks import look_of
from trainguard.adapters.observability import PowertoolsJournal
from trainguard.adapters.timing import lambda_timing
from trainguard.adapters.wiring import evaluation_services
from trainguard.engine.tick.job_care import JobCare
from trainguard.families.installed import FAMILIES

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(LookAfterJobEnvironment, os.environ, function="look_after_job")
services = evaluation_services(
    environment, clients=Clients(), journal=journal, poll_function=os.environ.get("POLL_SOURCE_FUNCTION", "")
)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Look after the event's job; a look that fails is counted, and the next tick's repeats it."""
    timing = lambda_timing(context)
    look = look_of(event, now=timing.now())
    outcome = JobCare(services=services, timing=timing, families=FAMILIES).attempt(look)
    if outcome.failed is not None:
        journal.count("tick_failures", job=look.job, reason=outcome.failed)
    return {"job": look.job, "tasks": outcome.tasks, "failed": outcome.failed}
