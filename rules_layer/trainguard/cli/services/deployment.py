"""The deployed stack that a command works with: found by CloudFormation's outputs, with its stores."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoRegionError,
)
from botocore.session import Session

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_jobs import DynamoJobs
from trainguard.adapters.dynamodb_node_states import DynamoNodeStates
from trainguard.adapters.dynamodb_rule_states import DynamoRuleStates
from trainguard.adapters.immutable import frozen_mapping
from trainguard.adapters.s3_objects import S3ProfileObjects
from trainguard.cli.output.aws_advice import advised
from trainguard.errors import (
    OutputMissingError,
    PortUnavailableError,
    StackNotFoundError,
    StackStateError,
)
from trainguard.ports import ProfileObjects
from trainguard.stores import Jobs, NodeStates, RuleStates

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

_DESCRIPTION = "TrainGuard"
_UNUSABLE = re.compile(r"CREATE_(?!COMPLETE).*|ROLLBACK_.*|DELETE_.*|REVIEW_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A deployed stack.

    Attributes
    ----------
    stack, status, region, partition, account : str
        ``status`` is CloudFormation's, for example ``UPDATE_COMPLETE``.
    outputs : mapping of str to str
        The stack's outputs by name.
    """

    stack: str
    status: str
    region: str
    partition: str
    account: str
    outputs: Mapping[str, str]

    def output(self, name: str) -> str:
        """Return an output's value; raises OutputMissingError."""
        if name not in self.outputs:
            has = ", ".join(sorted(self.outputs)) or "none"
            raise OutputMissingError(
                f"stack {self.stack} in {self.region} has no output {name}, its outputs: {has}",
                "Is it a TrainGuard stack? If it is an older one, deploy it again.",
            )
        return self.outputs[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What a deployment holds."""

    jobs: Jobs
    nodes: NodeStates
    rows: RuleStates
    objects: ProfileObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which stack a person means; region and profile None stand for what this machine is set up for."""

    stack: str
    region: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A deployment that a command can work with."""

    deployment: Deployment
    clients: Clients
    stores: Stores


def connect(where: Where) -> Connection:
    """Find the deployment and open its stores; raises what `find_deployment` does, and OutputMissingError."""
    deployment, clients = find_deployment(where.stack, where.region, where.profile)
    return Connection(deployment=deployment, clients=clients, stores=open_stores(deployment, clients))


def find_deployment(stack: str, region: str | None, profile: str | None) -> tuple[Deployment, Clients]:
    """Find the deployed stack, and refuse one whose resources cannot be relied on.

    Raises
    ------
    CredentialsError, RegionError, StackNotFoundError, StackStateError, AccessDeniedError, PortUnavailableError
        Each says what to do.
    """
    deployment, clients, why = look_up(stack, region, profile)
    if _UNUSABLE.fullmatch(deployment.status):
        raise StackStateError(
            f"stack {stack} in {deployment.region} is {deployment.status}" + (f" ({why})" if why else ""),
            "Wait until it is created, or deploy it again.",
        )
    return deployment, clients


def look_up(stack: str, region: str | None, profile: str | None) -> tuple[Deployment, Clients, str | None]:
    """Find a stack in whatever state it is, and CloudFormation's reason for that state.

    Parameters
    ----------
    stack : str
        CloudFormation's name of it.
    region, profile : str or None
        By default what this machine is set up for: `AWS_REGION` before `AWS_DEFAULT_REGION` before the profile's
        region, as the AWS command line and CDK have it.

    Raises
    ------
    CredentialsError, RegionError, StackNotFoundError, AccessDeniedError, PortUnavailableError
        Each says what to do.
    """
    with _advised():
        session = Session(profile=profile)
        region = region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        if not region:
            raise NoRegionError
        clients = Clients(session=session, region=region)
        described = _describe(clients, stack, region)
    _, partition, _, _, account, _ = described["StackId"].split(":", 5)
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}
    deployment = Deployment(
        stack=described["StackName"],
        status=described["StackStatus"],
        region=region,
        partition=partition,
        account=account,
        outputs=frozen_mapping(outputs),
    )
    return deployment, clients, described.get("StackStatusReason")


def open_stores(deployment: Deployment, clients: Clients) -> Stores:
    """Return the deployment's stores; raises OutputMissingError."""
    dynamodb = clients.dynamodb
    return Stores(
        jobs=DynamoJobs(client=dynamodb, table=deployment.output("JobsTable")),
        nodes=DynamoNodeStates(client=dynamodb, table=deployment.output("NodeStateTable")),
        rows=DynamoRuleStates(client=dynamodb, table=deployment.output("RuleStateTable")),
        objects=S3ProfileObjects(client=clients.s3),
    )


@contextmanager
def _advised() -> Iterator[None]:
    try:
        with translated("AWS", "session"):
            yield
    except PortUnavailableError as fault:
        raise advised(fault) from fault.__cause__


def _describe(clients: Clients, stack: str, region: str) -> "StackTypeDef":
    with translated("CloudFormation", "DescribeStacks"):
        try:
            return clients.cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        except ClientError as error:
            if error_code(error) != "ValidationError":
                raise
            said = error.response.get("Error", {}).get("Message", "")
    raise StackNotFoundError(f"Region {region} has no stack {stack}: {said}", _others(clients))


def _others(clients: Clients) -> str:
    """Say which stacks look like TrainGuard's, as far as listing them is permitted."""
    elsewhere = "Pass --region where it is elsewhere, or deploy it with `make deploy`."
    try:
        pages = clients.cloudformation.get_paginator("list_stacks").paginate()
        alike = {
            each["StackName"]
            for page in pages
            for each in page["StackSummaries"]
            if not each["StackStatus"].startswith("DELETE_")
            and _DESCRIPTION.lower() in f"{each['StackName']} {each.get('TemplateDescription', '')}".lower()
        }
    except (ClientError, BotoCoreError):
        # Listing is a service on top: who may not list still learns that the stack is not there.
        return elsewhere
    if not alike:
        return elsewhere
    return f"Perhaps you mean {' or '.join(sorted(alike))}: pass --stack or set TRAINGUARD_STACK. {elsewhere}"
