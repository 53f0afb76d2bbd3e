"""ListTrainingJobs: filters, order and pages over the descriptions of training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
