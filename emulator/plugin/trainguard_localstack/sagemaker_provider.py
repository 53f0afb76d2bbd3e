"""SageMaker's training jobs as a service of LocalStack, whose free edition has no SageMaker."""

import datetime
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from localstack.aws.api import CommonServiceException, RequestContext
from localstack.aws.connect import connect_to
from localstack.aws.skeleton import Skeleton
from localstack.aws.spec import load_service
from localstack.services.plugins import Service, aws_provider

from .training_job_answers import DETAIL_TYPE, SOURCE, event_detail, list_page
from .training_jobs import Job, JobKey, TrainingJobError, TrainingJobs

LOG = logging.getLogger(__name__)
STOPPING_S = 0.3

Operation = Callable[[RequestContext, dict[str, Any]], dict[str, Any]]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _send_event(change: Job) -> None:
    events = connect_to(aws_access_key_id=change.key.account, region_name=change.key.region).events
    entry = {
        "Source": SOURCE,
        "DetailType": DETAIL_TYPE,
        "Resources": [change.key.arn],
        "Time": change.description["LastModifiedTime"],
        "Detail": json.dumps(event_detail(change)),
    }
    try:
        result = events.put_events(Entries=[entry])
    except ClientError:
        # The job has changed already: as on AWS, whoever changed it does not learn of a lost event.
        LOG.exception("EventBridge failed on the event of %s", change.key.arn)
        return
    if result["FailedEntryCount"]:
        LOG.error("EventBridge refused the event of %s: %s", change.key.arn, result["Entries"])


JOBS = TrainingJobs(now=_now, on_change=_send_event)
# Calls as they were answered, so that a test can show that a job was stopped exactly once.
CALLS: list[dict[str, str | None]] = []


def _key(context: RequestContext, name: str) -> JobKey:
    return JobKey(context.account_id, context.region, name)


def _key_of_arn(request: dict[str, Any]) -> JobKey:
    """Return the job of a tagging request; any other ARN is unknown."""
    parts = request["ResourceArn"].split(":")
    if len(parts) != 6 or not parts[5].startswith("training-job/"):
        raise TrainingJobError("ValidationException", "Requested resource not found.")
    return JobKey(parts[4], parts[3], parts[5].removeprefix("training-job/"))


def _create(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    key = _key(context, request["TrainingJobName"])
    JOBS.create(key, request)
    return {"TrainingJobArn": key.arn}


def _describe(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    return JOBS.describe(_key(context, request["TrainingJobName"]))


def _stop(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    key = _key(context, request["TrainingJobName"])
    JOBS.request_stop(key)
    timer = threading.Timer(STOPPING_S, JOBS.complete_stop, args=(key,))
    timer.daemon = True
    timer.start()
    return {}


def _list(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    return list_page(JOBS.in_region(context.account_id, context.region), request)


def _list_tags(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    return {"Tags": _as_list(JOBS.tags(_key_of_arn(request)))}


def _add_tags(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    return {"Tags": _as_list(JOBS.set_tags(_key_of_arn(request), tags))}


def _delete_tags(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    JOBS.delete_tags(_key_of_arn(request), request["TagKeys"])
    return {}


def _as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def _recorded(action: str, operation: Operation) -> Operation:
    """Note each call in the call log, and answer a refusal in AWS's form."""

    def handle(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
        refusal: TrainingJobError | None = None
        try:
            return operation(context, request)
        except TrainingJobError as error:
            refusal = error
            raise CommonServiceException(error.code, str(error), 400, True) from error
        finally:
            job = request.get("TrainingJobName") or request.get("ResourceArn", "").rpartition("/")[2] or None
            error = refusal.code if refusal else None
            CALLS.append({"action": action, "job": job, "time": _now().isoformat(), "error": error})

    return handle


OPERATIONS: dict[str, Operation] = {
    "CreateTrainingJob": _create,
    "DescribeTrainingJob": _describe,
    "StopTrainingJob": _stop,
    "ListTrainingJobs": _list,
    "ListTags": _list_tags,
    "AddTags": _add_tags,
    "DeleteTags": _delete_tags,
}


@aws_provider(api="sagemaker", name="default")
def sagemaker() -> Service:
    operations = {action: _recorded(action, operation) for action, operation in OPERATIONS.items()}
    return Service(name="sagemaker", skeleton=Skeleton(load_service("sagemaker"), operations))
