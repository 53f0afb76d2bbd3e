"""Composes the alert of a fire."""

from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.actions.alert import AlertRequest, compose_alert, publishable

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what SNS publishes, and with the sentence for the rule's row."""
    del context
    return publishable(compose_alert(msgspec.convert(event, AlertRequest)))
