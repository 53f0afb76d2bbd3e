"""Writes into the rule's row that it fired, what was done about it, or where its report lies."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.fire_path import DynamoFireRows
from trainguard.aws.environment import load_environment
from trainguard.stack.actions.fire_row import FireRecord, record
from trainguard.stack.actions.request import fire_of_call

logger = Logger()
environment = load_environment(("rule_state_table",), function="record_fire")
rows = DynamoFireRows(client=Clients().dynamodb, table=environment.rule_state_table)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Write what the event has; a row that is of another fire by now stays as it is."""
    del context
    record(msgspec.convert(event | {"fire": fire_of_call(event)}, FireRecord), rows, now=time.time())
    return {}
