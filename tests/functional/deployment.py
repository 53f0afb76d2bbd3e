"""The functions as they are deployed, on moto: each a fresh module with its environment, and the recorded job."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.sagemaker.models import FakeTrainingJob, sagemaker_backends

from demo.recording import Recording
from demo.uploads import RecordedObject
from tests.functional.offline import POLL_SOURCE, RECONCILE_JOB, REGION, offline_session
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE
from tests.functional.worlds import MotoUnderTest
from tests.support.printing import Capture
from trainguard.aws.clients import Clients
from trainguard.aws.lambda_invocations import payload_of
from trainguard.core.canary_name import CANARY_MARK
from trainguard.engine.messages import encode_task
from trainguard.testing.memory import DEFAULT_SETTINGS, SETTINGS_PATH

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "events"
BUCKET = "trainguard-profiles-111122223333-us-east-1"
PREFIX = "runs/"
JOB = "resnet50-slow-loader-2026-07-14"
STOP_SWITCH = "/TrainGuard/stop-switch"
STOP_SWITCH_OVERRIDE = "/TrainGuard/stop-switch-override"
BRAKES = "/TrainGuard/brakes"
MAX_STOPS_PER_HOUR = 2
ALERT_TOPIC, CHAT_TOPIC = (f"arn:aws:sns:{REGION}:{DEFAULT_ACCOUNT_ID}:{name}" for name in ("alerts", "chat"))
# Variables that a function has in some deployments; these are set here.
OPTIONAL = {"reconcile_job": {"POLL_SOURCE_FUNCTION": POLL_SOURCE}}

OPTED_IN = {"trainguard:stop-on-fire": "allowed", "team": "vision"}


def event(name: str) -> Any:
    """Return a recorded event."""
    return json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))


def ringing(bodies: Iterable[str], *, deliveries: int = 1) -> dict[str, Any]:
    """Return a batch of the evaluation queue; message ids are ``m0``, ``m1`` and so on."""
    attributes = {"ApproximateReceiveCount": str(deliveries)}
    records = [
        {"messageId": f"m{number}", "body": body, "attributes": attributes, "eventSource": "aws:sqs"}
        for number, body in enumerate(bodies)
    ]
    return {"Records": records}


def object_message(key: str, *, at: float, bucket: str = BUCKET) -> str:
    """Return the message that announces an object; ``at`` in epoch seconds."""
    detail = {"bucket": {"name": bucket}, "object": {"key": key}}
    return json.dumps({"source": "aws.s3", "time": datetime.fromtimestamp(at, UTC).isoformat(), "detail": detail})


@cache
def recorded_objects() -> tuple[RecordedObject, ...]:
    """Return all objects of the job that the recorded events name."""
    recording = Recording.load(EVENTS / "jobs" / "slow_data_loader.npz")
    return tuple(recording.objects(JOB, prefix=PREFIX))


@dataclass(frozen=True, slots=True)
class Context:
    """A Lambda context as far as a function asks it."""

    function_name: str
    remaining_ms: Iterator[int]
    memory_limit_in_mb: int = 1024
    aws_request_id: str = "8c0f2f5e-31e5-4a0e-8a07-4f4bd2a1b1a5"
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:111122223333:function:any"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time that is left."""
        return next(self.remaining_ms)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one invocation returned, the metrics that it counted and their dimensions, and its log lines."""

    value: Any
    metrics: Mapping[str, float]
    dimensions: frozenset[tuple[str, ...]]
    logged: tuple[Mapping[str, Any], ...]


class Function:
    """One deployed function."""

    def __init__(self, name: str, module: ModuleType, printed: Capture) -> None:
        self.module = module
        self._name = name
        self._printed = printed

    def __call__(self, given: object, *, remaining_ms: Sequence[int] = (60_000,)) -> Answer:
        """Invoke the function; ``remaining_ms`` answers each of its questions in turn, the last one for good."""
        self._printed.readouterr()
        value = self.module.handler(given, Context(self._name, chain(remaining_ms, repeat(remaining_ms[-1]))))
        lines = [json.loads(line) for line in self._printed.readouterr().out.splitlines()]
        measured = [line for line in lines if "_aws" in line]
        directives = [directive for line in measured for directive in line["_aws"]["CloudWatchMetrics"]]
        names = {metric["Name"] for directive in directives for metric in directive["Metrics"]}
        return Answer(
            value=json.loads(json.dumps(value)),
            metrics={name: sum(sum(line[name]) for line in measured if name in line) for name in names},
            dimensions=frozenset(tuple(each) for directive in directives for each in directive["Dimensions"]),
            logged=tuple(line for line in lines if "_aws" not in line),
        )


class Deployment:
    """What the stack deploys, without its state machines' states: stores, queue, stop switch and functions."""

    def __init__(self, clients: Clients, monkeypatch: pytest.MonkeyPatch, printed: Capture) -> None:
        self.world = MotoUnderTest(clients)
        self.clients = clients
        self._monkeypatch = monkeypatch
        self._printed = printed
        self._answer_stops()
        # A session of their own would have each test's functions read megabytes of service models.
        monkeypatch.setattr("trainguard.aws.clients.get_session", offline_session)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        clients.s3.create_bucket(Bucket=BUCKET)
        self.throw_stop_switch("enabled")
        self.stop_budget_table = BOOKKEEPING
        self.stoppable_resources = "none"
        self.canary_job = False
        self.live_sources = "logs+/aws/sagemaker/TrainingJobs"

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """Variables of each function."""
        jobs, nodes = {"JOBS_TABLE": JOBS}, {"NODE_STATE_TABLE": NODE_STATE}
        rows, bookkeeping = {"RULE_STATE_TABLE": RULE_STATE}, {"BOOKKEEPING_TABLE": BOOKKEEPING}
        queue = {"TASK_QUEUE_URL": self.world.queue_url}
        machines = {
            "FIRE_STATE_MACHINE_ARN": self.world.machine_arn,
            "REPORT_STATE_MACHINE_ARN": self.world.report_machine_arn,
            "KERNELS_STATE_MACHINE_ARN": self.world.kernels_machine_arn,
        }
        settings = {"DEFAULT_SETTINGS_PARAMETER": DEFAULT_SETTINGS, "SETTINGS_PATH": SETTINGS_PATH}
        fires = {"FIRE_STATE_MACHINE_ARN": self.world.machine_arn}
        bucket = {"PROFILE_BUCKET": BUCKET}
        brakes = {"BRAKES_PARAMETER": BRAKES}
        evaluation = jobs | nodes | rows | bookkeeping | bucket | queue | machines | settings | brakes
        return {
            "evaluate_objects": evaluation,
            "scheduler": {**jobs, "RECONCILE_JOB_FUNCTION": RECONCILE_JOB, **brakes, "CANARY": "on"}
            | bucket
            | {"DEFAULT_SETTINGS_PARAMETER": DEFAULT_SETTINGS},
            "reconcile_job": evaluation,
            "poll_source": jobs | {"LIVE_SOURCES": self.live_sources},
            "job_lifecycle": jobs | nodes | queue | bucket | fires | settings,
            "decide_stop": {
                "STOP_SWITCH_PARAMETER": STOP_SWITCH,
                "STOP_SWITCH_OVERRIDE_PARAMETER": STOP_SWITCH_OVERRIDE,
                **brakes,
                **jobs,
                **rows,
                **bookkeeping,
                "STOP_BUDGET_TABLE": self.stop_budget_table,
                "MAX_STOPS_PER_HOUR": str(MAX_STOPS_PER_HOUR),
                "STOPPABLE_RESOURCES": self.stoppable_resources,
            },
            "record_fire": rows,
            "stop_job": rows | bookkeeping,
            "send_alert": {
                **bookkeeping,
                "ALERT_TOPIC_ARN": ALERT_TOPIC,
                "CHAT_TOPIC_ARN": CHAT_TOPIC,
                **brakes,
            },
            "canary": rows | jobs | bucket | self._of_canary_job,
            "verdict": rows | jobs,
            "open_ops_items": {},
            "weekly_digest": {
                **rows,
                "ALERT_TOPIC_ARN": ALERT_TOPIC,
                "CHAT_TOPIC_ARN": CHAT_TOPIC,
                "STACK_NAME": "TrainGuard",
                **jobs,
            },
            "send_statements": {
                **rows,
                "CENTRAL_BUS_ARN": f"arn:aws:events:{REGION}:999988887777:event-bus/TrainGuardCentral",
                "STACK_NAME": "TrainGuard",
                **jobs,
            },
            "keep_statement": rows | jobs,
            "admit_stop": {"STOP_BUDGET_TABLE": BOOKKEEPING, "MAX_STOPS_PER_HOUR": str(MAX_STOPS_PER_HOUR)},
            "draw_fleet": {"STACK_NAME": "TrainGuardCentral"} | rows | jobs | bucket,
            "build_report": jobs | nodes,
            "plan_report": jobs | nodes,
            "digest_profile": {},
            "plan_capture": {},
            "digest_trace": {},
            "join_capture": queue,
        }

    def function(self, name: str) -> Function:
        """Start a function as Lambda does: its own variables and no other's, its module executed again."""
        for environment in (*self.environments.values(), *OPTIONAL.values()):
            for variable in environment:
                self._monkeypatch.delenv(variable, raising=False)
        powertools = {"POWERTOOLS_SERVICE_NAME": name, "POWERTOOLS_METRICS_NAMESPACE": "TrainGuard"}
        for variable, value in (self.environments[name] | OPTIONAL.get(name, {}) | powertools).items():
            self._monkeypatch.setenv(variable, value)
        # Powertools keeps a process's logger, and with it the output stream that it was made with.
        logging.Logger.manager.loggerDict.pop(name, None)
        return Function(name, load_handler(name), self._printed)

    def reconcile_jobs(self) -> dict[str, Answer]:
        """Let the scheduler run in every job's turn, and reconcile each; return the answers by job."""
        for job in self.world.jobs.polled_slowly():
            self.world.jobs.set_fast_polling(job, polled_fast=True)
        self.function("scheduler")(event("scheduler"))
        reconcile_job = self.function("reconcile_job")
        return {look.job: reconcile_job(json.loads(payload_of(look))) for look in self.world.asked()}

    def put(self, objects: Iterable[RecordedObject], *, bucket: str = BUCKET) -> None:
        """Let objects appear in S3 at their own time, which is past the HTTP layer."""
        for each in objects:
            stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, each.key, each.body)
            stored.last_modified = datetime.fromtimestamp(each.appears_at, UTC).replace(tzinfo=None)

    def create_training_job(
        self, *, status: str = "InProgress", bucket: str = BUCKET, tags: Mapping[str, str] | None = None
    ) -> None:
        """Let SageMaker know the recorded job, as its events describe it."""
        described = event("training_job_in_progress")["detail"]
        self.clients.sagemaker.create_training_job(
            TrainingJobName=JOB,
            RoleArn=described["RoleArn"],
            AlgorithmSpecification=described["AlgorithmSpecification"],
            OutputDataConfig={"S3OutputPath": described["OutputDataConfig"]["S3OutputPath"]},
            ResourceConfig=described["ResourceConfig"],
            StoppingCondition=described["StoppingCondition"],
            Tags=[{"Key": key, "Value": value} for key, value in (OPTED_IN if tags is None else tags).items()],
        )
        # moto takes no profiler configuration and knows no job that has not ended.
        profiler = {"S3OutputPath": f"s3://{bucket}/runs", "ProfilingIntervalInMilliseconds": 500}
        vars(self._training_job)["profiler_config"] = profiler
        self.set_status(status)

    def describe_with(self, **fields: object) -> None:
        """Let SageMaker say something else of the recorded job."""
        vars(self._training_job).update(fields)

    @property
    def _of_canary_job(self) -> dict[str, str]:
        if not self.canary_job:
            return {}
        return {
            "CANARY_IMAGE": "111122223333.dkr.ecr.us-east-1.amazonaws.com/sleeper:1",
            "CANARY_ROLE_ARN": f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/CanaryJobRole",
            "SETTINGS_PATH": SETTINGS_PATH,
            "STACK_NAME": "TrainGuard",
            "STOP_SWITCH_PARAMETER": STOP_SWITCH,
            "STOP_SWITCH_OVERRIDE_PARAMETER": STOP_SWITCH_OVERRIDE,
            "BRAKES_PARAMETER": BRAKES,
        }

    def plant_jobs(self) -> None:
        """Let the canary be a training job."""
        self.canary_job = True
        self.clients.ssm.put_parameter(Name=f"{SETTINGS_PATH}{CANARY_MARK}", Value="none", Type="String")

    def set_status(self, status: str, secondary_status: str | None = None, *, name: str = JOB) -> None:
        """Let a job come into a status."""
        job = sagemaker_backends[DEFAULT_ACCOUNT_ID][REGION].training_jobs[name]
        vars(job).update(
            training_job_status=status,
            secondary_status=secondary_status or status,
            training_end_time=job.creation_time if status in {"Completed", "Failed", "Stopped"} else None,
        )

    def _answer_stops(self) -> None:
        """Let SageMaker stop a job: moto knows no such call."""
        made = vars(BaseClient)["_make_api_call"]

        def call(client: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
            if operation != "StopTrainingJob":
                return made(client, operation, arguments)
            if arguments["TrainingJobName"] not in sagemaker_backends[DEFAULT_ACCOUNT_ID][REGION].training_jobs:
                raise ClientError({"Error": {"Code": "ValidationException", "Message": "unknown"}}, operation)
            self.set_status("Stopping", name=arguments["TrainingJobName"])
            return {}

        self._monkeypatch.setattr(BaseClient, "_make_api_call", call)

    def throw_stop_switch(self, value: str, parameter: str = STOP_SWITCH) -> None:
        """Set the stop switch, or its override."""
        self.clients.ssm.put_parameter(Name=parameter, Value=value, Type="String", Overwrite=True)

    def tasks(self) -> dict[str, Any]:
        """Take our own tasks out of the queue, as the batch in which they would be delivered."""
        return ringing(encode_task(task) for task in self.world.drain())

    @property
    def _training_job(self) -> FakeTrainingJob:
        return sagemaker_backends[DEFAULT_ACCOUNT_ID][REGION].training_jobs[JOB]


def load_handler(name: str) -> ModuleType:
    """Execute the module of a function again."""
    path = ROOT / "lambdas" / name / "handler.py"
    spec = spec_from_file_location(f"{name}_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
