"""A training job of a given name, as SageMaker describes it."""

from typing import Any

from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus

NAME, BUCKET = "job", "profiles"
ARN = f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{NAME}"


def described_job(**facts: Any) -> TrainingJobDescription:
    """Return a running job of one instance, of which nothing else is known but the ``facts``."""
    known: dict[str, Any] = {
        "secondary_status": None,
        "instance_type": None,
        "instance_count": 1,
        "created_at": None,
        "started_at": None,
        "ended_at": None,
        "profiling_interval_ms": None,
        "framework_profiling": False,
        "tags": {},
        "profile_uri": f"s3://{BUCKET}",
    }
    return TrainingJobDescription(**{"job": NAME, "arn": ARN, "status": JobStatus.IN_PROGRESS, **known, **facts})
