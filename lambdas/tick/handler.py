"""Looks after every active job once a minute."""

import os
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.adapters.clients import Clients
from trainguard.adapters.environment import TickEnvironment, load_environment
from trainguard.adapters.observability import PowertoolsJournal
from trainguard.adapters.timing import lambda_timing
from trainguard.adapters.wiring import evaluation_services
from trainguard.engine.tick.tick import Tick
from trainguard.families.installed import FAMILIES

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(TickEnvironment, os.environ, function="tick")
services = evaluation_services(environment, clients=Clients(), journal=journal)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run one tick; a job that fails is counted and left to the next one."""
    del event  # a tick carries nothing: what is to be done stands in the tables
    outcome = Tick(services=services, timing=lambda_timing(context), families=FAMILIES).run()
    return {"jobs": outcome.jobs, "failed": outcome.failed, "tasks": outcome.tasks}
