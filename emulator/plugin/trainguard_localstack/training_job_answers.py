"""What SageMaker says about training jobs: the event on each change of a status, and pages of ListTrainingJobs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from .training_jobs import Job

SOURCE: Final = "aws.sagemaker"
DETAIL_TYPE: Final = "SageMaker Training Job State Change"

# Members of DescribeTrainingJob that the event carries, as the EventBridge chapter of the SageMaker guide shows it.
_MEMBERS: Final = (
    "TrainingJobName",
    "TrainingJobArn",
    "TrainingJobStatus",
    "SecondaryStatus",
    "FailureReason",
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "CreationTime",
    "TrainingStartTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "SecondaryStatusTransitions",
)


def event_detail(change: Job) -> dict[str, Any]:
    """Return the event's detail: times in milliseconds since 1970, tags as a map."""
    detail = {name: _in_ms(change.description[name]) for name in _MEMBERS if name in change.description}
    return detail | {"Tags": dict(change.tags)}


def _in_ms(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, dict):
        return {name: _in_ms(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_in_ms(member) for member in value]
    return value


_SUMMARY: Final = (
    "TrainingJobName",
    "TrainingJobArn",
    "CreationTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingJobStatus",
    "SecondaryStatus",
)
_SORT_MEMBERS: Final = {"Name": "TrainingJobName", "CreationTime": "CreationTime", "Status": "TrainingJobStatus"}
_FILTERS: Final[Mapping[str, Callable[[Mapping[str, Any], Any], bool]]] = {
    "StatusEquals": lambda job, wanted: bool(job["TrainingJobStatus"] == wanted),
    "NameContains": lambda job, part: part in job["TrainingJobName"],
    "CreationTimeAfter": lambda job, time: bool(job["CreationTime"] > time),
    "CreationTimeBefore": lambda job, time: bool(job["CreationTime"] < time),
    "LastModifiedTimeAfter": lambda job, time: bool(job["LastModifiedTime"] > time),
    "LastModifiedTimeBefore": lambda job, time: bool(job["LastModifiedTime"] < time),
}


def list_page(jobs: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ListTrainingJobs response with AWS's defaults; the token is the position of the next page."""
    found = [
        job
        for job in jobs
        if all(matches(job, request[name]) for name, matches in _FILTERS.items() if request.get(name) is not None)
    ]
    member = _SORT_MEMBERS[request.get("SortBy") or "CreationTime"]
    found.sort(key=lambda job: job[member], reverse=request.get("SortOrder", "Descending") == "Descending")
    start = int(request.get("NextToken") or 0)
    end = start + int(request.get("MaxResults") or 10)
    summaries = [{name: job[name] for name in _SUMMARY if name in job} for job in found[start:end]]
    more = {"NextToken": str(end)} if end < len(found) else {}
    return {"TrainingJobSummaries": summaries} | more
