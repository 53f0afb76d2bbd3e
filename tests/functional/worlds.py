"""The two worlds in which every contract is tested, behind one face."""

import itertools
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.stepfunctions.models import stepfunctions_backends

from tests.functional.offline import LAMBDA, RECONCILE_JOB, REGION
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE, create_tables
from tests.support.memory import MemoryWorld
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.bookkeeping import DynamoBookkeeping
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.lambda_invocations import LambdaInvocations, request_of
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.sqs import SqsTaskQueue
from trainguard.aws.ssm import SsmSettingDocuments
from trainguard.aws.stepfunctions import StepFunctionsExecutions
from trainguard.core.ports import (
    ExecutionRecords,
    Executions,
    ProfileObjects,
    ReconcileRequest,
    ReconcileRequests,
    SettingDocuments,
    StreamTask,
    TaskQueue,
    TrainingJobDescription,
    TrainingJobs,
)
from trainguard.core.records import JobStatus
from trainguard.core.stores import Bookkeeping, Jobs, NodeStates, RuleStates
from trainguard.testing.memory import DEFAULT_SETTINGS, DEPLOYED_DEFAULT, SETTINGS_PATH

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

BUCKET = "profiles"
_ROLE_ARN = "arn:aws:iam::123456789012:role/fire"


class World(Protocol):
    """What a contract test may touch: the ports, and a look behind them."""

    @property
    def nodes(self) -> NodeStates:
        """Store or service of this world."""
        ...

    @property
    def rows(self) -> RuleStates:
        """Store or service of this world."""
        ...

    @property
    def jobs(self) -> Jobs:
        """Store or service of this world."""
        ...

    @property
    def bookkeeping(self) -> Bookkeeping:
        """Store or service of this world."""
        ...

    @property
    def objects(self) -> ProfileObjects:
        """Store or service of this world."""
        ...

    @property
    def executions(self) -> Executions:
        """Store or service of this world."""
        ...

    @property
    def reports(self) -> Executions:
        """Store or service of this world."""
        ...

    @property
    def records(self) -> ExecutionRecords:
        """Store or service of this world."""
        ...

    @property
    def training_jobs(self) -> TrainingJobs:
        """Store or service of this world."""
        ...

    @property
    def tasks(self) -> TaskQueue:
        """Store or service of this world."""
        ...

    @property
    def reconcile_requests(self) -> ReconcileRequests:
        """Store or service of this world."""
        ...

    @property
    def settings(self) -> SettingDocuments:
        """Store or service of this world."""
        ...

    def put_settings(self, name: str, document: str) -> None:
        """Let a document of settings be as given."""
        ...

    def remove_settings(self, name: str) -> None:
        """Let there be no such document."""
        ...

    def new_job(self) -> str:
        """Return a job name that no other example has."""
        ...

    def started(self) -> dict[str, dict[str, object]]:
        """Return the input of each execution of a fire by its name."""
        ...

    def reported(self) -> dict[str, dict[str, object]]:
        """Return the input of each execution of a full report by its name."""
        ...

    def end(self, name: str, status: str, *, at: float, error: str | None = None, cause: str | None = None) -> None:
        """Let an execution of a fire end at ``at``, epoch seconds."""
        ...

    def create_training_job(self, job: str, tags: Mapping[str, str]) -> None:
        """Let SageMaker know a job on two ml.p4d.24xlarge."""
        ...

    def drain(self) -> list[StreamTask]:
        """Take all tasks out of the queue."""
        ...

    def asked(self) -> list[ReconcileRequest]:
        """Take all requests that were sent."""
        ...

    def refuse_look(self, job: str) -> None:
        """Take no look at a job from now on."""
        ...

    def put_empty(self, keys: Iterable[str]) -> None:
        """Put many empty objects into BUCKET."""
        ...

    def content_type(self, key: str) -> str:
        """Return the content type of an object in BUCKET."""
        ...


class MemoryUnderTest(MemoryWorld):
    """The in-memory twins."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def new_job(self) -> str:
        return f"job-{next(self._numbers)}"

    def put_settings(self, name: str, document: str) -> None:
        self.settings.put(name, document)

    def remove_settings(self, name: str) -> None:
        self.settings.remove(name)

    @property
    def records(self) -> ExecutionRecords:
        return self.executions

    def started(self) -> dict[str, dict[str, object]]:
        return self.executions.started

    def end(self, name: str, status: str, *, at: float, error: str | None = None, cause: str | None = None) -> None:
        self.executions.end(name, status, at=at, error=error, cause=cause)

    def reported(self) -> dict[str, dict[str, object]]:
        return self.reports.started

    def create_training_job(self, job: str, tags: Mapping[str, str]) -> None:
        self.training_jobs.set(
            TrainingJobDescription(
                job=job,
                arn=f"arn:aws:sagemaker:{REGION}:123456789012:training-job/{job}",
                status=JobStatus.IN_PROGRESS,
                secondary_status="Training",
                instance_type="ml.p4d.24xlarge",
                instance_count=2,
                created_at=1.0,
                started_at=2.0,
                ended_at=None,
                profiling_interval_ms=500,
                framework_profiling=False,
                tags=tags,
            )
        )

    def drain(self) -> list[StreamTask]:
        return self.tasks.drain()

    def asked(self) -> list[ReconcileRequest]:
        return self.reconcile_requests.drain()

    def refuse_look(self, job: str) -> None:
        self.reconcile_requests.refuse(job)

    def put_empty(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.put(BUCKET, key, b"", "application/json")

    def content_type(self, key: str) -> str:
        return self.objects.content_type(BUCKET, key)


class MotoUnderTest:
    """The AWS adapters on moto."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._numbers = itertools.count()
        self.dynamodb = clients.dynamodb
        create_tables(clients.dynamodb)
        clients.s3.create_bucket(Bucket=BUCKET)
        self.machine_arn, self.report_machine_arn, self.kernels_machine_arn = (
            clients.stepfunctions.create_state_machine(
                name=name,
                roleArn=_ROLE_ARN,
                definition=json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}),
            )["stateMachineArn"]
            for name in ("fire", "report", "kernels")
        )
        self.queue_url = clients.sqs.create_queue(QueueName="messages")["QueueUrl"]
        self.nodes = DynamoNodeStates(client=clients.dynamodb, table=NODE_STATE)
        self.rows = DynamoRuleStates(client=clients.dynamodb, table=RULE_STATE)
        self.jobs = DynamoJobs(client=clients.dynamodb, table=JOBS)
        self.bookkeeping = DynamoBookkeeping(client=clients.dynamodb, table=BOOKKEEPING)
        self.objects = S3ProfileObjects(client=clients.s3)
        self.executions = StepFunctionsExecutions(client=clients.stepfunctions, state_machine_arn=self.machine_arn)
        self.records = StepFunctionsExecutions(client=clients.stepfunctions, state_machine_arn=self.machine_arn)
        self.reports = StepFunctionsExecutions(client=clients.stepfunctions, state_machine_arn=self.report_machine_arn)
        self.training_jobs = SageMakerTrainingJobs(client=lambda: clients.sagemaker)
        self.tasks = SqsTaskQueue(client=clients.sqs, queue_url=self.queue_url)
        LAMBDA.clear()
        self.reconcile_requests = LambdaInvocations(client=clients.functions, function=RECONCILE_JOB)
        self.settings = SsmSettingDocuments(
            client=lambda: clients.ssm, default=DEFAULT_SETTINGS, path=SETTINGS_PATH.rstrip("/")
        )
        self.put_settings(DEFAULT_SETTINGS, DEPLOYED_DEFAULT)

    def new_job(self) -> str:
        return f"job-{next(self._numbers)}"

    def put_settings(self, name: str, document: str) -> None:
        self._clients.ssm.put_parameter(Name=name, Value=document, Type="String", Overwrite=True)

    def remove_settings(self, name: str) -> None:
        self._clients.ssm.delete_parameter(Name=name)

    def job(self, job: str) -> "dict[str, AttributeValueTypeDef]":
        """Return an item of Jobs as DynamoDB holds it."""
        return self._item(JOBS, TrainingJobName=job)

    def node(self, job: str, node_kind: str) -> "dict[str, AttributeValueTypeDef]":
        """Return an item of NodeState as DynamoDB holds it."""
        return self._item(NODE_STATE, TrainingJobName=job, NodeKind=node_kind)

    def row(self, job: str, target: str) -> "dict[str, AttributeValueTypeDef]":
        """Return a row of RuleState as DynamoDB holds it."""
        return self._item(RULE_STATE, TrainingJobName=job, RuleTarget=target)

    def entry(self, purpose: str, name: str) -> "dict[str, AttributeValueTypeDef]":
        """Return an entry of Bookkeeping as DynamoDB holds it."""
        return self._item(BOOKKEEPING, Purpose=purpose, Id=name)

    def write_row(self, job: str, target: str, columns: Mapping[str, str]) -> None:
        """Write a row of text columns past the adapter."""
        item = {"TrainingJobName": job, "RuleTarget": target, **columns}
        self._clients.dynamodb.put_item(TableName=RULE_STATE, Item={name: {"S": item[name]} for name in item})

    def update_row(self, job: str, target: str, columns: "Mapping[str, AttributeValueTypeDef]") -> None:
        """Set columns of a row past the adapter, as the state machine does."""
        self._clients.dynamodb.update_item(
            TableName=RULE_STATE,
            Key={"TrainingJobName": {"S": job}, "RuleTarget": {"S": target}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in columns),
            ExpressionAttributeNames={f"#{name}": name for name in columns},
            ExpressionAttributeValues={f":{name}": columns[name] for name in columns},
        )

    def update_job(self, job: str, *, written: Mapping[str, str] | None = None, removed: Iterable[str] = ()) -> None:
        """Set text columns of a job's item and remove others past the adapter."""
        item = self.job(job) | {name: {"S": value} for name, value in (written or {}).items()}
        kept = {name: value for name, value in item.items() if name not in set(removed)}
        self._clients.dynamodb.put_item(TableName=JOBS, Item=kept)

    def _item(self, table: str, **key: str) -> "dict[str, AttributeValueTypeDef]":
        found = self._clients.dynamodb.get_item(TableName=table, Key={name: {"S": key[name]} for name in key})
        return found.get("Item", {})

    def started(self) -> dict[str, dict[str, object]]:
        return self._inputs(self.machine_arn)

    def end(self, name: str, status: str, *, at: float, error: str | None = None, cause: str | None = None) -> None:
        machines = stepfunctions_backends[DEFAULT_ACCOUNT_ID][REGION].state_machines
        (execution,) = [each for machine in machines for each in machine.executions if each.name == name]
        execution.status, execution.stop_date = status, datetime.fromtimestamp(at, UTC)
        execution.error, execution.cause = error, cause

    def reported(self) -> dict[str, dict[str, object]]:
        return self._inputs(self.report_machine_arn)

    def captured(self) -> dict[str, dict[str, object]]:
        """Return the input of each execution that judges a capture by its name."""
        return self._inputs(self.kernels_machine_arn)

    def _inputs(self, machine: str) -> dict[str, dict[str, object]]:
        listed = self._clients.stepfunctions.list_executions(stateMachineArn=machine)["executions"]
        described = {
            entry["name"]: self._clients.stepfunctions.describe_execution(executionArn=entry["executionArn"])["input"]
            for entry in listed
        }
        return {name: json.loads(document) for name, document in described.items()}

    def create_training_job(self, job: str, tags: Mapping[str, str]) -> None:
        self._clients.sagemaker.create_training_job(
            TrainingJobName=job,
            RoleArn=_ROLE_ARN,
            AlgorithmSpecification={"TrainingInputMode": "File", "TrainingImage": "image"},
            OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/"},
            ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )

    def drain(self) -> list[StreamTask]:
        tasks: list[StreamTask] = []
        while messages := self._clients.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for message in messages:
                body = json.loads(message["Body"])
                assert body.pop("trainguard") == "task"
                tasks.append(StreamTask(**body))
                self._clients.sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])
        return tasks

    def asked(self) -> list[ReconcileRequest]:
        taken = [request_of(event, now=0.0) for event in LAMBDA.events]
        LAMBDA.events.clear()
        return taken

    def refuse_look(self, job: str) -> None:
        LAMBDA.refused.add(job)

    def put_empty(self, keys: Iterable[str]) -> None:
        # Past the HTTP layer: a thousand requests take seconds.
        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, key, b"")

    def content_type(self, key: str) -> str:
        return self._clients.s3.head_object(Bucket=BUCKET, Key=key)["ContentType"]
