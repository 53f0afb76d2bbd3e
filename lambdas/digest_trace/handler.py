"""Digests one kernel trace; one that does not fit into the function has a digest that says so."""

from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.function_limits import function_limits
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.stack.captures.digest import digest_trace
from trainguard.stack.captures.plan import TraceItem

RESERVE_S = 30.0

logger = Logger()
objects = S3ProfileObjects(client=Clients().s3)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the trace's key, and why it could not be read, if it could not."""
    item = msgspec.convert(event, TraceItem)
    limits = function_limits(
        memory_mib=int(context.memory_limit_in_mb),
        seconds=context.get_remaining_time_in_millis() / 1_000.0 - RESERVE_S,
        what=item.name,
    )
    fault = digest_trace(objects, item, limits)
    logger.info("trace digested", extra={"job": item.job, "key": item.key, "fault": fault})
    return {"key": item.key, "fault": fault}
