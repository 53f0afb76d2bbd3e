"""Findings of cdk-nag that stand, each at its construct and with its reason; any other finding stops the synthesis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, cast

from aws_cdk import Acknowledgment, Stack, Validations

from infra.config import RUN_FILES, DeploymentConfig
from infra.constructs import captures, kernels_machine
from infra.constructs.canary import CANARY_PREFIX
from infra.constructs.function import TrainGuardFunction
from infra.constructs.live_sources import LIVE_KEYS, RUN_FILE_KEYS, services_by_kind
from infra.constructs.storage import Storage
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.kernels.captures.keys import TRACE_READS

if TYPE_CHECKING:
    from constructs import Construct, IConstruct

_TRAINING_JOBS = "arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:training-job/*"
_EXECUTIONS = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution"
_LOG_GROUPS = "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:log-group"
_PARAMETERS = "arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>:parameter"


@dataclass(frozen=True, slots=True)
class Accepted:
    """One finding that stands: where, which, and why."""

    path: str
    rule: str
    reason: str


def _wildcard(resource: str) -> str:
    return f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]"


_ALL = _wildcard("*")
_STAR = "Serverless::Serverless-LambdaStarPermissions"
_NO_DLQ = "Serverless::Serverless-LambdaDLQ"
_NO_REDRIVE = "Serverless::Serverless-SQSRedrivePolicy"
_NO_ASYNC_DESTINATION = "Serverless::Serverless-LambdaAsyncFailureDestination"

_NO_RESOURCES = (
    "Only X-Ray's PutTraceSegments and PutTelemetryRecords where traces are sent, and in a VPC what connects a "
    "function to its subnets, are allowed on *: they know no resources."
)
_LOG_DELIVERY = (
    "Only CloudWatch Logs' delivery actions, through which Step Functions writes its execution log, and X-Ray's "
    "actions where traces are sent, are allowed on *: neither know resources."
)
_AND_LOOKS = (
    " Where stops outside SageMaker are on, so are calls that describe: batch:DescribeJobs, ec2:DescribeInstances."
)
_ANY_JOB_READ = "Which jobs write profiles is known only when they do; the statement reads descriptions and tags alone."
_ANY_JOB_STOP = (
    "Jobs are not known at deployment: the condition on the tag trainguard:stop-on-fire narrows the statement to jobs "
    "whose owners opted in."
)
_CALLED_BY_MACHINE = (
    "Only a state machine calls it, synchronously: the execution retries, catches and records a failure."
)
_UNTRACED = (
    "A trace an invocation costs a fifth of all that a node costs; logs and metrics say where time goes, and "
    "-c tracing=active has them sent."
)
_LOOK_AT_RESOURCES = frozenset({"decide_stop", "stop_job"})
"""Their roles may describe what is stopped outside SageMaker."""

_OWN_EXECUTIONS = "Executions of the machine's own Distributed Map, whose names Step Functions gives."

_UNLOGGED_BUCKET = Accepted(
    "Storage/Profiles/Resource",
    "AwsSolutions::AwsSolutions-S1",
    "Access logs would be as many objects as the profiles themselves, for telemetry that expires in weeks; "
    "CloudTrail's data events log the bucket where an account asks for it.",
)

ACCEPTED = (
    Accepted("Actions/DecideStop/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),
    Accepted("Actions/DecideStop/Function/Resource", _NO_DLQ, _CALLED_BY_MACHINE),
    Accepted("Actions/FireRole/Resource", _ALL, _LOG_DELIVERY),
    Accepted("Actions/RecordFire/Function/Resource", _NO_DLQ, _CALLED_BY_MACHINE),
    Accepted("Actions/SendAlert/Function/Resource", _NO_DLQ, _CALLED_BY_MACHINE),
    Accepted("Actions/StopJob/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_STOP),
    Accepted("Actions/StopJob/Function/Resource", _NO_DLQ, _CALLED_BY_MACHINE),
    Accepted("Captures/JoinCapture/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),
    Accepted("Evaluation/EvaluateObjects/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),
    Accepted(
        "Evaluation/EvaluateObjects/Function/Resource",
        _NO_DLQ,
        "Only its queue invokes it: a message that fails five times goes to the queue's own dead letters.",
    ),
    Accepted(
        "Evaluation/DoorbellsToEvaluateObjects/Resource",
        "Serverless::Serverless-LambdaEventSourceMappingDestination",
        "Lambda offers failure destinations for streams; an SQS source has its queue's redrive policy instead.",
    ),
    Accepted("Evaluation/ReconcileJob/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),
    Accepted(
        "Evaluation/ReconcileJob/Function/Resource",
        _NO_DLQ,
        "Its failure destination keeps an event that failed, with the reason; a dead-letter queue would keep it twice.",
    ),
    Accepted(
        "Evaluation/Scheduler/Function/EventInvokeConfig/Resource",
        _NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed scheduler run; a destination beside it would keep it twice.",
    ),
    Accepted(
        "Ingest/DoorbellDeadLetters/Resource",
        _NO_REDRIVE,
        "It is a dead-letter queue: what it holds waits for a person, for whom an alarm fires.",
    ),
    Accepted(
        "Ingest/EventDeadLetters/Resource",
        _NO_REDRIVE,
        "It is a dead-letter queue: what it holds waits for a person, for whom an alarm fires.",
    ),
    Accepted("Lifecycle/JobLifecycle/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),
    Accepted(
        "Lifecycle/JobLifecycle/Function/EventInvokeConfig/Resource",
        _NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed event as it came, ready to be sent again.",
    ),
    *(
        Accepted(f"{function}/Function/Resource", _NO_DLQ, _CALLED_BY_MACHINE)
        for function in (
            "Reports/PlanReport",
            "Reports/DigestProfile",
            "Reports/BuildReport",
            "Captures/PlanCapture",
            "Captures/DigestTrace",
            "Captures/JoinCapture",
        )
    ),
    Accepted("Captures/KernelsRole/Resource", _ALL, _LOG_DELIVERY),
    Accepted("Reports/ReportRole/Resource", _ALL, _LOG_DELIVERY),
)

_CANARY_ROLE = "Canary/Canary/Role/Resource"
_ONLY_CANARIES = "A canary's folder is named after its day; the prefix lets it reach no profile of a real job."
_CANARY = (
    Accepted(
        "Canary/Canary/Function/EventInvokeConfig/Resource",
        _NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed step, and an alarm fires for a canary that was not looked at.",
    ),
)

_VERDICT = (
    Accepted(
        "Verdict/Verdict/Function/Resource",
        _NO_DLQ,
        "Only its URL invokes it, synchronously: the caller gets the failure.",
    ),
)

_STOPPED = {
    "batch-job": "arn:<AWS::Partition>:batch:<AWS::Region>:<AWS::AccountId>:job/*",
    "instance": "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*",
}

_DIGEST = (
    Accepted(
        "WeeklyDigest/WeeklyDigest/Function/EventInvokeConfig/Resource",
        _NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed digest, ready to be sent again.",
    ),
)


def _findings_of_live_sources(config: DeploymentConfig, bucket: str) -> tuple[Accepted, ...]:
    services = services_by_kind(config.live_sources)
    if not services:
        return ()
    role = "LiveSources/PollSource/Role/Resource"
    keys = "A job's folder is known only when the job runs; nothing beside these keys can be read or written."
    streams = "Log streams are named after jobs; the group is one that the operator listed."
    reached = [*LIVE_KEYS, *((RUN_FILE_KEYS,) if RUN_FILES in services else ())]
    return (
        *(Accepted(role, _wildcard(f"{bucket}/{each}"), keys) for each in reached),
        *(Accepted(role, _wildcard(f"{_LOG_GROUPS}:{name}:*"), streams) for name in services.get("logs", ())),
        *((Accepted(role, _wildcard(_TRAINING_JOBS), _ANY_JOB_READ),) if "logs" in services else ()),
        Accepted(
            "LiveSources/PollSource/Function/EventInvokeConfig/Resource",
            _NO_ASYNC_DESTINATION,
            "The function's dead-letter queue keeps a failed event; the next scheduler run asks for what it left.",
        ),
    )


def _findings_of_roles(config: DeploymentConfig, functions: Sequence[TrainGuardFunction]) -> Iterator[Accepted]:
    for part in functions:
        looks = part.service_name in _LOOK_AT_RESOURCES
        if config.traced or config.subnet_ids or (looks and config.stoppable):
            _, _, path = str(part.node.path).partition("/")
            for rule in (_ALL, _STAR):
                yield Accepted(f"{path}/Role/Resource", rule, _NO_RESOURCES + (_AND_LOOKS if looks else ""))


def _findings_without_traces(functions: Sequence[TrainGuardFunction]) -> Iterator[Accepted]:
    for part in functions:
        _, _, path = str(part.node.path).partition("/")
        yield Accepted(f"{path}/Function/Resource", "Serverless::Serverless-LambdaTracing", _UNTRACED)
    for machine in ("Actions/Fire", "Captures/Kernels", "Reports/Report"):
        yield Accepted(machine, "AwsSolutions::AwsSolutions-SF2", _UNTRACED)
        yield Accepted(machine, "Serverless::Serverless-StepFunctionStateMachineXray", _UNTRACED)


def findings_that_stand(
    storage: Storage, config: DeploymentConfig, functions: Sequence[TrainGuardFunction]
) -> tuple[Accepted, ...]:
    """Return all findings that stand, with those of ``functions``, and those that name the stack or its bucket."""
    stack_name = _in_findings(storage, config.stack_name)
    executions = f"{_EXECUTIONS}:{stack_name}-Report"
    bucket = f"arn:<AWS::Partition>:s3:::{_in_findings(storage, storage.bucket_name)}"
    report = _wildcard(f"{bucket}/*/rule-output/TrainGuardReport/*")
    parts = _wildcard(f"{bucket}/*/rule-output/TrainGuardReport/parts/*")
    keys = _wildcard(f"{bucket}/*/rule-output/TrainGuardReport/parts/*/keys/*")
    run_part = _wildcard(f"{bucket}/*/rule-output/TrainGuardReport/parts/*/training.json")
    profiles = _wildcard(f"{bucket}/*/profiler-output/*")
    settings = _wildcard(f"{_PARAMETERS}/{stack_name}/settings/*")
    named = "People put settings below this path, and name them in a job's tag; nothing else can be read."
    written = "One folder a job, whose name is known only when its report is written; nothing else can be reached."
    read = "One folder a job, whose name is known only when its objects come; nothing else can be read."
    objects = (
        *_findings_of_captures(bucket, stack_name, written, read),
        Accepted("Reports/BuildReport/Role/Resource", report, written),
        Accepted("Reports/BuildReport/Role/Resource", parts, written),
        Accepted("Reports/PlanReport/Role/Resource", parts, written),
        Accepted("Reports/DigestProfile/Role/Resource", parts, written),
        Accepted("Reports/DigestProfile/Role/Resource", keys, written),
        Accepted("Reports/ReportRole/Resource", parts, written),
        Accepted("Reports/DigestProfile/Role/Resource", run_part, written),
        Accepted("Reports/DigestProfile/Role/Resource", profiles, read),
        *(
            Accepted("Reports/DigestProfile/Role/Resource", _wildcard(f"{bucket}/{keys}"), read)
            for keys in TRAINING_HEALTH.reads
        ),
        *(
            Accepted("Evaluation/EvaluateObjects/Role/Resource", _wildcard(f"{bucket}/{keys}"), read)
            for family in FAMILIES
            for keys in family.reads
        ),
        Accepted("Evaluation/EvaluateObjects/Role/Resource", _wildcard(f"{bucket}/*/job.json"), read),
        Accepted("Evaluation/ReconcileJob/Role/Resource", _wildcard(f"{bucket}/*/job.json"), read),
        Accepted("Evaluation/EvaluateObjects/Role/Resource", settings, named),
        Accepted("Evaluation/ReconcileJob/Role/Resource", settings, named),
        Accepted("Lifecycle/JobLifecycle/Role/Resource", settings, named),
        Accepted("Reports/ReportRole/Resource", _wildcard(f"{executions}:*"), _OWN_EXECUTIONS),
        Accepted("Reports/ReportRole/Resource", _wildcard(f"{executions}/Digests:*"), _OWN_EXECUTIONS),
    )
    canaries = Accepted(_CANARY_ROLE, _wildcard(f"{bucket}/{CANARY_PREFIX}*"), _ONLY_CANARIES)
    watching = (*_CANARY, canaries) if config.canary else ()
    asked = (*(_VERDICT if config.verdict_endpoint else ()), *(_DIGEST if config.weekly_digest else ()))
    live = _findings_of_live_sources(config, bucket)
    stopped = (_wildcard(_STOPPED[kind]) for kind in config.stoppable)
    stops = tuple(Accepted("Actions/StopJob/Role/Resource", each, _ANY_JOB_STOP) for each in stopped)
    deliveries = Accepted(
        "Actions/Delivery/Role/Resource",
        _wildcard(f"{_LOG_GROUPS}:sns/<AWS::Region>/<AWS::AccountId>/{stack_name}-*"),
        "The topic names the role, so the role cannot name the topic: it reaches the logs of the stack's topics.",
    )
    return (
        *ACCEPTED,
        deliveries,
        *_findings_of_roles(config, functions),
        *(() if config.traced else _findings_without_traces(functions)),
        *objects,
        *watching,
        *asked,
        *live,
        *stops,
        *((_UNLOGGED_BUCKET,) if storage.bucket else ()),
    )


def _findings_of_captures(bucket: str, stack_name: str, written: str, read: str) -> Iterator[Accepted]:
    executions = f"{_EXECUTIONS}:{stack_name}-Kernels"
    for role, keys in {
        "PlanCapture/Role": (captures.RUNS,),
        "DigestTrace/Role": (captures.DIGESTS,),
        "JoinCapture/Role": (captures.RUNS, captures.DIGESTS, captures.KERNELS, captures.NEWEST),
        "KernelsRole": (captures.RUNS,),
    }.items():
        for each in keys:
            yield Accepted(f"Captures/{role}/Resource", _wildcard(f"{bucket}/{each}"), written)
    for traces in TRACE_READS:
        yield Accepted("Captures/DigestTrace/Role/Resource", _wildcard(f"{bucket}/{traces}"), read)
    for own in (f"{executions}:*", f"{executions}/{kernels_machine.MAP_LABEL}:*"):
        yield Accepted("Captures/KernelsRole/Resource", _wildcard(own), _OWN_EXECUTIONS)


def acknowledge(stack: Stack, findings: tuple[Accepted, ...]) -> None:
    """Acknowledge each finding at its construct; raises when a construct is gone, so that no reason outlives it."""
    for finding in findings:
        construct = reduce(
            lambda scope, part: scope.node.find_child(part), finding.path.split("/"), cast("IConstruct", stack)
        )
        Validations.of(construct).acknowledge(Acknowledgment(id=finding.rule, reason=finding.reason))


def _in_findings(scope: "Construct", name: str) -> str:
    """Return a name as cdk-nag writes it: one that CloudFormation gives by what it refers to, another as it is."""
    resolved = Stack.of(scope).resolve(name)
    return f"<{resolved['Ref']}>" if isinstance(resolved, dict) else str(resolved)
