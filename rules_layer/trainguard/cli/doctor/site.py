"""Common input of all checks: the deployed stack, its resources, and clients; and what a check finds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.aws.clients import Clients, client_of
from trainguard.cli.services.deployment import Deployment
from trainguard.core.errors import TrainGuardError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackResourceSummaryTypeDef
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import DimensionTypeDef, MetricDataQueryTypeDef
    from mypy_boto3_events.type_defs import DescribeRuleResponseTypeDef
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_lambda.type_defs import FunctionConfigurationResponseTypeDef

DEPLOY = "Deploy the stack again: `make deploy`."
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"})

# Error codes for something that the stack has made and somebody has deleted.
_GONE = frozenset(
    {"ResourceNotFoundException", "ParameterNotFound", "NotFound", "NotFoundException", "StateMachineDoesNotExist"}
    | {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NoSuchBucket"}
)
_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".c2s.ic.gov", ".sc2s.sgov.gov", ".api.aws")
_SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"
_PERIOD_S = 60


class CheckLevel(StrEnum):
    """Level of a finding; FAIL is what keeps TrainGuard from working."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of the diagnosis; ``advice`` is None where all is well, ``command`` is ready for a shell."""

    check: str = ""
    level: CheckLevel
    found: str
    advice: str | None = None
    command: str | None = None


# What a check returns, its name left out.
Findings = CheckResult | Iterable[CheckResult]


def under_name(name: str, found: Findings) -> Iterator[CheckResult]:
    for each in (found,) if isinstance(found, CheckResult) else found:
        yield replace(each, check=name)


def ok(found: str) -> CheckResult:
    return CheckResult(level=CheckLevel.OK, found=found)


def warn(found: str, advice: str, command: str | None = None) -> CheckResult:
    """Return what may do harm, or could not be examined."""
    return CheckResult(level=CheckLevel.WARN, found=found, advice=advice, command=command)


def fail(found: str, advice: str, command: str | None = None) -> CheckResult:
    """Return what keeps TrainGuard from working."""
    return CheckResult(level=CheckLevel.FAIL, found=found, advice=advice, command=command)


def unless(faults: Sequence[CheckResult], found: str) -> Sequence[CheckResult]:
    """Return the faults; where there is none, that all is well."""
    return faults or (ok(found),)


def span(seconds: float) -> str:
    """Return a duration for people, for example ``12 min``."""
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


class UnansweredError(TrainGuardError):
    """A question that AWS did not answer; ``action`` is IAM's name for it, ``code`` that of AWS's error."""

    def __init__(self, action: str, reason: str, code: str = "") -> None:
        self.action = action
        self.reason = reason
        self.is_denied = code in _DENIED
        self.is_gone = code in _GONE
        super().__init__(f"{action} was not answered: {reason}, expected an answer")


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Turn the client library's errors into UnansweredError; ``action`` is what IAM must allow."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
        raise UnansweredError(action, f"{error_code(error)}: {message}", error_code(error)) from error
    except BotoCoreError as error:
        raise UnansweredError(action, f"{type(error).__name__}: {error}".rstrip(".")) from error


class DoctorClients(Clients):
    functions: "cached_property[LambdaClient]" = client_of("lambda")
    cloudwatch: "cached_property[CloudWatchClient]" = client_of("cloudwatch")
    iam: "cached_property[IAMClient]" = client_of("iam")
    kms: "cached_property[KMSClient]" = client_of("kms")
    sts: "cached_property[Any]" = client_of("sts")
    ec2: "cached_property[Any]" = client_of("ec2")


class Site:
    """A deployed stack under examination; ``now`` in epoch seconds, ``bucket`` by default the stack's own."""

    def __init__(
        self, deployment: Deployment, *, now: float, profile: str | None = None, bucket: str | None = None
    ) -> None:
        self.deployment = deployment
        self.clients = DoctorClients(session=deployment.clients.session, region=deployment.region)
        self.now = now
        self._profile = profile
        self._bucket = bucket

    @property
    def bucket(self) -> str:
        return self._bucket or self.deployment.bucket

    @property
    def queue_url(self) -> str:
        return self.deployment.output("DoorbellQueueUrl")

    @cached_property
    def _resources(self) -> "Sequence[StackResourceSummaryTypeDef]":
        """The stack's resources, in the order of the template's names."""
        with asking("cloudformation:ListStackResources"):
            pages = self.clients.cloudformation.get_paginator("list_stack_resources").paginate(
                StackName=self.deployment.stack
            )
            found = [each for page in pages for each in page["StackResourceSummaries"] if "PhysicalResourceId" in each]
        return sorted(found, key=lambda resource: resource["LogicalResourceId"])

    def names(self, kind: str) -> list[str]:
        return [each["PhysicalResourceId"] for each in self._resources if each["ResourceType"] == kind]

    @property
    def asks_aws(self) -> bool:
        """Whether IAM itself answers: an emulator simulates no policies, and denies what is allowed."""
        host = urlsplit(self.clients.iam.meta.endpoint_url).hostname or ""
        return host.endswith(_AWS_DOMAINS)

    def key_policy(self, key: str) -> Mapping[str, Any]:
        with asking("kms:GetKeyPolicy"):
            document: dict[str, Any] = msgspec.json.decode(self.clients.kms.get_key_policy(KeyId=key)["Policy"])
        return document

    @cached_property
    def functions(self) -> "Mapping[str, FunctionConfigurationResponseTypeDef]":
        """The functions' configurations by TrainGuard's names, for example ``scheduler``."""
        configurations = {}
        for name in self.names("AWS::Lambda::Function"):
            with asking("lambda:GetFunctionConfiguration"):
                configuration = self.clients.functions.get_function_configuration(FunctionName=name)
            variables = configuration.get("Environment", {}).get("Variables", {})
            configurations[variables.get(_SERVICE_NAME, name)] = configuration
        return configurations

    @cached_property
    def rules(self) -> "Sequence[DescribeRuleResponseTypeDef]":
        rules = []
        for name in self.names("AWS::Events::Rule"):
            with asking("events:DescribeRule"):
                rules.append(self.clients.events.describe_rule(Name=name))
        return rules

    def aws(self, *words: str) -> str:
        """Return a command of the AWS command line for this stack, quoted for a shell."""
        return self.deployment.aws(*words, profile=self._profile)


def listed(value: Any) -> Sequence[Any]:
    """Return what a policy's document may give as one value or several."""
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def allows(statement: Mapping[str, Any], action: str) -> bool:
    """Whether a policy's statement allows an action, to whomever it names."""
    patterns = listed(statement.get("Action"))
    return statement.get("Effect") == "Allow" and any(fnmatchcase(action.lower(), each.lower()) for each in patterns)


def metric_values(
    site: Site, namespace: str, name: str, about: Mapping[str, str], statistic: str, minutes: int
) -> Sequence[float]:
    """Return the values of a metric with the dimensions ``about`` in the last ``minutes``, newest first."""
    dimensions: list[DimensionTypeDef] = [{"Name": key, "Value": value} for key, value in about.items()]
    query: MetricDataQueryTypeDef = {
        "Id": "asked",
        "MetricStat": {
            "Metric": {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions},
            "Period": _PERIOD_S,
            "Stat": statistic,
        },
    }
    with asking("cloudwatch:GetMetricData"):
        answer = site.clients.cloudwatch.get_metric_data(
            MetricDataQueries=[query],
            StartTime=datetime.fromtimestamp(site.now - minutes * _PERIOD_S, UTC),
            EndTime=datetime.fromtimestamp(site.now, UTC),
            ScanBy="TimestampDescending",
        )
    return answer["MetricDataResults"][0]["Values"]
