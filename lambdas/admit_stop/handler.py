"""Admits stops of all accounts within the stop rate limit of the organisation, which the central stack alone holds."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget
from trainguard.aws.environment import load_environment
from trainguard.stack.organisation.stop_limit import StopRequest, admission

logger = Logger()
environment = load_environment(("stop_budget_table", "max_stops_per_hour"), function="admit_stop")
budget = DynamoStopBudget(client=Clients().dynamodb, table=environment.stop_budget_table)
limit = int(environment.max_stops_per_hour)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with admitted and limit; the log keeps every answer."""
    del context
    request = msgspec.convert(event, StopRequest)
    answer: dict[str, Any] = msgspec.to_builtins(admission(request, budget, limit=limit, now=time.time()))
    logger.info("stop admission", extra={**msgspec.to_builtins(request), **answer})
    return answer
