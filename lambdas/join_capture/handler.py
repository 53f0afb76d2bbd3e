"""Joins the ranks of a capture: writes its verdict and its page, and has the evaluator take in the verdict."""

import time
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from trainguard.aws.clients import Clients
from trainguard.aws.environment import load_environment
from trainguard.aws.job_facts import job_facts
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sqs import SqsTaskQueue
from trainguard.stack.captures.join import CaptureJoiner, notify_evaluator
from trainguard.stack.captures.plan import CaptureCall

logger = Logger()
environment = load_environment(("task_queue_url",), function="join_capture")
clients = Clients()
tasks = SqsTaskQueue(client=clients.sqs, queue_url=environment.task_queue_url)
joiner = CaptureJoiner(objects=S3ProfileObjects(client=clients.s3), facts=partial(job_facts, clients.sagemaker))


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what was judged; a page that could not be made fails the step after all else is done."""
    del context
    call = msgspec.convert(event, CaptureCall)
    verdict, page_fault = joiner.join(call, now=time.time())
    notify_evaluator(tasks, call, now=time.time())
    logger.info("capture joined", extra={"job": call.job, "capture": call.capture, "traces": verdict.traces})
    if page_fault is not None:
        raise page_fault
    snapshots = verdict.snapshots
    rules = [*verdict.rules, *([] if snapshots is None else snapshots.rules)]
    return {
        "traces": verdict.traces,
        "unread": verdict.unread,
        "snapshots": 0 if snapshots is None else snapshots.files,
        "fired": [each.rule for each in rules],
    }
