"""Plans the digests of a capture of kernel traces: which traces it has, and which of them were not read yet."""

from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.stack.captures.plan import CaptureCall, plan_capture

logger = Logger()
objects = S3ProfileObjects(client=Clients().s3)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with how many traces are to be digested, where their list lies, and the items where those are few."""
    del context
    call = msgspec.convert(event, CaptureCall)
    planned = plan_capture(objects, call)
    logger.info("capture planned", extra={"job": call.job, "capture": call.capture, "items": planned.count})
    answer: dict[str, Any] = msgspec.to_builtins(planned)
    return answer
