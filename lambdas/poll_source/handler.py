"""Brings a running job's data from where another service keeps them, when a scheduler run asks or a run file lands."""

import os
import time
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.environment import load_environment
from trainguard.aws.live_sources import polls
from trainguard.aws.observability import PowertoolsJournal
from trainguard.stack.polling.poll import poll_of, written_object

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
environment = load_environment(("jobs_table", "live_sources"), function="poll_source")
source, run_files = polls(environment, os.environ, clients=Clients(), journal=journal)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Poll for the event's job, or read the run file that the event names; answer how far it is read."""
    del context
    written = written_object(event)
    if written is None:
        status = source.run(*poll_of(event, now=time.time()))
    else:
        status = run_files.take(*written, at=time.time())
    return {"through": None if status is None else status.through, "fault": "" if status is None else status.fault}
