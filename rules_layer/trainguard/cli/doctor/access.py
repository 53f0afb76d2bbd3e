"""What the caller may do: harmless reads of the kind that the other commands do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code
from trainguard.adapters.dynamodb_jobs import ACTIVE_JOBS_INDEX
from trainguard.cli.doctor.asking import UnansweredError, Why, asking
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

ACCESS = Check("permissions")

_NOBODY = "trainguard-doctor"
"""A job that there is none of: asking for it says only whether one may ask."""

_ALLOWED_CODES = frozenset({"404", "NoSuchKey", "NoSuchBucket", "ValidationException", "ResourceNotFound"})
"""What S3 and SageMaker answer to who may ask for what does not exist."""

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
        ExpressionAttributeValues={":partition": {"S": "yes"}},
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


def check_access(site: Site) -> Iterator[CheckResult]:
    """Try every read that the other commands do, on what does not exist."""
    faults = []
    for probe in PROBES:
        try:
            _try(probe, site)
        except UnansweredError as fault:
            needed = f"{probe.action} on {probe.of}, for {probe.commands}"
            if fault.why is Why.DENIED:
                faults.append(ACCESS.warn(f"you may not {needed}", _POLICY))
            else:
                faults.append(ACCESS.warn(f"it is unknown whether you may {needed}: {fault.reason}", "Try again."))
    yield from ACCESS.unless(faults, f"{counted(len(PROBES), 'kind')} of reads that the commands need are allowed")


def _try(probe: Probe, site: Site) -> None:
    with asking(probe.action):
        try:
            probe.ask(site)
        except ClientError as error:
            if error_code(error) not in _ALLOWED_CODES:
                raise
