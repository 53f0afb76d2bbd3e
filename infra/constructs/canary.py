"""The canary: a synthetic job a day that proves that the deployment detects, alerts and reports."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aws_cdk import Aws, Duration, Fn, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.function import Platform, TrainGuardFunction, role_with
from infra.constructs.policy import allow
from trainguard.aws.canary_jobs import INSTANCE_TYPE
from trainguard.core.canary_name import CANARY_KIND, CANARY_MARK, CANARY_PREFIX, CANARY_TAG
from trainguard.stack.canary import ENDED_AFTER_MINUTES, LOOKED_AFTER_MINUTES
from trainguard.stack.canary_job import JOB_LIMIT_S

if TYPE_CHECKING:
    from infra.constructs.actions import Actions

PLANTED_HOUR_UTC = 6


def no_canary() -> sns.SubscriptionFilter:
    """Return the filter on the attribute ``Kind`` of alerts that lets all through but a canary's."""
    return sns.SubscriptionFilter.string_filter(denylist=[CANARY_KIND])


def build_canary(stack: Construct, platform: Platform, actions: "Actions") -> TrainGuardFunction:
    """Build one function behind a schedule: it plants, checks a quarter of an hour later, and then a job's end."""
    storage, image = platform.storage, platform.config.canary_image
    rows = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": f"{CANARY_PREFIX}*"}}
    objects = f"{storage.bucket_arn}/{CANARY_PREFIX}*"
    scope = Construct(stack, "Canary")
    statements, variables = _of_job(scope, platform, actions, image) if image else ([], {})
    canary = TrainGuardFunction(
        scope,
        "canary",
        platform=platform,
        statements=[
            allow("PlantCanaries", ["s3:PutObject", "s3:DeleteObject"], [objects]),
            storage.list_canaries(),
            allow(
                "ReadRowsOfCanaries", ["dynamodb:GetItem"], [storage.rule_state.table_arn, storage.jobs.table_arn], rows
            ),
            *statements,
        ],
        environment={**storage.variables("RULE_STATE_TABLE", "JOBS_TABLE", "PROFILE_BUCKET"), **variables},
        timeout_s=60,
        most_age=Duration.minutes(10),
    )
    minutes = (0, LOOKED_AFTER_MINUTES, *((ENDED_AFTER_MINUTES,) if image else ()))
    canary.call_by_rule(
        "Daily",
        "Calls TrainGuard's canary, which plants and looks",
        schedule=events.Schedule.cron(hour=str(PLANTED_HOUR_UTC), minute=",".join(map(str, minutes))),
        event={"step": "scheduled", "time": events.EventField.time},
    )
    return canary


def _of_job(
    scope: Construct, platform: Platform, actions: "Actions", image: str
) -> tuple[Sequence[iam.PolicyStatement], Mapping[str, str]]:
    """Return the rights and variables of a canary that creates a training job, and make that job's role and its mark.

    Names and the tag with the stack's name keep the function away from every other job, of other stacks, too.
    """
    config, settings = platform.config, platform.settings
    mark = ssm.StringParameter(
        scope,
        "Mark",
        parameter_name=f"{settings.path}{CANARY_MARK}",
        simple_name=False,
        description="The newest training job of TrainGuard's canary, which the canary alone writes",
        string_value="none",
    )
    role = _role_of_job(scope, config, platform.storage.bucket_arn, image)
    jobs = [Stack.of(scope).format_arn(service="sagemaker", resource="training-job", resource_name=f"{CANARY_PREFIX}*")]
    tagged = {f"aws:RequestTag/{CANARY_TAG}": config.stack_name}
    small = {
        "StringEquals": tagged,
        "ForAllValues:StringEquals": {"sagemaker:InstanceTypes": INSTANCE_TYPE},
        "NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": str(JOB_LIMIT_S)},
    }
    created = {"StringEquals": {**tagged, "sagemaker:TaggingAction": "CreateTrainingJob"}}
    own = {"StringEquals": {f"aws:ResourceTag/{CANARY_TAG}": config.stack_name}}
    passed = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    statements = [
        allow("CreateOwnJobs", ["sagemaker:CreateTrainingJob"], jobs, small),
        allow("TagOwnJobs", ["sagemaker:AddTags"], jobs, created),
        allow("DescribeOwnJobs", ["sagemaker:DescribeTrainingJob"], jobs),
        allow("StopOwnJobs", ["sagemaker:StopTrainingJob"], jobs, own),
        allow("PassRoleOfOwnJobs", ["iam:PassRole"], [role.role_arn], passed),
        allow("MarkOwnJob", ["ssm:GetParameter", "ssm:PutParameter"], [mark.parameter_arn]),
        actions.read_stop_switch(),
        settings.read_brakes(),
    ]
    return statements, {
        "CANARY_IMAGE": image,
        "CANARY_ROLE_ARN": role.role_arn,
        "SETTINGS_PATH": settings.path,
        "STACK_NAME": config.stack_name,
        **actions.stop_switch_variables,
        **settings.environment_of_brakes(),
    }


def _role_of_job(scope: Construct, config: DeploymentConfig, bucket_arn: str, image: str) -> iam.Role:
    """Return the role of the canary's jobs: it pulls their image, and writes the output that SageMaker asks of each."""
    host, repository = Fn.select(0, Fn.split("/", image)), repository_of(image)
    account, region = (Fn.select(part, Fn.split(".", host)) for part in (0, 3))
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return role_with(
        scope,
        "JobRole",
        config=config,
        principal=iam.ServicePrincipal(
            "sagemaker.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        ),
        statements=[
            allow("PullImage", pull, [f"arn:{Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}"]),
            # It knows no resources.
            allow("LogInToEcr", ["ecr:GetAuthorizationToken"], ["*"]),
            allow("WriteOutput", ["s3:PutObject"], [f"{bucket_arn}/{CANARY_PREFIX}*/output/*"]),
        ],
    )


def repository_of(image: str) -> str:
    """Return the repository of an image, also where a parameter of the template gives it: then without slashes."""
    if Token.is_unresolved(image):
        image = Fn.select(1, Fn.split("/", image))
        return Fn.select(0, Fn.split(":", Fn.select(0, Fn.split("@", image))))
    return image.partition("/")[2].partition("@")[0].partition(":")[0]
