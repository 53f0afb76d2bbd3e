"""SageMaker's description of a job for the page of its kernel profile."""

import re
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated, unless
from trainguard.aws.sagemaker import UNKNOWN_JOB
from trainguard.core.text import one_line
from trainguard.kernels.document import JobEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sagemaker import SageMakerClient

MOST_HYPERPARAMETERS = 100
LONGEST_NAME, LONGEST_VALUE = 100, 200
HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:password|passwd|secret|token|api[_-]?key|credentials?)(?:$|[^a-z])", re.IGNORECASE
)


def job_facts(client: "SageMakerClient", job: str) -> JobEntry | None:
    """Return SageMaker's description of a job, None for an unknown one; raises PortUnavailableError."""
    with translated("SageMaker", "DescribeTrainingJob"):
        described = unless(UNKNOWN_JOB, lambda: client.describe_training_job(TrainingJobName=job))
    if described is None:
        return None
    resources = described.get("ResourceConfig", {})
    given = described.get("HyperParameters", {})
    return JobEntry(
        arn=described["TrainingJobArn"],
        status=described["TrainingJobStatus"],
        instance_type=resources.get("InstanceType"),
        instance_count=resources.get("InstanceCount"),
        hyperparameters=_shown(given),
        hyperparameters_left_out=max(len(given) - MOST_HYPERPARAMETERS, 0),
    )


def _shown(given: "Mapping[str, str]") -> dict[str, str]:
    return {
        one_line(name, LONGEST_NAME): HIDDEN if _SECRET.search(name) else one_line(given[name], LONGEST_VALUE)
        for name in sorted(given)[:MOST_HYPERPARAMETERS]
    }
