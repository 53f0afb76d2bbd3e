"""Digests the profile of one node and day, or a job's tensors, or as much of them as there is time for."""

import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.stack.report.digest import digest_item
from trainguard.stack.report.parts import DigestItem

RESERVE_MS = 60_000

logger = Logger()
objects = S3ProfileObjects(client=Clients().s3)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the item as it stands now: ``more`` says whether something is left."""
    item = digest_item(
        objects,
        msgspec.convert(event, DigestItem),
        now=time.time(),
        has_time=lambda: context.get_remaining_time_in_millis() > RESERVE_MS,
    )
    logger.info(
        "node and day digested",
        extra={"job": item.job, "node": item.node, "day": item.date, "parts": item.part, "more": item.more},
    )
    answer: dict[str, Any] = msgspec.to_builtins(item)
    return answer
