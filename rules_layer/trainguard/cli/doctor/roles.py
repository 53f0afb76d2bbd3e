"""Rights of the stack's own roles: on the objects of the bucket, and on the key that encrypts them."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.aws.aws_errors import unless as unless_refused
from trainguard.aws.dynamodb.jobs import ACTIVE_JOBS_INDEX
from trainguard.cli.doctor.site import (
    CheckResult,
    Site,
    UnansweredError,
    allows,
    asking,
    fail,
    listed,
    ok,
    unless,
    warn,
)
from trainguard.core.units import counted
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.hangs.files import HANG_READS, KEPT_HANG
from trainguard.kernels.captures.keys import TRACE_READS

if TYPE_CHECKING:
    from mypy_boto3_iam.type_defs import ContextEntryTypeDef, EvaluationResultTypeDef

_SIMULATE = "iam:SimulatePrincipalPolicy"
REPORT_MACHINE = "the report state machine"
KERNELS_MACHINE = "the kernels state machine"

# State machines whose roles use the bucket, with the outputs that name them.
MACHINES = {REPORT_MACHINE: "ReportStateMachineArn", KERNELS_MACHINE: "KernelsStateMachineArn"}
GET, PUT, DELETE, LIST = "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"
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

# A job that there is none of: asking for it says only whether one may ask.
_NOBODY = "trainguard-doctor"

# Answers of S3 and SageMaker about what does not exist, to a permitted caller.
_ALLOWED_CODES = frozenset({"404", "NoSuchKey", "NoSuchBucket", "ValidationException", "ResourceNotFound"})
_POLICY = "Ask for the policy in docs/cli.md, section Permissions."
_DECRYPT, _GENERATE = "kms:Decrypt", "kms:GenerateDataKey"
_SECTION = "docs/deployment.md, section An existing bucket"

# S3's answer for an old bucket whose encryption nobody has chosen: then S3 keeps the key.
_NEVER_CHOSEN = "ServerSideEncryptionConfigurationNotFoundError"


def denials(
    site: Site, role_arn: str, actions: Sequence[str], resource: str, context: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return which ``actions`` a role may not do, each with the reason; UnansweredError unless IAM answers for all."""
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
        raise UnansweredError(_SIMULATE, f"it decided nothing about {', '.join(silent)}")
    return [(each["EvalActionName"], _why(each)) for each in results if each["EvalDecision"] != "allowed"]


def _why(result: "EvaluationResultTypeDef") -> str:
    if result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        return "its permissions boundary leaves it out"
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return "a policy of the organization keeps it from the account"
    if result["EvalDecision"] == "explicitDeny":
        return "a statement of its policies denies it"
    return "no statement of its policies allows it"


_READ = tuple(keys for family in FAMILIES for keys in family.reads)


@dataclass(frozen=True, slots=True)
class Use:
    """A role's use of objects: actions, and the wildcard of the keys; actions on the bucket name prefixes so."""

    actions: tuple[str, ...]
    keys: str = "*"

    def resource(self, bucket_arn: str) -> str:
        return bucket_arn if self.actions == (LIST,) else f"{bucket_arn}/{self._example}"

    @property
    def context(self) -> Mapping[str, str]:
        return {"s3:prefix": self._example} if self.actions == (LIST,) else {}

    @property
    def _example(self) -> str:
        return self.keys.replace("*", _EXAMPLE)


# By role; roles that are not named here do nothing in the bucket.
USES: Mapping[str, tuple[Use, ...]] = {
    "evaluate_objects": (
        *(Use((GET,), keys) for keys in (*_READ, _JOB_FILES, KEPT_HANG)),
        Use((LIST,)),
    ),
    "reconcile_job": (Use((GET,), _JOB_FILES), Use((GET,), KEPT_HANG), Use((LIST,))),
    "plan_report": (Use((PUT,), _PARTS), Use((LIST,))),
    "digest_profile": (
        Use((GET,), _PROFILES),
        *(Use((GET,), keys) for keys in TRAINING_HEALTH.reads),
        Use((GET,), f"{_PARTS}/keys/*"),
        Use((GET,), f"{_PARTS}/training.json"),
        Use((PUT,), _PARTS),
        Use((LIST,)),
    ),
    "build_report": (
        Use((PUT,), _REPORTS),
        Use((GET, DELETE), _PARTS),
        *(Use((GET,), keys) for keys in (*HANG_READS, KEPT_HANG)),
        *(Use((LIST,), keys) for keys in (_PARTS, *HANG_READS)),
    ),
    "scheduler": (Use((LIST,), _CANARIES),),
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
    if site.bucket != site.deployment.bucket:
        return ()
    if not site.asks_aws:
        return (warn("not checked here: an emulator simulates no rights of roles", "Run it against AWS."),)
    bucket_arn = f"arn:{site.deployment.partition}:s3:::{site.bucket}"
    lacking: dict[tuple[str, str], dict[str, list[str]]] = {}
    roles = roles_of(site)
    for name, role in roles.items():
        for use in USES[name]:
            for action, why in denials(site, role, use.actions, use.resource(bucket_arn), use.context):
                where = "all objects" if use.keys == "*" else use.keys
                lacking.setdefault((name, why), {}).setdefault(action, []).append(where)
    remedy = "Let it, as docs/permissions.md says, or deploy the stack again: `make deploy`."
    faults = []
    for (name, why), by_action in lacking.items():
        rights = "; ".join(f"{action} on {', '.join(where)}" for action, where in by_action.items())
        faults.append(fail(f"{name} may not {rights} in {site.bucket}: {why}", remedy))
    return unless(faults, f"{counted(len(roles), 'role')} may do in {site.bucket} what they are for")


def _query(site: Site, output: str, name: str, value: str, **more: Any) -> object:
    return site.clients.dynamodb.query(
        TableName=site.deployment.output(output),
        KeyConditionExpression="#partition = :partition",
        ExpressionAttributeNames={"#partition": name},
        ExpressionAttributeValues={":partition": {"S": value}},
        Limit=1,
        **more,
    )


def _rows(output: str) -> Callable[[Site], object]:
    return lambda site: _query(site, output, "TrainingJobName", _NOBODY)


def _object(name: str) -> Callable[[Site], object]:
    return lambda site: site.clients.s3.head_object(Bucket=site.bucket, Key=f"{_NOBODY}/{name}")


# Reads: the IAM action that each needs, on what, the commands that do such reads, and one to try.
PROBES: tuple[tuple[str, str, str, Callable[[Site], object]], ...] = (
    (
        "dynamodb:GetItem",
        "the table Jobs",
        "status, explain, open, report, replay",
        lambda site: site.clients.dynamodb.get_item(
            TableName=site.deployment.output("JobsTable"), Key={"TrainingJobName": {"S": _NOBODY}}
        ),
    ),
    (
        "dynamodb:Scan",
        "the table Jobs",
        "jobs, report",
        lambda site: site.clients.dynamodb.scan(TableName=site.deployment.output("JobsTable"), Limit=1),
    ),
    (
        "dynamodb:Query",
        "the index ActiveJobs",
        "status",
        lambda site: _query(site, "JobsTable", "Active", "slow", IndexName=ACTIVE_JOBS_INDEX),
    ),
    ("dynamodb:Query", "the table RuleState", "jobs, status, explain, report", _rows("RuleStateTable")),
    ("dynamodb:Query", "the table NodeState", "report, doctor --job", _rows("NodeStateTable")),
    (
        "s3:ListBucket",
        "the bucket",
        "report, analyze, doctor --job",
        lambda site: site.clients.s3.list_objects_v2(Bucket=site.bucket, Prefix=f"{_NOBODY}/", MaxKeys=1),
    ),
    ("s3:GetObject", "reports", "open", _object("rule-output/TrainGuardReport/report.html")),
    ("s3:GetObject", "profiles", "report, analyze, replay", _object("profiler-output/system/training_job_end.ts")),
    (
        "sagemaker:DescribeTrainingJob",
        "training jobs",
        "doctor --job",
        lambda site: site.clients.sagemaker.describe_training_job(TrainingJobName=_NOBODY),
    ),
    (
        "sagemaker:ListTags",
        "training jobs",
        "doctor --job",
        lambda site: site.clients.sagemaker.list_tags(
            ResourceArn=site.deployment.arn("sagemaker", f"training-job/{_NOBODY}")
        ),
    ),
)


def check_access(site: Site) -> Iterable[CheckResult]:
    """Try every read that the other commands do, on what does not exist."""
    faults = []
    for action, of, commands, ask in PROBES:
        needed = f"{action} on {of}, for {commands}"
        try:
            with asking(action):
                unless_refused(_ALLOWED_CODES, partial(ask, site))
        except UnansweredError as fault:
            if fault.is_denied:
                faults.append(warn(f"you may not {needed}", _POLICY))
            else:
                faults.append(warn(f"it is unknown whether you may {needed}: {fault.reason}", "Try again."))
    return unless(faults, f"{counted(len(PROBES), 'kind')} of reads that the commands need are allowed")


def check_encryption(site: Site) -> Iterator[CheckResult]:
    """Judge the bucket's encryption by the roles' rights; a missing bucket was reported before."""
    chosen: Mapping[str, Any] = {}
    with asking("s3:GetEncryptionConfiguration"):
        try:
            answer = site.clients.s3.get_bucket_encryption(Bucket=site.bucket)
            (rule,) = answer["ServerSideEncryptionConfiguration"]["Rules"]
            chosen = rule.get("ApplyServerSideEncryptionByDefault", {})
        except ClientError as error:
            if error_code(error) == "NoSuchBucket":
                return
            if error_code(error) != _NEVER_CHOSEN:
                raise
    if (key := chosen.get("KMSMasterKeyID")) is not None:
        yield from _check_key(site, key)
    else:
        keeper = "S3 itself keeps" if chosen.get("SSEAlgorithm", "AES256") == "AES256" else "AWS manages for S3"
        yield ok(f"{site.bucket} is encrypted with a key that {keeper}")


def _check_key(site: Site, named: str) -> Iterator[CheckResult]:
    if ":key/" in named and _account(named) != site.deployment.account:
        yield from _grade_rights(site, named, _users_of_key(site))
        # What the policy of another account's key says, that account alone may read.
        yield warn(
            f"{named}, which encrypts {site.bucket}, is of account {_account(named)}: its policy cannot be read from "
            "here",
            f"It must let account {site.deployment.account} use {_DECRYPT} and {_GENERATE} through S3; "
            f"{_SECTION}, has the statement.",
        )
        return
    with asking("kms:DescribeKey"):
        described = site.clients.kms.describe_key(KeyId=named)["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        yield ok(f"{site.bucket} is encrypted with a key that AWS manages for S3")
        return
    key, roles = described["Arn"], _users_of_key(site)
    faults = [*_grade_rights(site, key, roles)]
    if (state := described.get("KeyState", "Enabled")) != "Enabled":
        found = f"{key} is {state}: no object under it can be read or written"
        faults.append(fail(found, "Enable it, cancel its deletion, or give the bucket another key."))
    faults += grade_policy(key, site.key_policy(key), roles)
    yield from unless(faults, f"{counted(len(roles), 'role')} may use {key}, which encrypts {site.bucket}")


def _account(arn: str) -> str:
    return arn.split(":")[4]


def needed(role: str) -> tuple[str, ...]:
    """Return the actions on the key that a role of `USES` needs: a listing none; who writes decrypts to check."""
    if all(use.actions == (LIST,) for use in USES[role]):
        return ()
    writes = any(PUT in use.actions for use in USES[role])
    return (_DECRYPT, _GENERATE) if writes else (_DECRYPT,)


def _users_of_key(site: Site) -> Mapping[str, str]:
    return {name: role for name, role in roles_of(site).items() if needed(name)}


def _grade_rights(site: Site, key: str, roles: Mapping[str, str]) -> Iterator[CheckResult]:
    if not site.asks_aws:
        return  # The line on roles says so.
    service = f"s3.{site.deployment.region}.amazonaws.com"
    context = {"kms:ViaService": f"{service}.cn" if site.deployment.partition == "aws-cn" else service}
    lacking: dict[str, list[str]] = {}
    for name, role in roles.items():
        for action, why in denials(site, role, needed(name), key, context):
            lacking.setdefault(f"{action}: {why}", []).append(name)
    for what, names in lacking.items():
        found = f"{site.bucket} is encrypted with {key}, with which {', '.join(names)} may not {what}"
        yield fail(found, _remedy(site, key))


def _remedy(site: Site, key: str) -> str:
    if site.bucket != site.deployment.bucket:
        return f"Deploy with -c profile_bucket={shlex.quote(site.bucket)} -c profile_key_arn={key}: {_SECTION}."
    if site.names("AWS::S3::Bucket"):
        return f"Deploy with -c kms_key_arn={key}, or give the bucket the encryption again that the stack made."
    return f"Deploy with -c profile_key_arn={key}: {_SECTION}."


def grade_policy(key: str, policy: Mapping[str, Any], roles: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge whether a key's own policy leaves its use to IAM, or names the roles; warns, as grants are not read."""
    partition, account = key.split(":")[1], _account(key)
    everybody = {"*", account, f"arn:{partition}:iam::{account}:root"}
    left_out = [
        name
        for name, role in roles.items()
        if not all(_lets_in(policy, everybody | {role}, action) for action in needed(name))
    ]
    if left_out:
        found = f"the policy of {key} lets in neither its account nor the roles of {', '.join(left_out)}"
        yield warn(found, f"Let the account use it, or these roles: {_SECTION}.")


def _lets_in(policy: Mapping[str, Any], principals: AbstractSet[str], action: str) -> bool:
    for statement in listed(policy.get("Statement")):
        named = statement.get("Principal")
        if allows(statement, action) and not principals.isdisjoint(
            listed(named.get("AWS") if isinstance(named, dict) else named)
        ):
            return True
    return False
