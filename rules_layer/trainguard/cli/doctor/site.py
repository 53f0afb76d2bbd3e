"""What all checks look at: the deployed stack, its resources, and the clients to ask about them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainguard.adapters.clients import Clients
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.clients import DoctorClients
from trainguard.cli.services.deployment import Deployment

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import DescribeRuleResponseTypeDef
    from mypy_boto3_lambda.type_defs import FunctionConfigurationResponseTypeDef

_SCHEME = "s3://"
_SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the stack; ``name`` is what its service calls it, ``logical`` its id in the template."""

    kind: str
    logical: str
    name: str


class Site:
    """A deployed stack under examination.

    Parameters
    ----------
    deployment : Deployment
    clients : Clients
        The clients by which it was found.
    now : float
        Epoch seconds.
    profile : str or None
        The credentials' profile that was asked for; commands that are suggested have it too.
    bucket : str or None
        The bucket that was asked about; by default the stack's own.
    """

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
        """The bucket that is examined."""
        return self._bucket or self.own_bucket

    @property
    def own_bucket(self) -> str:
        """The bucket that the stack was deployed for."""
        return self.deployment.output("ProfilerOutputUri").removeprefix(_SCHEME).partition("/")[0]

    @cached_property
    def resources(self) -> Sequence[Resource]:
        """The stack's resources, in the order of the template's names."""
        with asking("cloudformation:ListStackResources"):
            pages = self.clients.cloudformation.get_paginator("list_stack_resources").paginate(
                StackName=self.deployment.stack
            )
            found = [
                Resource(each["ResourceType"], each["LogicalResourceId"], each["PhysicalResourceId"])
                for page in pages
                for each in page["StackResourceSummaries"]
                if "PhysicalResourceId" in each
            ]
        return sorted(found, key=lambda resource: resource.logical)

    def names(self, kind: str) -> list[str]:
        """Return the names of all resources of a kind, for example ``AWS::Lambda::Function``."""
        return [resource.name for resource in self.resources if resource.kind == kind]

    @cached_property
    def functions(self) -> "Mapping[str, FunctionConfigurationResponseTypeDef]":
        """The functions' configurations by the name that TrainGuard gives them, for example ``tick``."""
        configurations = {}
        for name in self.names("AWS::Lambda::Function"):
            with asking("lambda:GetFunctionConfiguration"):
                configuration = self.clients.functions.get_function_configuration(FunctionName=name)
            variables = configuration.get("Environment", {}).get("Variables", {})
            configurations[variables.get(_SERVICE_NAME, name)] = configuration
        return configurations

    @cached_property
    def rules(self) -> "Sequence[DescribeRuleResponseTypeDef]":
        """The stack's EventBridge rules."""
        rules = []
        for name in self.names("AWS::Events::Rule"):
            with asking("events:DescribeRule"):
                rules.append(self.clients.events.describe_rule(Name=name))
        return rules

    def arn(self, service: str, name: str) -> str:
        """Return the ARN of something of the stack's account and Region."""
        here = self.deployment
        return f"arn:{here.partition}:{service}:{here.region}:{here.account}:{name}"

    def aws(self, *words: str) -> str:
        """Return a command of the AWS command line for this stack's Region, quoted for a shell."""
        place = ["--region", self.deployment.region]
        who = [] if self._profile is None else ["--profile", self._profile]
        return shlex.join(["aws", *words, *place, *who])
