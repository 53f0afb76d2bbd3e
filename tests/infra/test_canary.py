"""The canary as it is deployed: its schedules, its reach that ends at its prefix, subscribers that leave it out."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from moto import mock_aws

from infra.config import DeploymentConfig, DeploymentConfigError
from infra.constructs.canary import repository_of
from tests.functional.deployment import Deployment
from tests.functional.offline import offline_clients
from tests.infra.done_by_services import DONE_BY_SERVICES
from tests.infra.template import Template
from tests.infra.test_permissions_exercised import Play, Printed, Recorder, granted
from tests.infra.variants import CANARY_IMAGE
from trainguard.core.canary_name import planted_at
from trainguard.stack.canary import FRESH_S, LOOKED_AFTER_MINUTES, CanaryCall

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def test_schedule_leaves_the_step_to_the_function_with_its_time(
    template: Template,
) -> None:
    schedule = template.one("AWS::Events::Rule", "CanaryDaily")
    (target,) = schedule["Targets"]
    assert schedule["ScheduleExpression"] == "cron(0,15 6 * * ? *)"
    assert target["InputTransformer"]["InputPathsMap"] == {"time": "$.time"}
    assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}
    days = [f"2026-08-{day:02}T06:{minute:02}:00Z" for day in range(3, 10) for minute in (0, 15)]
    asked = [target["InputTransformer"]["InputTemplate"].replace("<time>", f'"{time}"') for time in days]
    due = [msgspec.json.decode(each, type=CanaryCall).due for each in asked]
    assert due == ["plant", "look"] * 7
    assert LOOKED_AFTER_MINUTES * 60 < FRESH_S


def test_canary_role_reaches_only_canaries(template: Template) -> None:
    statements = {statement.sid: statement for role, statement in template.role_statements() if role == "CanaryRole"}
    assert statements["PlantCanaries"].resources == ("arn:{AWS::Partition}:s3:::{StorageProfiles}/trainguard-canary-*",)
    assert statements["ListCanaries"].condition == {"StringLike": {"s3:prefix": "trainguard-canary-*"}}
    assert statements["ReadRowsOfCanaries"].condition == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "trainguard-canary-*"}
    }


def test_canary_is_not_mailed_to_alert_subscribers(variants: Path) -> None:
    template = Template(variants / "person" / "TrainGuard.template.json")
    policies = [
        subscription.properties.get("FilterPolicy")
        for subscription in template.of_type("AWS::SNS::Subscription").values()
        if subscription.properties["TopicArn"] == "{ActionsAlerts}"
    ]
    assert policies == [{"Kind": [{"anything-but": ["canary"]}]}] * 2


JOBS = "arn:{AWS::Partition}:sagemaker:{AWS::Region}:{AWS::AccountId}:training-job/trainguard-canary-*"
MARK = "arn:{AWS::Partition}:ssm:{AWS::Region}:{AWS::AccountId}:parameter{CanaryMark}"
BUCKET = "arn:{AWS::Partition}:s3:::{StorageProfiles}"
STACK_TAG = {"StringEquals": {"aws:ResourceTag/trainguard-canary": "TrainGuard"}}
REQUEST_TAG = {"aws:RequestTag/trainguard-canary": "TrainGuard"}
PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
# What a canary that is a training job may do beyond any other: actions, resources and conditions by statement.
OF_JOB: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]] = {
    "CreateOwnJobs": (
        ("sagemaker:CreateTrainingJob",),
        (JOBS,),
        {
            "StringEquals": REQUEST_TAG,
            "ForAllValues:StringEquals": {"sagemaker:InstanceTypes": "ml.m5.large"},
            "NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": "1200"},
        },
    ),
    "TagOwnJobs": (
        ("sagemaker:AddTags",),
        (JOBS,),
        {"StringEquals": {**REQUEST_TAG, "sagemaker:TaggingAction": "CreateTrainingJob"}},
    ),
    "DescribeOwnJobs": (("sagemaker:DescribeTrainingJob",), (JOBS,), {}),
    "StopOwnJobs": (("sagemaker:StopTrainingJob",), (JOBS,), STACK_TAG),
    "PassRoleOfOwnJobs": (
        ("iam:PassRole",),
        ("{CanaryJobRole.Arn}",),
        {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
    ),
    "MarkOwnJob": (("ssm:GetParameter", "ssm:PutParameter"), (MARK,), {}),
    "PullImage": (
        PULL,
        ("arn:{AWS::Partition}:ecr:eu-west-1:763104351884:repository/pytorch-training",),
        {},
    ),
    "LogInToEcr": (("ecr:GetAuthorizationToken",), ("*",), {}),
    "WriteOutput": (("s3:PutObject",), (f"{BUCKET}/trainguard-canary-*/output/*",), {}),
}
# Other statements of the function, which other functions have as well.
_SHARED = {"PlantCanaries", "ListCanaries", "ReadRowsOfCanaries", "ReadStopSwitch", "ReadBrakes"}
_SHARED |= {"WriteLogs", "KeepFailedEvents"}


@pytest.fixture(scope="module")
def with_job(variants: Path) -> Template:
    """Return the template of a deployment whose canary is a training job."""
    return Template(variants / "sized" / "TrainGuard.template.json")


def test_role_of_a_canarys_job_and_its_function_match_the_table(with_job: Template) -> None:
    of_canary = {"CanaryRole", "CanaryJobRole"}
    found = {str(each.sid): each for role, each in with_job.role_statements() if role in of_canary}
    assert found.keys() - _SHARED == OF_JOB.keys()
    held = {sid: (each.actions, each.resources, each.condition) for sid, each in found.items() if sid in OF_JOB}
    assert held == OF_JOB
    (trust,) = with_job.one("AWS::IAM::Role", "CanaryJobRole")["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "{AWS::AccountId}"}}


def test_every_permission_of_the_canarys_job_is_used(with_job: Template) -> None:
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        deployment = Deployment(offline_clients(), patch, Printed())
        recorder = Recorder(patch)
        deployment.plant_jobs()
        play = Play(deployment, recorder, patch)
        for day in ("2026-07-31", "2026-08-01"):
            for step, minute in (("plant", "00"), ("look", "15"), ("end", "30")):
                answer = play("canary", {"step": step, "time": f"{day}T06:{minute}:00Z"})
                deployment.set_status("InProgress", name=answer["job"])
    # SageMaker asks for these when a job is created.
    implied = {("sagemaker:AddTags", ""), ("iam:PassRole", "")}
    by_lambda = {(action, "") for action in DONE_BY_SERVICES["CanaryRole"]}
    assert granted(with_job, "CanaryRole") - by_lambda == recorder.seen["canary"] | implied


def test_third_step_of_the_day_checks_the_end(with_job: Template) -> None:
    schedule = with_job.one("AWS::Events::Rule", "CanaryDaily")
    assert schedule["ScheduleExpression"] == "cron(0,15,30 6 * * ? *)"
    call = '{"step": "scheduled", "time": "2026-08-03T06:30:00Z"}'
    assert msgspec.json.decode(call, type=CanaryCall).due == "end"


def test_mark_lies_where_functions_read_settings(with_job: Template) -> None:
    mark = with_job.one("AWS::SSM::Parameter", "CanaryMark")
    assert mark["Name"] == "/TrainGuard/settings/canary-job"
    assert planted_at(mark["Value"]) is None


def test_default_deployment_creates_no_training_job(template: Template) -> None:
    assert not [each.name for each in template.resources if each.name in {"CanaryJobRole", "CanaryMark"}]
    assert "sagemaker:CreateTrainingJob" not in template.text


@pytest.mark.parametrize(
    ("image", "repository"),
    [("team/tools/sleeper:1", "team/tools/sleeper"), ("sleeper@sha256:" + 64 * "0", "sleeper")],
)
def test_role_pulls_from_the_repository_of_the_image(image: str, repository: str) -> None:
    host = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
    config = DeploymentConfig.from_context({"canary_image": f"{host}/{image}"})
    assert repository_of(str(config.canary_image)) == repository


@pytest.mark.parametrize(
    "image", ["sleeper:1", "docker.io/library/busybox:1", "111122223333.dkr.ecr.eu-west-1.amazonaws.com/x"]
)
def test_image_outside_ecr_or_without_a_tag_is_refused(image: str) -> None:
    with pytest.raises(DeploymentConfigError, match="canary_image"):
        DeploymentConfig.from_context({"canary_image": image})


def test_job_without_a_canary_is_refused() -> None:
    with pytest.raises(DeploymentConfigError, match="canary_image needs the canary"):
        DeploymentConfig.from_context({"canary": "false", "canary_image": CANARY_IMAGE})


def test_deployment_without_canary_has_no_trace_of_it(variants: Path) -> None:
    template = Template(variants / "without-canary" / "TrainGuard.template.json")
    assert not [resource.name for resource in template.resources if resource.name.startswith("Canary")]
