"""Reconciles one active job, when a scheduler run asks for it."""

import os
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.environment import EVALUATION, load_environment
from trainguard.aws.function_limits import lambda_timing
from trainguard.aws.lambda_invocations import request_of
from trainguard.aws.observability import PowertoolsJournal
from trainguard.aws.wiring import evaluation_services
from trainguard.engine.installed import FAMILIES
from trainguard.engine.reconcile import Reconciler

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(EVALUATION, function="reconcile_job")
services = evaluation_services(
    environment, clients=Clients(), journal=journal, poll_function=os.environ.get("POLL_SOURCE_FUNCTION", "")
)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Reconcile the event's job; a failure is counted, and the next scheduler run repeats it."""
    timing = lambda_timing(context)
    request = request_of(event, now=timing.now())
    outcome = Reconciler(services=services, timing=timing, families=FAMILIES).attempt(request)
    if outcome.failed is not None:
        journal.count("reconcile_failures", job=request.job, reason=outcome.failed)
    return {"job": request.job, "tasks": outcome.tasks, "failed": outcome.failed}
