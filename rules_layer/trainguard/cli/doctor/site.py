"""Common input of all checks: the deployed stack, its resources, and clients."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from trainguard.aws.clients import Clients, client_of
from trainguard.cli.doctor.check import asking
from trainguard.cli.services.deployment import Deployment

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackResourceSummaryTypeDef
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import DimensionTypeDef, MetricDataQueryTypeDef
    from mypy_boto3_events.type_defs import DescribeRuleResponseTypeDef
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_lambda.type_defs import FunctionConfigurationResponseTypeDef


class DoctorClients(Clients):
    functions: "cached_property[LambdaClient]" = client_of("lambda")
    cloudwatch: "cached_property[CloudWatchClient]" = client_of("cloudwatch")
    iam: "cached_property[IAMClient]" = client_of("iam")
    kms: "cached_property[KMSClient]" = client_of("kms")
    sts: "cached_property[Any]" = client_of("sts")


_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".c2s.ic.gov", ".sc2s.sgov.gov", ".api.aws")
_SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"


class Site:
    """A deployed stack under examination; ``now`` in epoch seconds, ``bucket`` by default the stack's own."""

    def __init__(
        self,
        deployment: Deployment,
        clients: Clients,
        *,
        now: float,
        profile: str | None = None,
        bucket: str | None = None,
    ) -> None:
        self.deployment = deployment
        self.clients = DoctorClients(session=clients.session, region=deployment.region)
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


_PERIOD_S = 60


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
