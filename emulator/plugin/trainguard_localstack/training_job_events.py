"""The EventBridge event that SageMaker sends on each change of a training job's status."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .training_jobs import JobChange

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


def event_detail(change: JobChange) -> dict[str, Any]:
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
