"""Findings of cdk-nag that stand, each at its construct and with its reason; any other finding stops the synthesis."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Stack, Validations

from infra.config import RUN_FILES, DeploymentConfig
from infra.constructs import captures, kernels_machine, report_machine
from infra.constructs.function import TrainGuardFunction
from infra.constructs.live_sources import LIVE_KEYS, RUN_FILE_KEYS, services_by_kind
from infra.constructs.storage import Storage
from trainguard.core.canary_name import CANARY_PREFIX
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.hangs.files import HANG_READS, KEPT_HANG
from trainguard.kernels.captures.keys import TRACE_READS

if TYPE_CHECKING:
    from constructs import Construct, IConstruct

_TRAINING_JOBS = "arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:training-job/*"
_CANARY_JOBS = f"{_TRAINING_JOBS[:-1]}{CANARY_PREFIX}*"
_EXECUTIONS = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution"
_LOG_GROUPS = "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:log-group"
_PARAMETERS = "arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>:parameter"


def _wildcard(resource: str) -> str:
    return f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]"


_ALL = _wildcard("*")
_STARS = (_ALL, "Serverless::Serverless-LambdaStarPermissions")
NO_DLQ = "Serverless::Serverless-LambdaDLQ"
NO_ASYNC_DESTINATION = "Serverless::Serverless-LambdaAsyncFailureDestination"

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
_OLDER_RUNTIME = ("AwsSolutions::AwsSolutions-L1", "Serverless::Serverless-LambdaLatestVersion")
_TESTED_RUNTIME = "The functions run on the newest Python that tests and emulator run on, not on an untested one."

# Their roles may describe what is stopped outside SageMaker.
_LOOK_AT_RESOURCES = frozenset({"decide_stop", "stop_job"})

_MACHINE_ROLES = ("Actions/FireRole", "Captures/KernelsRole", "Reports/ReportRole")

_REPORT = "*/rule-output/TrainGuardReport/"
_WRITES = {
    "Captures/PlanCapture/Role": (captures.RUNS,),
    "Captures/DigestTrace/Role": (captures.DIGESTS,),
    "Captures/JoinCapture/Role": (captures.RUNS, captures.DIGESTS, captures.KERNELS, captures.NEWEST),
    "Captures/KernelsRole": (captures.RUNS,),
    "Reports/BuildReport/Role": (f"{_REPORT}*", f"{_REPORT}parts/*"),
    "Reports/PlanReport/Role": (f"{_REPORT}parts/*",),
    "Reports/DigestProfile/Role": tuple(f"{_REPORT}parts/*{each}" for each in ("", "/keys/*", "/training.json")),
    "Reports/ReportRole": (f"{_REPORT}parts/*",),
}
_OF_A_JOB = ("*/job.json", KEPT_HANG)
# Keys of the bucket by the roles that reach them; others are refused by the synthesis.
_READS = {
    "Captures/DigestTrace/Role": TRACE_READS,
    "Reports/DigestProfile/Role": ("*/profiler-output/*", *TRAINING_HEALTH.reads),
    "Evaluation/EvaluateObjects/Role": (*(keys for family in FAMILIES for keys in family.reads), *_OF_A_JOB),
    "Evaluation/ReconcileJob/Role": _OF_A_JOB,
    "Reports/BuildReport/Role": (*HANG_READS, KEPT_HANG),
}

_OWN_EXECUTIONS = "Executions of the machine's own Distributed Map, whose names Step Functions gives."

# One finding that stands: the construct's path, the rule, and the reason.
Accepted = tuple[str, str, str]

ACCEPTED: tuple[Accepted, ...] = (
    *(
        (f"{function}/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_READ)
        for function in (
            "Actions/DecideStop",
            "Captures/JoinCapture",
            "Evaluation/EvaluateObjects",
            "Evaluation/ReconcileJob",
            "Lifecycle/JobLifecycle",
        )
    ),
    ("Actions/StopJob/Role/Resource", _wildcard(_TRAINING_JOBS), _ANY_JOB_STOP),
    *(
        (f"{function}/Function/Resource", NO_DLQ, _CALLED_BY_MACHINE)
        for function in (
            "Actions/DecideStop",
            "Actions/RecordFire",
            "Actions/SendAlert",
            "Actions/StopJob",
            "Reports/PlanReport",
            "Reports/DigestProfile",
            "Reports/BuildReport",
            "Captures/PlanCapture",
            "Captures/DigestTrace",
            "Captures/JoinCapture",
        )
    ),
    *((f"{role}/Resource", _ALL, _LOG_DELIVERY) for role in _MACHINE_ROLES),
    (
        "Evaluation/EvaluateObjects/Function/Resource",
        NO_DLQ,
        "Only its queue invokes it: a message that fails five times goes to the queue's own dead letters.",
    ),
    (
        "Evaluation/DoorbellsToEvaluateObjects/Resource",
        "Serverless::Serverless-LambdaEventSourceMappingDestination",
        "Lambda offers failure destinations for streams; an SQS source has its queue's redrive policy instead.",
    ),
    (
        "Evaluation/ReconcileJob/Function/Resource",
        NO_DLQ,
        "Its failure destination keeps an event that failed, with the reason; a dead-letter queue would keep it twice.",
    ),
    (
        "Evaluation/Scheduler/Function/EventInvokeConfig/Resource",
        NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed scheduler run; a destination beside it would keep it twice.",
    ),
    *(
        (
            f"Ingest/{queue}/Resource",
            "Serverless::Serverless-SQSRedrivePolicy",
            "It is a dead-letter queue: what it holds waits for a person, for whom an alarm fires.",
        )
        for queue in ("DoorbellDeadLetters", "EventDeadLetters")
    ),
    (
        "Lifecycle/JobLifecycle/Function/EventInvokeConfig/Resource",
        NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed event as it came, ready to be sent again.",
    ),
)

_NAMED = "People put settings below this path, and name them in a job's tag; nothing else can be read."
_WRITTEN = "One folder a job, whose name is known only when its report is written; nothing else can be reached."
_READ = "One folder a job, whose name is known only when its objects come; nothing else can be read."


def _findings_of_live_sources(config: DeploymentConfig, bucket: str) -> Iterator[Accepted]:
    services, role = services_by_kind(config.live_sources), "LiveSources/PollSource/Role/Resource"
    keys = "A job's folder is known only when the job runs; nothing beside these keys can be read or written."
    streams = "Log streams are named after jobs; the group is one that the operator listed."
    for each in (*LIVE_KEYS, *((RUN_FILE_KEYS,) if RUN_FILES in services else ())):
        yield role, _wildcard(f"{bucket}/{each}"), keys
    for name in services.get("logs", ()):
        yield role, _wildcard(f"{_LOG_GROUPS}:{name}:*"), streams
    if "logs" in services:
        yield role, _wildcard(_TRAINING_JOBS), _ANY_JOB_READ
    reason = "The function's dead-letter queue keeps a failed event; the next scheduler run asks for what it left."
    yield "LiveSources/PollSource/Function/EventInvokeConfig/Resource", NO_ASYNC_DESTINATION, reason


def findings_of_functions(config: DeploymentConfig, functions: Sequence[TrainGuardFunction]) -> Iterator[Accepted]:
    for part in functions:
        _, _, path = str(part.node.path).partition("/")
        for rule in _OLDER_RUNTIME:
            yield f"{path}/Function/Resource", rule, _TESTED_RUNTIME
        looks = part.service_name in _LOOK_AT_RESOURCES
        if config.traced or config.subnet_ids or (looks and config.stoppable_by_aws):
            for rule in _STARS:
                yield f"{path}/Role/Resource", rule, _NO_RESOURCES + (_AND_LOOKS if looks else "")
        if not config.traced:
            yield f"{path}/Function/Resource", "Serverless::Serverless-LambdaTracing", _UNTRACED


def _findings_of_machines(config: DeploymentConfig) -> Iterator[Accepted]:
    for machine in () if config.traced else ("Actions/Fire", "Captures/Kernels", "Reports/Report"):
        yield machine, "AwsSolutions::AwsSolutions-SF2", _UNTRACED
        yield machine, "Serverless::Serverless-StepFunctionStateMachineXray", _UNTRACED


def _findings_of_canary(config: DeploymentConfig, bucket: str) -> Iterator[Accepted]:
    if not config.canary:
        return
    reason = "A canary's folder is named after its day; the prefix lets it reach no profile of a real job."
    yield "Canary/Canary/Role/Resource", _wildcard(f"{bucket}/{CANARY_PREFIX}*"), reason
    yield (
        "Canary/Canary/Function/EventInvokeConfig/Resource",
        NO_ASYNC_DESTINATION,
        "The function's dead-letter queue keeps a failed step, and an alarm fires for a canary that was not looked at.",
    )
    if config.canary_image:
        reason = "A canary's job is named after its day; the stack's name in a tag keeps it to those of this stack."
        yield "Canary/Canary/Role/Resource", _wildcard(_CANARY_JOBS), reason
        reason = "The output of a job lies below its name, which the day gives; nothing else can be written."
        yield "Canary/JobRole/Resource", _wildcard(f"{bucket}/{CANARY_PREFIX}*/output/*"), reason
        yield "Canary/JobRole/Resource", _ALL, "Only ecr:GetAuthorizationToken is allowed on *: it knows no resources."


def _findings_of_options(config: DeploymentConfig, bucket: str) -> Iterator[Accepted]:
    if config.gradual:
        yield (
            "Rollout/Role/Resource",
            _ALL,
            "Only DescribeAlarms, by which CodeDeploy looks at alarms, is allowed on *.",
        )
    if config.verdict_endpoint:
        reason = "Only its URL invokes it, synchronously: the caller gets the failure."
        yield "Verdict/Verdict/Function/Resource", NO_DLQ, reason
    if config.weekly_digest:
        reason = "The function's dead-letter queue keeps a failed digest, ready to be sent again."
        yield "WeeklyDigest/WeeklyDigest/Function/EventInvokeConfig/Resource", NO_ASYNC_DESTINATION, reason
    if config.ops_items:
        yield (
            "OpsItems/OpenOpsItems/Function/EventInvokeConfig/Resource",
            NO_ASYNC_DESTINATION,
            "The function's dead-letter queue keeps a failed event, ready to be sent again.",
        )
        for rule in () if config.traced or config.subnet_ids else _STARS:
            yield "OpsItems/OpenOpsItems/Role/Resource", rule, "ssm:CreateOpsItem: an OpsItem has no ARN before."
    if config.central_bus_arn:
        reason = "The function's dead-letter queue keeps a failed event; the next hour states the same jobs."
        yield "Forwarding/SendStatements/Function/EventInvokeConfig/Resource", NO_ASYNC_DESTINATION, reason
    if config.live_sources:
        yield from _findings_of_live_sources(config, bucket)
    stopped = {
        "batch-job": "batch:<AWS::Region>:<AWS::AccountId>:job/*",
        "instance": "ec2:<AWS::Region>:<AWS::AccountId>:instance/*",
    }
    for kind in config.stoppable_by_aws:
        yield "Actions/StopJob/Role/Resource", _wildcard(f"arn:<AWS::Partition>:{stopped[kind]}"), _ANY_JOB_STOP


def findings_that_stand(
    storage: Storage, config: DeploymentConfig, functions: Sequence[TrainGuardFunction]
) -> tuple[Accepted, ...]:
    """Return all findings that stand, with those of ``functions``, and those that name the stack or its bucket."""
    stack_name = _in_findings(storage, config.stack_name)
    bucket = f"arn:<AWS::Partition>:s3:::{_in_findings(storage, storage.bucket_name)}"
    deliveries = (
        "Actions/Delivery/Role/Resource",
        _wildcard(f"{_LOG_GROUPS}:sns/<AWS::Region>/<AWS::AccountId>/{stack_name}-*"),
        "The topic names the role, so the role cannot name the topic: it reaches the logs of the stack's topics.",
    )
    access_logs = (
        "Storage/Profiles/Resource",
        "AwsSolutions::AwsSolutions-S1",
        (
            "Access logs would be as many objects as the profiles themselves, for telemetry that expires in weeks; "
            "CloudTrail's data events log the bucket where an account asks for it."
        ),
    )
    settings = _wildcard(f"{_PARAMETERS}/{stack_name}/settings/*")
    executions = {
        "Captures/KernelsRole": (f"{stack_name}-Kernels", kernels_machine.MAP_LABEL),
        "Reports/ReportRole": (f"{stack_name}-Report", report_machine.MAP_LABEL),
    }
    return (
        *ACCEPTED,
        deliveries,
        *findings_of_functions(config, functions),
        *_findings_of_machines(config),
        *(
            (f"{role}/Resource", _wildcard(f"{bucket}/{keys}"), reason)
            for reason, held in ((_WRITTEN, _WRITES), (_READ, _READS))
            for role, listed in held.items()
            for keys in listed
        ),
        *(
            (f"{function}/Role/Resource", settings, _NAMED)
            for function in ("Evaluation/EvaluateObjects", "Evaluation/ReconcileJob", "Lifecycle/JobLifecycle")
        ),
        *(
            (f"{role}/Resource", _wildcard(f"{_EXECUTIONS}:{own}:*"), _OWN_EXECUTIONS)
            for role, (name, label) in executions.items()
            for own in (name, f"{name}/{label}")
        ),
        *_findings_of_canary(config, bucket),
        *_findings_of_options(config, bucket),
        *((access_logs,) if storage.bucket else ()),
    )


def acknowledge(stack: Stack, findings: tuple[Accepted, ...]) -> None:
    """Acknowledge each finding at its construct; raises when a construct is gone, so that no reason outlives it."""

    @cache  # each step is a call of another process
    def found(path: str) -> "IConstruct":
        scope, _, part = path.rpartition("/")
        return (found(scope) if scope else stack).node.find_child(part)

    of_path = defaultdict(list)
    for path, rule, reason in findings:
        of_path[path].append(Acknowledgment(id=rule, reason=reason))
    for path, acknowledged in of_path.items():
        Validations.of(found(path)).acknowledge(*acknowledged)


def _in_findings(scope: "Construct", name: str) -> str:
    """Return a name as cdk-nag writes it: one that CloudFormation gives by what it refers to, another as it is."""
    resolved = Stack.of(scope).resolve(name)
    return f"<{resolved['Ref']}>" if isinstance(resolved, dict) else str(resolved)
