"""SageMaker's jobs of the canary, and their mark in an SSM parameter."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated, unless
from trainguard.aws.clients import Clients
from trainguard.aws.environment import Environment
from trainguard.aws.sagemaker import UNKNOWN_JOB, job_status, stop_training_job
from trainguard.core.canary_name import CANARY_MARK, CANARY_TAG
from trainguard.core.records import JobStatus
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.stack.canary_job import JOB_LIMIT_S

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ResourceConfigTypeDef

# The smallest type with a price in the table.
INSTANCE_TYPE: Final = "ml.m5.large"

_MACHINE: "ResourceConfigTypeDef" = {"InstanceType": INSTANCE_TYPE, "InstanceCount": 1, "VolumeSizeInGB": 30}
_EXISTS = "ResourceInUse"
# A role, an image or tags that cannot be used, a quota, a right that is missing.
_REFUSALS = frozenset({"ValidationException", "ResourceLimitExceeded", "ResourceNotFound", "AccessDeniedException"})


class SageMakerCanaryJobs:
    """Creates, describes and stops them; see `CanaryJobs`."""

    def __init__(self, environment: Environment, clients: Clients) -> None:
        self._environment = environment
        self._sagemaker, self._ssm = clients.sagemaker, clients.ssm
        self._parameter = f"{environment.settings_path}{CANARY_MARK}"

    def marked(self) -> str:
        with translated("ssm", "GetParameter"):
            return self._ssm.get_parameter(Name=self._parameter)["Parameter"]["Value"]

    def mark(self, job: str) -> None:
        with translated("ssm", "PutParameter"):
            self._ssm.put_parameter(Name=self._parameter, Value=job, Overwrite=True)

    def create(self, job: str, tags: Mapping[str, str]) -> str | None:
        """Create the job without a way into any network: it sleeps until it is stopped."""
        given = {**tags, CANARY_TAG: self._environment.stack_name}
        with translated("SageMaker", "CreateTrainingJob"):
            try:
                self._sagemaker.create_training_job(
                    TrainingJobName=job,
                    AlgorithmSpecification={
                        "TrainingImage": self._environment.canary_image,
                        "TrainingInputMode": "File",
                        "ContainerEntrypoint": ["sleep", str(2 * JOB_LIMIT_S)],
                    },
                    RoleArn=self._environment.canary_role_arn,
                    OutputDataConfig={"S3OutputPath": f"s3://{self._environment.profile_bucket}"},
                    ResourceConfig=_MACHINE,
                    StoppingCondition={"MaxRuntimeInSeconds": JOB_LIMIT_S},
                    EnableNetworkIsolation=True,
                    ProfilerConfig={"DisableProfiler": True},
                    Tags=[{"Key": key, "Value": value} for key, value in given.items()],
                )
            except ClientError as error:
                code = error_code(error)
                if code in _REFUSALS:
                    return one_line(f"{code}: {error.response['Error'].get('Message', '')}", LONGEST_SENTENCE)
                if code != _EXISTS:
                    raise
        return None

    def status(self, job: str) -> tuple[JobStatus, str] | None:
        with translated("SageMaker", "DescribeTrainingJob"):
            found = unless(UNKNOWN_JOB, lambda: self._sagemaker.describe_training_job(TrainingJobName=job))
        if found is None:
            return None
        why = one_line(found.get("FailureReason", ""), LONGEST_SENTENCE)
        return job_status(found["TrainingJobStatus"]), why

    def stop(self, job: str) -> None:
        stop_training_job(self._sagemaker, job)
