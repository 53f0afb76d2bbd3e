"""Low-level clients, each created at its first use, from botocore: boto3 would slow down every cold start."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

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

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 8
MAX_ATTEMPTS = 4

MOST_INVOKED_AT_ONCE = 20

# An event that Lambda does not accept within seconds is sent by the next run of the scheduler: others wait.
_INVOKE_TIMEOUT_S, _INVOKE_ATTEMPTS = 3, 2


_FUNCTIONS = Config(
    read_timeout=_INVOKE_TIMEOUT_S,
    max_pool_connections=MOST_INVOKED_AT_ONCE,
    retries={"mode": "standard", "total_max_attempts": _INVOKE_ATTEMPTS},
)
# A cold start of the other function takes seconds; two attempts end before the asking function's time does.
_QUESTIONS = Config(retries={"mode": "standard", "total_max_attempts": 2})
# With the Region in their host and signature, which every bucket accepts.
_LINKS = Config(signature_version="s3v4", s3={"us_east_1_regional_endpoint": "regional"})


def client_of(service: str, own: Config | None = None) -> "cached_property[Any]":
    return cached_property(lambda clients: clients.create(service, own))


class Clients:
    """The clients of one process; by default with the environment's credentials and Region."""

    dynamodb: "cached_property[DynamoDBClient]" = client_of("dynamodb")
    s3: "cached_property[S3Client]" = client_of("s3")
    s3_links: "cached_property[S3Client]" = client_of("s3", _LINKS)
    cloudformation: "cached_property[CloudFormationClient]" = client_of("cloudformation")
    functions: "cached_property[LambdaClient]" = client_of("lambda", _FUNCTIONS)
    questions: "cached_property[LambdaClient]" = client_of("lambda", _QUESTIONS)
    sagemaker: "cached_property[SageMakerClient]" = client_of("sagemaker")
    sqs: "cached_property[SQSClient]" = client_of("sqs")
    ssm: "cached_property[SSMClient]" = client_of("ssm")
    sns: "cached_property[SNSClient]" = client_of("sns")
    events: "cached_property[EventBridgeClient]" = client_of("events")
    stepfunctions: "cached_property[SFNClient]" = client_of("stepfunctions")
    batch: "cached_property[Any]" = client_of("batch")
    ec2: "cached_property[Any]" = client_of("ec2")
    logs: "cached_property[Any]" = client_of("logs")
    secrets: "cached_property[Any]" = client_of("secretsmanager")
    pricing: "cached_property[Any]" = client_of("pricing")

    def __init__(self, *, session: Session | None = None, region: str | None = None) -> None:
        self.session = session or get_session()
        self._region = region
        # A call that hangs must fail inside the function's own timeout, with time left to report the other messages.
        self._config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
            tcp_keepalive=True,
        )

    def in_region(self, region: str | None) -> "Clients":
        """Return clients of a Region, for None these."""
        return self if region is None else Clients(session=self.session, region=region)

    def create(self, service: str, own: Config | None) -> object:
        config = self._config if own is None else self._config.merge(own)
        return self.session.create_client(service, region_name=self._region, config=config)
