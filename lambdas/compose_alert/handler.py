"""Composes an alert: of a fire, of what is told of it later, or of a stop that is to come."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.actions.alert import compose_alert, publishable
from trainguard.actions.request import AlertRequest

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what is published, whether and when, and with the sentence for the rule's row."""
    del context
    return publishable(compose_alert(msgspec.convert(event, AlertRequest), now=time.time()))
