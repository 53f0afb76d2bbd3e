"""A deployed stack as the command line meets it: outputs, and on moto bucket, state machine and, if wanted, tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.session import get_session
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE, create_tables
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, SETTINGS, Upload, describe, uploads
from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.cli.options import Where
from trainguard.cli.services import deployment
from trainguard.cli.services.deployment import Deployment, Stores, connect
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import describe_record
from trainguard.local.bucket import open_bucket
from trainguard.local.engine import ProfileEvaluation, evaluate_profile, evaluation_rows
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import read_profile

STACK: Final = "TrainGuard"
REGION: Final = "eu-west-1"
PREFIX = "jobs/"
STOP_SWITCH = "/TrainGuard/stop-switch"
BRAKES = "/TrainGuard/brakes"
EXPIRES_AT = 1_900_000_000
_MACHINE = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}


@dataclass
class DeployedStack:
    """The stack, and the calls that were made since it stood."""

    connection: Deployment
    calls: list[tuple[str, str]]

    @property
    def clients(self) -> Clients:
        """Clients of the account."""
        return self.connection.clients

    def upload(self, objects: Sequence[Upload] | None = None) -> None:
        """Put a job's profile into the bucket, below ``jobs/``; the small job's by default."""
        bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for each in _small_job() if objects is None else objects:
            bucket.put_object(BUCKET, PREFIX + each.key, each.body)

    def live_job(
        self, tags: dict[str, str] | None = None, *, state: bool = True, outside: bool = False
    ) -> ProfileEvaluation:
        """Let the small job have run under the stack to its end: its profile, item, state and rows are there.

        ``outside`` lets it be one that SageMaker does not know.
        """
        self.upload()
        description = describe(SETTINGS if tags is None else tags, status=JobStatus.COMPLETED)
        own_file = replace(description, arn=f"unknown:{description.job}", profile_uri=None, created_at=None)
        record = describe_record(
            own_file if outside else replace(description, profile_uri=f"s3://{BUCKET}/{PREFIX}"),
            MemoryWorld().settings,
            bucket=BUCKET,
            root=ProfileRoot(PREFIX, description.job),
        )
        evaluation = _evaluated(record, self.clients)
        stores = self.connection.stores
        stores.jobs.register(replace(evaluation.job, active=False, expires_at=EXPIRES_AT))
        for item in evaluation.records if state else ():
            stores.nodes.save(replace(item, version=0))
        stores.rows.publish(evaluation_rows(evaluation, expires_at=EXPIRES_AT))
        self.calls.clear()
        return evaluation


@cache
def _small_job() -> Sequence[Upload]:
    return uploads()


_evaluations: dict[str, ProfileEvaluation] = {}


def _evaluated(record: JobRecord, clients: Clients) -> ProfileEvaluation:
    """Evaluate the small job as it lies in the bucket; once for all tests that tell the same of it."""
    told = repr(record)
    if told not in _evaluations:
        profile = read_profile(open_bucket(f"s3://{BUCKET}/{record.root.folder}", clients))
        with WorkerPool(0) as pool:
            _evaluations[told] = evaluate_profile(record, FAMILIES.plan(record), profile, pool)
    return _evaluations[told]


@contextmanager
def deployed_stack(
    monkeypatch: pytest.MonkeyPatch, *, tables: bool = False, machine: bool = False
) -> Iterator[DeployedStack]:
    """Deploy the stack into an account of its own, and set the environment up for it.

    With ``tables`` they are on moto, which takes its time; else they are the twins in memory. With ``machine`` there is
    a state machine for reports.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("TRAINGUARD_STACK", raising=False)
    with mock_aws():
        calls: list[tuple[str, str]] = []
        if not tables:
            world = MemoryWorld()
            monkeypatch.setattr(deployment, "open_stores", lambda found: _in_memory(world, found.clients))
        outputs = _outputs(Clients(session=get_session(), region=REGION), tables=tables, machine=machine)
        _answer_and_note(monkeypatch, outputs, calls)
        yield DeployedStack(connect(Where(stack=STACK, region=REGION)), calls)


def _in_memory(world: MemoryWorld, clients: Clients) -> Stores:
    objects = S3ProfileObjects(client=clients.s3)
    return Stores(
        jobs=world.jobs,
        nodes=world.nodes,
        rows=world.rows,
        bookkeeping=world.bookkeeping,
        objects=objects,
        alerts=world.alerts,
    )


def _outputs(clients: Clients, *, tables: bool, machine: bool) -> dict[str, str]:
    clients.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    if tables:
        create_tables(clients.dynamodb)
    outputs = {"JobsTable": JOBS, "NodeStateTable": NODE_STATE, "RuleStateTable": RULE_STATE}
    outputs |= {"StopSwitchParameter": STOP_SWITCH, "StopSwitchOverrideParameter": f"{STOP_SWITCH}-override"}
    outputs |= {"BrakesParameter": BRAKES, "BookkeepingTable": BOOKKEEPING}
    if machine:
        made = clients.stepfunctions.create_state_machine(
            name="report", roleArn="arn:aws:iam::123456789012:role/report", definition=json.dumps(_MACHINE)
        )
        outputs["ReportStateMachineArn"] = made["stateMachineArn"]
    return outputs


def _answer_and_note(monkeypatch: pytest.MonkeyPatch, outputs: Mapping[str, str], calls: list[tuple[str, str]]) -> None:
    """Note each call; answer in CloudFormation's place, for which moto needs packages that nothing else here does."""
    made = vars(BaseClient)["_make_api_call"]

    def call(self: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        service = self.meta.service_model.service_name
        calls.append((service, operation))
        if service != "cloudformation":
            return made(self, operation, arguments)
        if operation == "ListStacks":
            return {"StackSummaries": []}
        if arguments != {"StackName": STACK}:
            said = f"Stack with id {arguments['StackName']} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": said}}, operation)
        described = {
            "StackName": STACK,
            "StackId": f"arn:aws:cloudformation:{REGION}:123456789012:stack/{STACK}/1",
            "StackStatus": "CREATE_COMPLETE",
            "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()],
        }
        return {"Stacks": [described]}

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
