"""Stops a job where that was decided, and records the decision and what came of it in the rule's row."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.cluster_desk import DynamoClusterDesk
from trainguard.aws.dynamodb.fire_path import DynamoFireRows
from trainguard.aws.environment import load_environment
from trainguard.aws.stop_calls import AwsStopCalls
from trainguard.stack.actions.request import fire_of_call
from trainguard.stack.actions.stop_job import StopCall, carry_out

logger = Logger()
environment = load_environment(("rule_state_table", "bookkeeping_table"), function="stop_job")
clients = Clients()
rows = DynamoFireRows(client=clients.dynamodb, table=environment.rule_state_table)
desk = DynamoClusterDesk(client=clients.dynamodb, table=environment.bookkeeping_table)
calls = AwsStopCalls(clients, desk, time.time)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the decision as it stands in the end, what came of it, and what went wrong; the log keeps all."""
    del context
    call = msgspec.convert(event | {"fire": fire_of_call(event)}, StopCall)
    fire = call.fire
    outcome = carry_out(fire, call.decision, rows, calls, now=time.time())
    answer: dict[str, Any] = msgspec.to_builtins(outcome)
    logger.info("stop", extra={"job": fire.job, "rule": fire.rule, "fire_id": fire.fire_id, **answer})
    return answer
