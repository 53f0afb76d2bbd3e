"""SageMaker's jobs of the canary: one contract for the adapter on moto and its twin, and what SageMaker may answer."""

from typing import Any

import pytest
from botocore.stub import Stubber

from tests.functional.deployment import BUCKET, Deployment
from tests.functional.offline import offline_clients
from tests.support.canary_jobs import MemoryCanaryJobs
from tests.support.memory import MemoryWorld
from trainguard.aws.canary_jobs import SageMakerCanaryJobs
from trainguard.aws.environment import Environment
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import TrainingJobs
from trainguard.core.records import JobStatus
from trainguard.stack.canary_job import JOB_LIMIT_S, CanaryJobs, job_tags
from trainguard.testing.memory import SETTINGS_PATH

JOB = "trainguard-canary-20260801-060000-39faec6761e0"
ROLE = "arn:aws:iam::111122223333:role/CanaryJobRole"


def adapter(clients: Any) -> SageMakerCanaryJobs:
    values = {
        "settings_path": SETTINGS_PATH,
        "profile_bucket": BUCKET,
        "canary_image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/sleeper:1",
        "canary_role_arn": ROLE,
        "stack_name": "TrainGuard",
    }
    return SageMakerCanaryJobs(Environment(values), clients)


@pytest.fixture(params=["twin", "moto"])
def known(request: pytest.FixtureRequest) -> tuple[CanaryJobs, TrainingJobs]:
    """Return the jobs, and what describes them to the engine."""
    if request.param == "twin":
        world = MemoryWorld()
        return MemoryCanaryJobs(world, 0.0), world.training_jobs
    deployment: Deployment = request.getfixturevalue("deployment")
    deployment.plant_jobs()
    return adapter(deployment.clients), deployment.world.training_jobs


def test_mark_is_the_last_one_written(known: tuple[CanaryJobs, TrainingJobs]) -> None:
    jobs, _ = known
    assert jobs.marked() == "none"
    for job in ("earlier", JOB):
        jobs.mark(job)
    assert jobs.marked() == JOB


def test_created_job_is_described_with_its_tags_until_it_stops(known: tuple[CanaryJobs, TrainingJobs]) -> None:
    jobs, described = known
    assert jobs.status(JOB) is None
    assert (jobs.create(JOB, job_tags(BUCKET)), jobs.create(JOB, job_tags(BUCKET))) == (None, None)
    found = described.describe(JOB)
    assert found is not None
    assert (found.tags.items() >= job_tags(BUCKET).items(), found.profile_uri) == (True, f"s3://{BUCKET}")
    jobs.stop(JOB)
    status = jobs.status(JOB)
    assert status is not None
    assert status[0] in {JobStatus.STOPPING, JobStatus.STOPPED}


def test_request_names_the_smallest_job_that_ends_by_itself() -> None:
    clients = offline_clients()
    expected = {
        "TrainingJobName": JOB,
        "AlgorithmSpecification": {
            "TrainingImage": "111122223333.dkr.ecr.us-east-1.amazonaws.com/sleeper:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sleep", "2400"],
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 1_200},
        "EnableNetworkIsolation": True,
        "ProfilerConfig": {"DisableProfiler": True},
        "Tags": [{"Key": "team", "Value": "vision"}, {"Key": "trainguard-canary", "Value": "TrainGuard"}],
    }
    with Stubber(clients.sagemaker) as stubber:
        stubber.add_response("create_training_job", {"TrainingJobArn": "arn:aws:sagemaker:job"}, expected)
        assert adapter(clients).create(JOB, {"team": "vision"}) is None
    assert JOB_LIMIT_S == 1_200


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("ResourceInUse", None),
        ("ResourceLimitExceeded", "ResourceLimitExceeded: the quota is 0"),
        ("ValidationException", "ValidationException: the quota is 0"),
        ("AccessDeniedException", "AccessDeniedException: the quota is 0"),
    ],
)
def test_refusal_is_an_answer_and_a_known_job_a_success(code: str, answer: str | None) -> None:
    clients = offline_clients()
    with Stubber(clients.sagemaker) as stubber:
        stubber.add_client_error("create_training_job", code, "the quota\nis 0")
        assert adapter(clients).create(JOB, {}) == answer


def test_error_of_the_service_is_no_refusal() -> None:
    clients = offline_clients()
    with Stubber(clients.sagemaker) as stubber:
        stubber.add_client_error("create_training_job", "ThrottlingException", "slower")
        with pytest.raises(PortUnavailableError, match="ThrottlingException: slower"):
            adapter(clients).create(JOB, {})


def test_why_a_job_failed_is_read_as_one_line() -> None:
    clients = offline_clients()
    described = {
        "TrainingJobName": JOB,
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:111122223333:training-job/x",
        "ModelArtifacts": {"S3ModelArtifacts": "s3://b/x"},
        "TrainingJobStatus": "Failed",
        "SecondaryStatus": "Failed",
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"VolumeSizeInGB": 1},
        "StoppingCondition": {},
        "CreationTime": 0,
        "FailureReason": "ClientError:\nno such image",
    }
    with Stubber(clients.sagemaker) as stubber:
        stubber.add_response("describe_training_job", described)
        assert adapter(clients).status(JOB) == (JobStatus.FAILED, "ClientError: no such image")
