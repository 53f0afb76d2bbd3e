"""Jobs of AWS Batch as a service of LocalStack, whose free edition has no Batch: a job runs until it is terminated."""

import threading
import time
import uuid
from typing import Any

from localstack.aws.api import CommonServiceException, RequestContext
from localstack.aws.skeleton import Skeleton
from localstack.aws.spec import load_service
from localstack.services.plugins import Service, aws_provider

# So long a job ends after SIGTERM.
ENDING_S = 0.3

_LOCK = threading.Lock()
_JOBS: dict[str, dict[str, Any]] = {}


def _submit(context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    job, now_ms = str(uuid.uuid4()), int(time.time() * 1_000)
    arn = f"arn:aws:batch:{context.region}:{context.account_id}:job/{job}"
    own = {"jobId": job, "jobName": request["jobName"], "jobArn": arn}
    described = own | {"status": "RUNNING", "createdAt": now_ms, "startedAt": now_ms, "tags": request.get("tags") or {}}
    with _LOCK:
        _JOBS[job] = described | {"jobQueue": request["jobQueue"], "jobDefinition": request["jobDefinition"]}
    return own


def _describe(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    with _LOCK:
        return {"jobs": [dict(_JOBS[job]) for job in request["jobs"] if job in _JOBS]}


def _terminate(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    """Let a running job fail soon; Batch accepts the call for one that has ended, and for one that it never knew."""
    with _LOCK:
        job = _JOBS.get(request["jobId"])
        if job is not None and job["status"] == "RUNNING" and not job.get("isTerminated"):
            job |= {"isTerminated": True, "statusReason": request["reason"]}
            timer = threading.Timer(ENDING_S, _end, args=(job,))
            timer.daemon = True
            timer.start()
    return {}


def _end(job: dict[str, Any]) -> None:
    with _LOCK:
        job |= {"status": "FAILED", "stoppedAt": int(time.time() * 1_000)}


def _tag(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    with _LOCK:
        _tags_of(request).update(request["tags"])
    return {}


def _untag(_context: RequestContext, request: dict[str, Any]) -> dict[str, Any]:
    with _LOCK:
        tags = _tags_of(request)
        for name in request["tagKeys"]:
            tags.pop(name, None)
    return {}


def _tags_of(request: dict[str, Any]) -> dict[str, str]:
    job = _JOBS.get(request["resourceArn"].rpartition("/")[2])
    if job is None:
        raise CommonServiceException("ClientException", "Resource not found", 404, True)
    job["tags"] = tags = dict(job["tags"])
    return tags


OPERATIONS = {
    "SubmitJob": _submit,
    "DescribeJobs": _describe,
    "TerminateJob": _terminate,
    "TagResource": _tag,
    "UntagResource": _untag,
}


@aws_provider(api="batch", name="default")
def batch() -> Service:
    return Service(name="batch", skeleton=Skeleton(load_service("batch"), OPERATIONS))
