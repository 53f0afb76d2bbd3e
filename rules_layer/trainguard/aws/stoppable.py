"""What a job runs on, as AWS Batch and EC2 describe it, and what limits its stop."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.aws.aws_errors import translated, unless
from trainguard.aws.brakes import SsmBrakes
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.cluster_desk import DynamoClusterDesk
from trainguard.aws.dynamodb.fire_path import region_of
from trainguard.aws.environment import Environment
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.ssm import SsmStopSwitch
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ResourceState
from trainguard.stack.actions.cluster_agents import resource_states
from trainguard.stack.actions.stop_resources import StopServices
from trainguard.stack.actions.stop_switch import StopSwitches
from trainguard.stack.organisation.stop_limit import Admission, StopRequest

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_GROUP_TAG = "aws:autoscaling:groupName"
_GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})


def batch_jobs(client: Any, identities: Sequence[str]) -> list[ResourceState]:
    """Return the known jobs of AWS Batch; raises PortUnavailableError."""
    with translated("AWS Batch", "DescribeJobs"):
        answer = client.describe_jobs(jobs=list(identities))
    return [_batch_job(each) for each in answer.get("jobs", [])]


def instances(client: Any, identities: Sequence[str]) -> list[ResourceState]:
    """Return the instances, none where one is not known; raises PortUnavailableError."""
    with translated("EC2", "DescribeInstances"):
        answer = unless(_GONE, lambda: client.describe_instances(InstanceIds=list(identities))) or {}
    return [_instance(each) for held in answer.get("Reservations", []) for each in held.get("Instances", [])]


def _batch_job(described: Mapping[str, Any]) -> ResourceState:
    started_ms = described.get("startedAt")
    return ResourceState(
        kind="batch-job",
        identity=described["jobId"],
        tags=dict(described.get("tags") or {}),
        status=described.get("status", "of unknown status"),
        runs=described.get("status") == "RUNNING",
        started_at=started_ms / 1_000.0 if isinstance(started_ms, int) and started_ms > 0 else None,
        objection="was terminated already" if described.get("isTerminated") else None,
    )


def _instance(described: Mapping[str, Any]) -> ResourceState:
    status = described.get("State", {}).get("Name", "of unknown status")
    launched = described.get("LaunchTime")
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    return ResourceState(
        kind="instance",
        identity=described["InstanceId"],
        tags=tags,
        status=status,
        runs=status == "running",
        started_at=None if launched is None else launched.timestamp(),
        objection=_objection(described, tags),
    )


def _objection(described: Mapping[str, Any], tags: Mapping[str, str]) -> str | None:
    """Return why a stop would not end what the instance costs, or do more than that."""
    if _GROUP_TAG in tags:
        return "belongs to an Auto Scaling group, which would replace it"
    if described.get("InstanceLifecycle") in {"spot", "capacity-block"}:
        return f"is of the lifecycle {described['InstanceLifecycle']}, which cannot be stopped and started again"
    return None


def stop_switches(environment: Environment, clients: Clients) -> Callable[[], StopSwitches]:
    """Return what reads the stop switch, its override and the brakes; it raises PortUnavailableError."""
    switch = SsmStopSwitch(
        client=clients.ssm,
        parameter=environment.stop_switch_parameter,
        override=environment.stop_switch_override_parameter,
    )
    brakes = SsmBrakes(client=lambda: clients.ssm, parameter=environment.brakes_parameter)
    return lambda: replace(switch.read(), brakes=brakes.read())


def stop_services(environment: Environment, clients: Clients) -> StopServices:
    """Return what a decision about a stop asks; each service is met at the first question alone."""
    desk = DynamoClusterDesk(client=clients.dynamodb, table=environment.bookkeeping_table)
    return StopServices(
        training_job=SageMakerTrainingJobs(client=lambda: clients.sagemaker).describe,
        resources={
            "batch-job": lambda identities: batch_jobs(clients.batch, identities),
            "instance": lambda identities: instances(clients.ec2, identities),
            "workload": lambda identities: resource_states(desk, "workload", identities, time.time()),
            "node": lambda identities: resource_states(desk, "node", identities, time.time()),
        },
        switches=stop_switches(environment, clients),
        kinds=frozenset(environment.stoppable_resources.split(",")) - {"none"},
    )


# Bytes of a failed function's answer.
_SHOWN = 300


class LambdaStopLimit:
    """Asks the central account's function, by ARN, whether the organisation admits one more stop."""

    def __init__(self, *, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def ask(self, request: StopRequest) -> Admission:
        """Return the answer; raises PortUnavailableError for none and for one that is no admission."""
        with translated("Lambda", "Invoke"):
            answer = self._client.invoke(FunctionName=self._function, Payload=msgspec.json.encode(request))
            body = answer["Payload"].read()
        if "FunctionError" in answer:
            raise PortUnavailableError(
                "Lambda", "Invoke", f"{self._function} failed: {body[:_SHOWN].decode(errors='replace')}"
            )
        try:
            return msgspec.json.decode(body, type=Admission)
        except msgspec.MsgspecError as fault:
            raise PortUnavailableError(
                "Lambda", "Invoke", f"{self._function} answered no admission: {fault}"
            ) from fault


def central_limit(clients: Clients) -> LambdaStopLimit | None:
    """Return the limit of a member of an organisation; the function may lie in another Region."""
    function = os.environ.get("STOP_LIMIT_FUNCTION")
    if not function:
        return None
    return LambdaStopLimit(client=clients.in_region(region_of(function)).questions, function=function)
