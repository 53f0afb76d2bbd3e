"""Sends an alert: of a fire, of a later notification about it, or of a stop that is to come."""

import os
import time
from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.alert_channels import AlertChannels
from trainguard.aws.brakes import KnownBrakes, SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.fire_path import DynamoSentAlerts
from trainguard.aws.environment import load_environment
from trainguard.aws.observability import PowertoolsJournal
from trainguard.stack.actions.send_alert import AlertSender

if TYPE_CHECKING:
    from trainguard.stack.actions.webhook import WebhookService

logger = Logger()
metrics = Metrics()
environment = load_environment(
    ("bookkeeping_table", "alert_topic_arn", "chat_topic_arn", "brakes_parameter"), function="send_alert"
)
clients = Clients()
journal = PowertoolsJournal(logger=logger, metrics=metrics)
webhook = os.environ.get("WEBHOOK_SERVICE")
sender = AlertSender(
    channels=AlertChannels(
        sns=clients.sns,
        events=clients.events,
        alerts=environment.alert_topic_arn,
        chat=environment.chat_topic_arn,
        webhook=cast("WebhookService", webhook),
        stack=os.environ.get("STACK_NAME", ""),
    ),
    sent=DynamoSentAlerts(client=clients.dynamodb, table=environment.bookkeeping_table),
    journal=journal,
    brakes=KnownBrakes(SsmBrakes(client=lambda: clients.ssm, parameter=environment.brakes_parameter), journal),
    has_webhook=webhook is not None,
)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer whether people have the alert, what it waits for, what failed, and what belongs into the rule's row."""
    del context
    return sender.send(event, now=time.time())
