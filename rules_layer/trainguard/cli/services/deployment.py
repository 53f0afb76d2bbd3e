"""The deployed stack of a command: found by CloudFormation's outputs, with its stores."""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, NoRegionError
from botocore.session import Session

from trainguard.aws.aws_errors import error_code, translated
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.bookkeeping import DynamoBookkeeping
from trainguard.aws.dynamodb.fire_path import DynamoSentAlerts
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.dynamodb.stored_form import frozen_mapping
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.cli.options import Where
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.services.names import unknown_job
from trainguard.core.errors import (
    DeploymentError,
    OutputMissingError,
    PortUnavailableError,
    RequestError,
    StackNotFoundError,
    StackStateError,
)
from trainguard.core.layout import S3, ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord
from trainguard.core.stores import Bookkeeping, Jobs, NodeStates, RuleStates
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.local.places import is_recording
from trainguard.local.sources import PROFILER_OUTPUT, missing
from trainguard.stack.actions.marks import AlertMarks

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

_DESCRIPTION = "TrainGuard"
_UNUSABLE = re.compile(r"CREATE_(?!COMPLETE).*|ROLLBACK_.*|DELETE_.*|REVIEW_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    jobs: Jobs
    nodes: NodeStates
    rows: RuleStates
    bookkeeping: Bookkeeping
    objects: ProfileObjects
    alerts: AlertMarks


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A deployed stack; ``status`` is CloudFormation's, for example ``UPDATE_COMPLETE``, and ``why`` its reason."""

    stack: str
    status: str
    region: str
    partition: str
    account: str
    outputs: Mapping[str, str]
    clients: Clients
    why: str | None = None

    @cached_property
    def stores(self) -> Stores:
        return open_stores(self)

    def output(self, name: str) -> str:
        """Return an output's value; raises OutputMissingError."""
        if name not in self.outputs:
            has = ", ".join(sorted(self.outputs)) or "none"
            raise OutputMissingError(
                f"stack {self.stack} in {self.region} has no output {name}, its outputs: {has}",
                "Is it a TrainGuard stack? If it is an older one, deploy it again.",
            )
        return self.outputs[name]

    @property
    def bucket(self) -> str:
        return self.output("ProfilerOutputUri").removeprefix(S3).partition("/")[0]

    def arn(self, service: str, name: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{name}"

    @property
    def queue_arn(self) -> str:
        return self.arn("sqs", self.output("DoorbellQueueUrl").rpartition("/")[2])

    def aws(self, *words: str, profile: str | None) -> str:
        """Return a command of the AWS command line for the stack's Region, quoted for a shell."""
        return shlex.join(["aws", *words, "--region", self.region, *(["--profile", profile] if profile else [])])


def connect(where: Where) -> Deployment:
    """Find the deployment with its stores; raises as `find_deployment` does, and OutputMissingError."""
    deployment = find_deployment(where)
    _ = deployment.stores
    return deployment


def find_deployment(where: Where) -> Deployment:
    """Find the deployed stack; raises StackStateError for one that is not ready, else as `look_up` does."""
    deployment = look_up(where)
    if _UNUSABLE.fullmatch(deployment.status):
        why = f" ({deployment.why})" if deployment.why else ""
        raise StackStateError(
            f"stack {where.stack} in {deployment.region} is {deployment.status}{why}",
            "Wait until it is created, or deploy it again.",
        )
    return deployment


def look_up(where: Where) -> Deployment:
    """Find a stack in whatever state it is.

    Its Region is by default `AWS_REGION` before `AWS_DEFAULT_REGION` before the profile's, as in the AWS command line
    and CDK. Raises CredentialsError, RegionError, StackNotFoundError, AccessDeniedError or PortUnavailableError.
    """
    try:
        with translated("AWS", "session"):
            session, region = session_in(where.region, where.profile)
            clients = Clients(session=session, region=region)
            described = _describe(clients, where.stack, region)
    except PortUnavailableError as fault:
        raise advised(fault) from fault.__cause__
    _, partition, _, _, account, _ = described["StackId"].split(":", 5)
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}
    return Deployment(
        stack=described["StackName"],
        status=described["StackStatus"],
        region=region,
        partition=partition,
        account=account,
        outputs=frozen_mapping(outputs),
        clients=clients,
        why=described.get("StackStatusReason"),
    )


def session_in(region: str | None, profile: str | None) -> tuple[Session, str]:
    """Return a session and its Region; raises the client library's errors."""
    session = Session(profile=profile)
    region = region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise NoRegionError
    return session, region


def open_stores(deployment: Deployment) -> Stores:
    """Return the deployment's stores; raises OutputMissingError."""
    dynamodb, bookkeeping = deployment.clients.dynamodb, deployment.output("BookkeepingTable")
    return Stores(
        jobs=DynamoJobs(client=dynamodb, table=deployment.output("JobsTable")),
        nodes=DynamoNodeStates(client=dynamodb, table=deployment.output("NodeStateTable")),
        rows=DynamoRuleStates(client=dynamodb, table=deployment.output("RuleStateTable")),
        bookkeeping=DynamoBookkeeping(client=dynamodb, table=bookkeeping),
        objects=S3ProfileObjects(client=deployment.clients.s3),
        alerts=DynamoSentAlerts(client=dynamodb, table=bookkeeping),
    )


def _describe(clients: Clients, stack: str, region: str) -> "StackTypeDef":
    with translated("CloudFormation", "DescribeStacks"):
        try:
            return clients.cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        except ClientError as error:
            if error_code(error) != "ValidationError":
                raise
            message = error.response.get("Error", {}).get("Message", "")
    raise StackNotFoundError(f"Region {region} has no stack {stack}: {message}", _others(clients))


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
        # Without the right to list, the error still says that the stack is not there.
        return elsewhere
    if not alike:
        return elsewhere
    return f"Perhaps you mean {' or '.join(sorted(alike))}: pass --stack or set TRAINGUARD_STACK. {elsewhere}"


@dataclass(frozen=True, slots=True)
class Target:
    """A folder or ``s3://`` URI, or a job of the deployed stack by its name, as a replay's.

    ``note`` says what else the text of a place could have meant.
    """

    text: str
    is_job: bool = False
    note: str | None = None


def target_of(source: str) -> Target:
    """Return the target; a folder comes before a job of its name. Raises ProfileSourceError for neither."""
    is_name = JOB_NAME.fullmatch(source) is not None or replayed_job(source) is not None
    if source.startswith(S3) or is_recording(source):
        return Target(source)
    if Path(source).exists():
        meant = f"{source} is a folder here, and is read as one. For the training job of this name, call it elsewhere."
        return Target(source, note=meant if is_name else None)
    if is_name:
        return Target(source, is_job=True)
    raise missing(source, "a folder, a file, s3://bucket/prefix, or the name of a training job")


def connect_for(target: Target, where: Where) -> Deployment:
    """Find the deployment of a target; for a job, an error says that it may be a mistyped folder."""
    try:
        return connect(where)
    except DeploymentError as fault:
        if not target.is_job:
            raise
        what = f"there is no folder {target.text} here, so it is taken as the name of a training job; {fault.what}"
        raise type(fault)(what, fault.remedy) from fault


def clients_for(target: Target, where: Where) -> Clients | None:
    """Return the clients that read a place in S3; None, for those of the environment, where nothing else is asked."""
    if not target.text.startswith(S3) or (where.region is None and where.profile is None):
        return None
    return Clients(session=Session(profile=where.profile), region=where.region)


def job_place(job: JobRecord) -> str:
    """Return where a job's profile lies; of a replay, its job's."""
    root = ProfileRoot.of_job(job.prefix, replayed_job(job.job) or job.job)
    return f"{S3}{job.bucket}/{root.folder}{PROFILER_OUTPUT}"


def job_in_stack(name: str, jobs: Jobs) -> JobRecord:
    """Return the item of a job; raises RequestError, with similar names, where the stack does not know it."""
    record = jobs.load(name)
    if record is None:
        what = str(unknown_job(name, jobs)).rstrip(".")
        raise RequestError(what, "Or give the place of its profile: s3://<bucket>/<prefix>/<job>, or a folder.")
    return record
