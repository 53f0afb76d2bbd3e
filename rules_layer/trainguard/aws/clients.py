"""Low-level clients, each created at its first use, from botocore: boto3 would slow down every cold start."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from botocore.config import Config
from botocore.session import Session, get_session

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_stepfunctions import SFNClient

    from trainguard.aws.job_resources import BatchClient, InstancesClient
    from trainguard.aws.price_list import PricingClient

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 8
MAX_ATTEMPTS = 4

MOST_INVOKED_AT_ONCE = 20

_INVOKE_TIMEOUT_S, _INVOKE_ATTEMPTS = 3, 2
"""An event that Lambda does not accept within seconds is sent by the next run of the scheduler: others wait."""


class LogsClient(Protocol):
    """The one operation of CloudWatch Logs that is used."""

    def filter_log_events(self, **request: object) -> dict[str, Any]:
        """Return a page of lines."""


class SecretsClient(Protocol):
    """The one operation of Secrets Manager that is used."""

    def get_secret_value(self, **request: object) -> dict[str, Any]:
        """Return a secret."""


class Clients:
    """The clients of one process; by default with the environment's credentials and Region."""

    def __init__(self, *, session: Session | None = None, region: str | None = None) -> None:
        self._session = session or get_session()
        self._region = region
        # A call that hangs must fail inside the function's own timeout, with time left to report the other messages.
        self._config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
            tcp_keepalive=True,
        )

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        """Client of the three tables."""
        return cast("DynamoDBClient", self._create("dynamodb"))

    @cached_property
    def s3(self) -> "S3Client":
        """Client of the profile objects and reports."""
        return cast("S3Client", self._create("s3"))

    @cached_property
    def s3_links(self) -> "S3Client":
        """Client that signs links: with the Region in their host and signature, which every bucket accepts."""
        signing = Config(signature_version="s3v4", s3={"us_east_1_regional_endpoint": "regional"})
        return cast("S3Client", self._create("s3", signing))

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        """Client that knows deployed stacks, which the command line asks for."""
        return cast("CloudFormationClient", self._create("cloudformation"))

    @cached_property
    def functions(self) -> "LambdaClient":
        """Client that invokes functions asynchronously, many at once; it gives up sooner than the others."""
        own = Config(
            read_timeout=_INVOKE_TIMEOUT_S,
            max_pool_connections=MOST_INVOKED_AT_ONCE,
            retries={"mode": "standard", "total_max_attempts": _INVOKE_ATTEMPTS},
        )
        return cast("LambdaClient", self._create("lambda", own))

    @cached_property
    def sagemaker(self) -> "SageMakerClient":
        """Client of the training jobs."""
        return cast("SageMakerClient", self._create("sagemaker"))

    @cached_property
    def sqs(self) -> "SQSClient":
        """Client of the evaluation queue."""
        return cast("SQSClient", self._create("sqs"))

    @cached_property
    def ssm(self) -> "SSMClient":
        """Client of the stop switch."""
        return cast("SSMClient", self._create("ssm"))

    @cached_property
    def sns(self) -> "SNSClient":
        """Client of the topics of alerts."""
        return cast("SNSClient", self._create("sns"))

    @cached_property
    def events(self) -> "EventBridgeClient":
        """Client of the event bus and of rules on it."""
        return cast("EventBridgeClient", self._create("events"))

    @cached_property
    def batch(self) -> "BatchClient":
        """Client of AWS Batch, for stops outside SageMaker."""
        return cast("BatchClient", self._create("batch"))

    @cached_property
    def ec2(self) -> "InstancesClient":
        """Client of EC2, for stops outside SageMaker."""
        return cast("InstancesClient", self._create("ec2"))

    @cached_property
    def stepfunctions(self) -> "SFNClient":
        """Client of the fire state machine."""
        return cast("SFNClient", self._create("stepfunctions"))

    @cached_property
    def logs(self) -> "LogsClient":
        """Client of log groups, which sources of jobs may be."""
        return cast("LogsClient", self._create("logs"))

    @cached_property
    def secrets(self) -> "SecretsClient":
        """Client of the secret with the tokens of services."""
        return cast("SecretsClient", self._create("secretsmanager"))

    @cached_property
    def pricing(self) -> "PricingClient":
        """Client of the price list, which few Regions have."""
        return cast("PricingClient", self._create("pricing"))

    @property
    def session(self) -> Session:
        return self._session

    def _create(self, service: str, own: Config | None = None) -> object:
        config = self._config if own is None else self._config.merge(own)
        return self._session.create_client(service, region_name=self._region, config=config)
