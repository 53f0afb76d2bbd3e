"""What the page of a job's kernel profile says of the job, as SageMaker describes it."""

import re
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.kernels.document import JobEntry
from trainguard.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sagemaker import SageMakerClient

MOST_HYPERPARAMETERS = 100
LONGEST_NAME, LONGEST_VALUE = 100, 200
HIDDEN = "(hidden)"
_UNKNOWN = frozenset({"ValidationException", "ResourceNotFound"})
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:password|passwd|secret|token|api[_-]?key|credentials?)(?:$|[^a-z])", re.IGNORECASE
)


class SageMakerJobFacts:
    """Describes training jobs for their pages.

    Parameters
    ----------
    client : SageMakerClient
        Low-level client.
    """

    def __init__(self, *, client: "SageMakerClient") -> None:
        self._client = client

    def __call__(self, job: str) -> JobEntry | None:
        """Return what SageMaker says of a job, None where it does not know it; raises PortUnavailableError."""
        with translated("SageMaker", "DescribeTrainingJob"):
            try:
                described = self._client.describe_training_job(TrainingJobName=job)
            except ClientError as error:
                if error_code(error) in _UNKNOWN:
                    return None
                raise
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
    """Return the first hyperparameters by name, without secrets."""
    return {
        one_line(name, LONGEST_NAME): HIDDEN if _SECRET.search(name) else one_line(given[name], LONGEST_VALUE)
        for name in sorted(given)[:MOST_HYPERPARAMETERS]
    }
