"""Composes an alert: of a fire, of a later notification about it, or of a stop that is to come."""

import time
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.actions.alert import compose_alert, publishable
from trainguard.actions.counting import count_stop
from trainguard.actions.request import AlertRequest
from trainguard.adapters.observability import PowertoolsJournal

logger = Logger()
metrics = Metrics()
journal = PowertoolsJournal(logger=logger, metrics=metrics)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what is published, whether and when, and with the sentence for the rule's row."""
    del context
    request = AlertRequest.read(event)
    alert = compose_alert(request, now=time.time())
    count_stop(request, journal, sent=alert.routing.withheld is None)
    return publishable(alert)
