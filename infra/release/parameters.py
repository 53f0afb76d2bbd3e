"""The parameters of a release's template, ``ProfileBucket`` for the setting ``profile_bucket`` of `infra.config`."""

import re
from dataclasses import dataclass, replace
from typing import Any

from infra import config as settings
from infra.config import DeploymentConfig, DeploymentConfigError
from infra.context import BOOLEAN, Form, ecr_image, matching, one_of

ASSET_BUCKET, ASSET_PREFIX, BY_REGION = "AssetBucket", "AssetPrefix", "AssetBucketByRegion"
# Value of ``Evaluate`` in place of None, which no parameter has.
BY_BUCKET = "by-bucket"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the template.

    ``setting`` is the field of `DeploymentConfig` that it gives, None for where the assets lie; by default it has the
    setting's name and form. A list is a text with commas: CloudFormation's rules and conditions cannot say that a
    parameter of its type of lists is empty. ``label`` and ``says`` are a line of the console's form, and the
    description below it. ``default`` is of a parameter without a setting; None makes it required. A list has at most
    ``most`` parts where descriptions of versions name them (see `infra.release.versions`).
    """

    setting: str | None
    label: str
    says: str
    name: str = ""
    own_form: Form | None = None
    default: str | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.setting is not None and not self.name:
            object.__setattr__(self, "name", self.setting.title().replace("_", ""))

    @property
    def form(self) -> Form:
        return self.own_form or DeploymentConfig.form(str(self.setting))

    def accepts(self, value: str) -> bool:
        form = self.form
        if form.limits:
            return value.isdigit() and form.limits[0] <= int(value) <= form.limits[1]
        return value in form.allowed if form.allowed else re.fullmatch(self._whole_pattern, value) is not None

    def declaration(self, default: str | None) -> dict[str, Any]:
        form, usual = self.form, self._usual
        kind = "Number" if isinstance(usual, int) and not isinstance(usual, bool) else "String"
        declared: dict[str, Any] = {"Type": kind, "Description": self.says}
        if default is not None:
            declared["Default"] = default
        if form.allowed:
            declared["AllowedValues"] = list(form.allowed)
        elif form.limits:
            declared |= {"MinValue": form.limits[0], "MaxValue": form.limits[1]}
        else:
            declared |= {"AllowedPattern": self._whole_pattern, "ConstraintDescription": self.says}
        return declared

    @property
    def _usual(self) -> object:
        return "" if self.setting is None else getattr(DeploymentConfig(), self.setting)

    @property
    def _whole_pattern(self) -> str:
        pattern = self.form.pattern or ".*"
        times = "*" if self.most is None else f"{{0,{self.most - 1}}}"
        pattern = f"{pattern}(,{pattern}){times}" if self.form.is_list else pattern
        return f"({pattern})?" if self._usual in (None, ()) else pattern


# Beginnings of settings, labels and functions.
_MEMORIES = (
    ("evaluator", "evaluators", "evaluate_objects"),
    ("report", "reports", "digest_profile and build_report"),
    ("scheduler", "scheduler", "scheduler"),
    ("reconcile", "reconcile_job", "reconcile_job"),
    ("lifecycle", "job_lifecycle", "job_lifecycle"),
    ("plan_report", "plan_report", "plan_report"),
    ("kernel_digest", "digest_trace", "digest_trace"),
    ("kernel_join", "join_capture", "join_capture"),
)

# Parameters by the headings of the console's form.
_GROUPED = {
    "Where you uploaded the assets": (
        Parameter(
            None,
            "Bucket",
            "Bucket, in the stack's Region, that holds the release's assets.",
            name=ASSET_BUCKET,
            own_form=matching(settings.BUCKET_NAME, "the name of an S3 bucket"),
        ),
        Parameter(
            None,
            "A bucket a Region",
            "Whether the stack's Region is added to the bucket's name, as in our-assets-eu-west-1, for stack sets.",
            name=BY_REGION,
            own_form=BOOLEAN,
            default="false",
        ),
        Parameter(
            None,
            "Prefix",
            "Prefix of the assets in that bucket. It ends with a slash, or is empty.",
            name=ASSET_PREFIX,
            own_form=matching(r"([A-Za-z0-9!_.*'()-]+/)*", "a prefix"),
            default="trainguard/",
        ),
    ),
    "Profiles": (
        Parameter(
            "profile_bucket",
            "Existing bucket",
            "Existing bucket of profiles, with notifications on. Empty: the stack makes one.",
        ),
        Parameter(
            "profile_key_arn",
            "Key of the existing bucket",
            "ARN of the KMS key that encrypts the existing bucket. Empty: S3 or AWS manages that key.",
        ),
        Parameter(
            "profile_notifications",
            "Notifications of the existing bucket",
            "How the existing bucket announces objects: by events, or by S3 to the queue, for which S3 asks nothing.",
        ),
        Parameter(
            "profile_retention_days",
            "Days to keep profiles",
            "Age in days at which profiles and reports in the stack's own bucket expire.",
        ),
        Parameter(
            "evaluate",
            "Jobs to evaluate",
            "Jobs that are evaluated. by-bucket: all with the stack's own bucket, tagged ones with an existing one.",
            own_form=one_of(BY_BUCKET, "all", "tagged", "off"),
        ),
    ),
    "Alerts": (
        Parameter(
            "alert_emails",
            "Address for alerts",
            "Mail address that gets alerts about training jobs. Empty: none.",
            name="AlertEmail",
            own_form=matching(settings.EMAIL, "an address"),
        ),
        Parameter(
            "operations_emails",
            "Address for alarms",
            "Mail address that gets alarms about TrainGuard itself. Empty: none.",
            name="OperationsEmail",
            own_form=matching(settings.EMAIL, "an address"),
        ),
        Parameter(
            "central_bus_arn",
            "Central event bus",
            "ARN of the EventBridge bus that findings and statements of jobs go to. Empty: none.",
        ),
    ),
    "Further channels": (
        Parameter("ops_items", "OpsItems", "Whether each broken GPU gets an OpsItem in OpsCenter."),
        Parameter("weekly_digest", "Weekly digest", "Whether both topics get the waste of the week."),
        Parameter("event_schemas", "Event schemas", "Whether EventBridge has a registry with the events' schemas."),
    ),
    "Stops of training jobs": (
        Parameter(
            "stop_switch",
            "Stop switch",
            "Whether TrainGuard may stop training jobs that carry the tag trainguard:stop-on-fire.",
        ),
        Parameter(
            "max_stops_per_hour",
            "Stops an hour",
            "How many training jobs may be stopped within an hour. 0 stops none.",
        ),
        Parameter(
            "stop_limit_function",
            "Stop rate limit of all",
            "ARN of the central stack's StopLimitFunction. Without its answer nothing is stopped. Empty: none.",
        ),
    ),
    "Stops outside SageMaker": (
        Parameter("stop_batch_jobs", "AWS Batch", "Whether fires may stop AWS Batch jobs, where their tags allow it."),
        Parameter("stop_instances", "EC2", "Whether fires may stop EC2 instances, where their tags allow it."),
        Parameter("stop_workloads", "Workloads", "Whether fires may ask agents of clusters to stop workloads."),
        Parameter("act_on_nodes", "Nodes", "Whether broken GPUs may ask agents of clusters to act on nodes."),
    ),
    "Parts and sizes": (
        Parameter(
            "rollout",
            "Rollout",
            "How new versions of evaluating functions take over. In steps, their alarms bring the earlier ones back.",
        ),
        Parameter(
            "canary", "Canary", "Whether a synthetic job a day proves that the deployment detects, alerts and reports."
        ),
        Parameter(
            "canary_image",
            "Image of the canary's job",
            "Image in ECR, with sleep, of a training job a day that the canary creates and ends. Empty: none.",
            own_form=ecr_image(slashes=False),
        ),
        Parameter(
            "dashboard",
            "Dashboard",
            "Whether there is a CloudWatch dashboard. Beyond the free ones of an account it costs 3 USD a month.",
        ),
        Parameter("tracing", "Traces", "active sends a trace of each invocation and execution to X-Ray."),
        Parameter("log_retention_days", "Days to keep logs", "Age in days at which log events expire."),
        Parameter(
            "evaluator_concurrency",
            "Evaluators at once",
            "Evaluators that the queue invokes at once. 5 in a new account, which may run ten functions at once.",
        ),
        *(
            Parameter(
                f"{setting}_memory_mb",
                f"Memory of {label} (MiB)",
                f"Memory of {functions}, in MiB. A new account allows 3,008.",
            )
            for setting, label, functions in _MEMORIES
        ),
    ),
    "Keys, roles and network": (
        Parameter(
            "kms_key_arn",
            "Your own key",
            "ARN of the KMS key for the stack's bucket, tables, queues, topics and logs. Empty: keys of AWS.",
        ),
        Parameter(
            "permissions_boundary",
            "Permissions boundary",
            "ARN of the policy that bounds every role. Empty: none.",
            own_form=matching(settings.POLICY_ARN, "the ARN of an IAM policy"),
        ),
        Parameter("role_path", "Path of roles", "Path of every role, such as /trainguard/. Empty: none."),
        Parameter(
            "code_signing_config_arn",
            "Code signing",
            "ARN of the code signing configuration of every function; sign the assets before. Empty: none.",
        ),
        Parameter(
            "organization_id",
            "Organisation",
            "Id of the organisation whose accounts may write profiles below their id. Empty: none.",
        ),
        Parameter(
            "subnet_ids",
            "Subnets",
            "Ids of the functions' subnets, at most six, with commas. Empty: the functions run outside any VPC.",
            most=6,
        ),
        Parameter(
            "security_group_ids",
            "Security groups",
            "Ids of the functions' security groups, at most two, with commas. They are needed with subnets.",
            most=2,
        ),
    ),
}

PARAMETERS = tuple(each for group in _GROUPED.values() for each in group)


def declarations(config: DeploymentConfig) -> dict[str, Any]:
    """Return the section ``Parameters`` with defaults from ``config``; raises DeploymentConfigError."""
    defaults = {each.name: _default(each, config) for each in PARAMETERS}
    faults = [
        f"{each.setting} is {default!r}, which the parameter {each.name} of a release cannot be"
        for each in PARAMETERS
        if (default := defaults[each.name]) is not None and not each.accepts(default)
    ]
    if config.stack_name != DeploymentConfig().stack_name:
        faults.append("stack_name is chosen when a release's stack is created")
    if config.vpc_id and config.subnet_ids:
        faults.append("vpc_id makes no security group in a release: give security_group_ids")
    if faults:
        raise DeploymentConfigError(faults)
    return {each.name: _possible(each, config).declaration(defaults[each.name]) for each in PARAMETERS}


def form() -> dict[str, Any]:
    """Return the section ``Metadata``, by which the console groups and labels the parameters."""
    listed = [
        {"Label": {"default": heading}, "Parameters": [each.name for each in group]}
        for heading, group in _GROUPED.items()
    ]
    labels = {each.name: {"default": each.label} for each in PARAMETERS}
    return {"AWS::CloudFormation::Interface": {"ParameterGroups": listed, "ParameterLabels": labels}}


def _possible(parameter: Parameter, config: DeploymentConfig) -> Parameter:
    """Return a parameter with the values alone that the settings without one admit."""
    if parameter.setting == "profile_notifications" and settings.RUN_FILES in config.live_sources:
        return replace(parameter, own_form=one_of(settings.BY_EVENTS))
    return parameter


def _default(parameter: Parameter, config: DeploymentConfig) -> str | None:
    if parameter.setting is None:
        return parameter.default
    value = getattr(config, parameter.setting)
    if value is None:
        return BY_BUCKET if BY_BUCKET in parameter.form.allowed else ""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def references() -> dict[str, dict[str, Any]]:
    """Return for each setting with a parameter the reference to its value: a list by its parts."""
    return {
        each.setting: {"Fn::Split": [",", {"Ref": each.name}]} if each.form.is_list else {"Ref": each.name}
        for each in PARAMETERS
        if each.setting
    }
