"""Rights of the stack's own roles on the objects of the bucket, whoever asks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.aws.dynamodb.jobs import ACTIVE_JOBS_INDEX
from trainguard.cli.doctor.check import CheckResult, UnansweredError, Why, asking, fail, unless, warn
from trainguard.cli.doctor.site import Site
from trainguard.core.units import counted
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.kernels.captures.keys import TRACE_READS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef
    from mypy_boto3_iam.type_defs import ContextEntryTypeDef, EvaluationResultTypeDef

_SIMULATE = "iam:SimulatePrincipalPolicy"


@dataclass(frozen=True, slots=True)
class Denial:
    """An action that a role may not do, and what keeps it from it."""

    action: str
    why: str


def denials(
    site: Site, role_arn: str, actions: Sequence[str], resource: str, context: Mapping[str, str]
) -> list[Denial]:
    """Return which ``actions``, in IAM's names, a role may not do; UnansweredError unless IAM answers for all."""
    entries: list[ContextEntryTypeDef] = [
        {"ContextKeyName": name, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for name, value in context.items()
    ]
    with asking(_SIMULATE):
        results = site.clients.iam.simulate_principal_policy(
            PolicySourceArn=role_arn, ActionNames=list(actions), ResourceArns=[resource], ContextEntries=entries
        )["EvaluationResults"]
    silent = sorted(set(actions) - {result["EvalActionName"] for result in results})
    if silent:
        raise UnansweredError(_SIMULATE, f"it decided nothing about {', '.join(silent)}", Why.OTHER)
    return [Denial(result["EvalActionName"], _why(result)) for result in results if result["EvalDecision"] != "allowed"]


def _why(result: "EvaluationResultTypeDef") -> str:
    if result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        return "its permissions boundary leaves it out"
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return "a policy of the organization keeps it from the account"
    if result["EvalDecision"] == "explicitDeny":
        return "a statement of its policies denies it"
    return "no statement of its policies allows it"


REPORT_MACHINE = "the report state machine"
KERNELS_MACHINE = "the kernels state machine"
MACHINES = {REPORT_MACHINE: "ReportStateMachineArn", KERNELS_MACHINE: "KernelsStateMachineArn"}
"""State machines whose roles use the bucket, with the outputs that name them."""

GET, PUT, DELETE, LIST = "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"

_READ = tuple(keys for family in FAMILIES for keys in family.reads)
_PROFILES = "*/profiler-output/*"
_JOB_FILES = "*/job.json"
_REPORTS = "*/rule-output/TrainGuardReport/*"
_PARTS = "*/rule-output/TrainGuardReport/parts/*"
_KERNELS = "*/rule-output/TrainGuardReport/kernels/*"
_NEWEST_CAPTURE = "*/rule-output/TrainGuardReport/kernels.*"
_CAPTURE_RUNS = "*/rule-output/TrainGuardReport/kernels/runs/*"
_CAPTURE_DIGESTS = "*/rule-output/TrainGuardReport/kernels/digests/*"
_CANARIES = "trainguard-canary-*"
_EXAMPLE = "trainguard-doctor"


@dataclass(frozen=True, slots=True)
class Use:
    """A role's use of objects: actions, and the wildcard of the keys; actions on the bucket name prefixes so."""

    actions: tuple[str, ...]
    keys: str = "*"

    def resource(self, bucket_arn: str) -> str:
        """Return the ARN of an example of the used resource."""
        return bucket_arn if self.actions == (LIST,) else f"{bucket_arn}/{self._example}"

    @property
    def context(self) -> Mapping[str, str]:
        """The conditions' values of a listing."""
        return {"s3:prefix": self._example} if self.actions == (LIST,) else {}

    @property
    def _example(self) -> str:
        return self.keys.replace("*", _EXAMPLE)


USES: Mapping[str, tuple[Use, ...]] = {
    "evaluate_objects": (*(Use((GET,), keys) for keys in _READ), Use((GET,), _JOB_FILES), Use((LIST,))),
    "reconcile_job": (Use((GET,), _JOB_FILES), Use((LIST,))),
    "plan_report": (Use((PUT,), _PARTS), Use((LIST,))),
    "digest_profile": (
        Use((GET,), _PROFILES),
        *(Use((GET,), keys) for keys in TRAINING_HEALTH.reads),
        Use((GET,), f"{_PARTS}/keys/*"),
        Use((GET,), f"{_PARTS}/training.json"),
        Use((PUT,), _PARTS),
        Use((LIST,)),
    ),
    "build_report": (Use((PUT,), _REPORTS), Use((GET, DELETE), _PARTS), Use((LIST,), _PARTS)),
    "canary": (Use((PUT, DELETE), _CANARIES), Use((LIST,), _CANARIES)),
    "plan_capture": (Use((PUT,), _CAPTURE_RUNS), Use((LIST,))),
    "digest_trace": (*(Use((GET,), keys) for keys in TRACE_READS), Use((PUT,), _CAPTURE_DIGESTS), Use((LIST,))),
    "join_capture": (
        Use((GET, DELETE), _CAPTURE_RUNS),
        Use((GET, DELETE), _CAPTURE_DIGESTS),
        Use((PUT,), _KERNELS),
        Use((PUT,), _NEWEST_CAPTURE),
        Use((LIST,)),
    ),
    REPORT_MACHINE: (Use((GET,), _PARTS),),
    KERNELS_MACHINE: (Use((GET,), _CAPTURE_RUNS),),
}
"""By role; roles that are not named here do nothing in the bucket."""


def roles_of(site: Site) -> Mapping[str, str]:
    """Return the ARNs of the deployed roles that use the bucket, by their names in `USES`."""
    functions = site.functions
    roles = {name: functions[name]["Role"] for name in USES if name in functions}
    for name, output in MACHINES.items():
        machine = site.deployment.output(output)
        with asking("states:DescribeStateMachine"):
            roles[name] = site.clients.stepfunctions.describe_state_machine(stateMachineArn=machine)["roleArn"]
    return roles


def check_roles(site: Site) -> Iterable[CheckResult]:
    """Judge whether the roles have their rights in the stack's bucket; another bucket is not theirs."""
    if site.bucket != site.own_bucket:
        return ()
    bucket_arn = f"arn:{site.deployment.partition}:s3:::{site.bucket}"
    faults: list[CheckResult] = []
    roles = roles_of(site)
    for name, role in roles.items():
        for use in USES[name]:
            for denial in denials(site, role, use.actions, use.resource(bucket_arn), use.context):
                where = site.bucket if use.keys == "*" else f"{use.keys} in {site.bucket}"
                faults.append(
                    fail(
                        f"{name} may not {denial.action} on {where}: {denial.why}",
                        "Let it, as docs/permissions.md says, or deploy the stack again: `make deploy`.",
                    )
                )
    return unless(faults, f"{counted(len(roles), 'role')} may do in {site.bucket} what they are for")


_NOBODY = "trainguard-doctor"
"""A job that there is none of: asking for it says only whether one may ask."""

_ALLOWED_CODES = frozenset({"404", "NoSuchKey", "NoSuchBucket", "ValidationException", "ResourceNotFound"})
"""Answers of S3 and SageMaker about what does not exist, to a permitted caller."""

_POLICY = "Ask for the policy in docs/cli.md, section Permissions."


@dataclass(frozen=True, slots=True)
class Probe:
    """A read, the IAM action that it needs, and the commands that do such reads."""

    action: str
    of: str
    commands: str
    ask: Callable[[Site], object]


def _item(site: Site) -> object:
    key: dict[str, AttributeValueTypeDef] = {"TrainingJobName": {"S": _NOBODY}}
    return site.clients.dynamodb.get_item(TableName=site.deployment.output("JobsTable"), Key=key)


def _scan(site: Site) -> object:
    return site.clients.dynamodb.scan(TableName=site.deployment.output("JobsTable"), Limit=1)


def _active(site: Site) -> object:
    return site.clients.dynamodb.query(
        TableName=site.deployment.output("JobsTable"),
        IndexName=ACTIVE_JOBS_INDEX,
        KeyConditionExpression="#partition = :partition",
        ExpressionAttributeNames={"#partition": "Active"},
        ExpressionAttributeValues={":partition": {"S": "slow"}},
        Limit=1,
    )


def _rows(output: str) -> Callable[[Site], object]:
    def ask(site: Site) -> object:
        return site.clients.dynamodb.query(
            TableName=site.deployment.output(output),
            KeyConditionExpression="#partition = :partition",
            ExpressionAttributeNames={"#partition": "TrainingJobName"},
            ExpressionAttributeValues={":partition": {"S": _NOBODY}},
            Limit=1,
        )

    return ask


def _listing(site: Site) -> object:
    return site.clients.s3.list_objects_v2(Bucket=site.bucket, Prefix=f"{_NOBODY}/", MaxKeys=1)


def _object(name: str) -> Callable[[Site], object]:
    def ask(site: Site) -> object:
        return site.clients.s3.head_object(Bucket=site.bucket, Key=f"{_NOBODY}/{name}")

    return ask


def _training_job(site: Site) -> object:
    return site.clients.sagemaker.describe_training_job(TrainingJobName=_NOBODY)


def _tags(site: Site) -> object:
    return site.clients.sagemaker.list_tags(ResourceArn=site.arn("sagemaker", f"training-job/{_NOBODY}"))


PROBES = (
    Probe("dynamodb:GetItem", "the table Jobs", "status, explain, open, report, replay", _item),
    Probe("dynamodb:Scan", "the table Jobs", "jobs, report --fleet", _scan),
    Probe("dynamodb:Query", "the index ActiveJobs", "status", _active),
    Probe("dynamodb:Query", "the table RuleState", "jobs, status, explain, report", _rows("RuleStateTable")),
    Probe("dynamodb:Query", "the table NodeState", "report, doctor --job", _rows("NodeStateTable")),
    Probe("s3:ListBucket", "the bucket", "report, analyze, doctor --job", _listing),
    Probe("s3:GetObject", "reports", "open", _object("rule-output/TrainGuardReport/report.html")),
    Probe("s3:GetObject", "profiles", "report, analyze, replay", _object("profiler-output/system/training_job_end.ts")),
    Probe("sagemaker:DescribeTrainingJob", "training jobs", "doctor --job", _training_job),
    Probe("sagemaker:ListTags", "training jobs", "doctor --job", _tags),
)


def check_access(site: Site) -> Iterable[CheckResult]:
    """Try every read that the other commands do, on what does not exist."""
    faults = []
    for probe in PROBES:
        try:
            _try(probe, site)
        except UnansweredError as fault:
            needed = f"{probe.action} on {probe.of}, for {probe.commands}"
            if fault.why is Why.DENIED:
                faults.append(warn(f"you may not {needed}", _POLICY))
            else:
                faults.append(warn(f"it is unknown whether you may {needed}: {fault.reason}", "Try again."))
    return unless(faults, f"{counted(len(PROBES), 'kind')} of reads that the commands need are allowed")


def _try(probe: Probe, site: Site) -> None:
    with asking(probe.action):
        try:
            probe.ask(site)
        except ClientError as error:
            if error_code(error) not in _ALLOWED_CODES:
                raise
