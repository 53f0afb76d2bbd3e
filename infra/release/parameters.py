"""The parameters of a release's template, ``ProfileBucket`` for the setting ``profile_bucket`` of `infra.config`."""

import re
from dataclasses import dataclass, replace
from typing import Any

from infra import config as settings
from infra.config import DeploymentConfig, DeploymentConfigError

ASSET_BUCKET, ASSET_PREFIX = "AssetBucket", "AssetPrefix"
BY_BUCKET = "by-bucket"
"""Value of ``Evaluate`` in place of None, which no parameter has."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the template.

    ``setting`` is the field of `DeploymentConfig` that it gives, None for where the assets lie; by default it has the
    setting's name. ``label`` and ``says`` are a line of the console's form, and the description below it. ``pattern``
    is of the whole text, or of each part where ``is_list``, with commas between: CloudFormation's rules and conditions
    cannot say that a parameter of its type of lists is empty. ``allowed`` are the only values, ``limits`` the least and
    greatest number. ``default`` is of a parameter without a setting; None makes it required.
    """

    setting: str | None
    label: str
    says: str
    name: str = ""
    pattern: str | None = None
    is_list: bool = False
    allowed: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None
    default: str | None = None

    def __post_init__(self) -> None:
        if self.setting is not None and not self.name:
            object.__setattr__(self, "name", self.setting.title().replace("_", ""))
        if isinstance(self._usual, bool):
            object.__setattr__(self, "allowed", ("true", "false"))

    @property
    def _usual(self) -> object:
        return "" if self.setting is None else getattr(DeploymentConfig(), self.setting)

    def accepts(self, value: str) -> bool:
        if self.limits:
            return value.isdigit() and self.limits[0] <= int(value) <= self.limits[1]
        if self.allowed:
            return value in self.allowed
        return re.fullmatch(self._whole_pattern, value) is not None

    def declaration(self, default: str | None) -> dict[str, Any]:
        kind = "Number" if isinstance(self._usual, int) and not isinstance(self._usual, bool) else "String"
        declared: dict[str, Any] = {"Type": kind, "Description": self.says}
        if default is not None:
            declared["Default"] = default
        if self.allowed:
            declared["AllowedValues"] = list(self.allowed)
        elif self.limits:
            declared |= {"MinValue": self.limits[0], "MaxValue": self.limits[1]}
        else:
            declared |= {"AllowedPattern": self._whole_pattern, "ConstraintDescription": self.says}
        return declared

    @property
    def _whole_pattern(self) -> str:
        pattern = self.pattern or ".*"
        pattern = f"{pattern}(,{pattern})*" if self.is_list else pattern
        return f"({pattern})?" if self._usual in (None, ()) else pattern


_GROUPED = {
    "Where you uploaded the assets": (
        Parameter(
            None,
            "Bucket",
            "Bucket, in the stack's Region, that holds the release's assets.",
            name=ASSET_BUCKET,
            pattern=settings.BUCKET_NAME,
        ),
        Parameter(
            None,
            "Prefix",
            "Prefix of the assets in that bucket. It ends with a slash, or is empty.",
            name=ASSET_PREFIX,
            pattern=r"([A-Za-z0-9!_.*'()-]+/)*",
            default="trainguard/",
        ),
    ),
    "Profiles": (
        Parameter(
            "profile_bucket",
            "Existing bucket",
            "Existing bucket of profiles, with notifications on. Empty: the stack makes one.",
            pattern=settings.BUCKET_NAME,
        ),
        Parameter(
            "profile_key_arn",
            "Key of the existing bucket",
            "ARN of the KMS key that encrypts the existing bucket. Empty: S3 or AWS manages that key.",
            pattern=settings.KEY_ARN,
        ),
        Parameter(
            "profile_notifications",
            "Notifications of the existing bucket",
            "How the existing bucket announces objects: by events, or by S3 to the queue, for which S3 asks nothing.",
            allowed=settings.PROFILE_NOTIFICATIONS,
        ),
        Parameter(
            "profile_retention_days",
            "Days to keep profiles",
            "Age in days at which profiles and reports in the stack's own bucket expire.",
            limits=settings.PROFILE_RETENTION_DAYS,
        ),
        Parameter(
            "evaluate",
            "Jobs to evaluate",
            "Jobs that are evaluated. by-bucket: all with the stack's own bucket, tagged ones with an existing one.",
            allowed=(BY_BUCKET, "all", "tagged", "off"),
        ),
    ),
    "Alerts": (
        Parameter(
            "alert_emails",
            "Address for alerts",
            "Mail address that gets alerts about training jobs. Empty: none.",
            name="AlertEmail",
            pattern=settings.EMAIL,
        ),
        Parameter(
            "operations_emails",
            "Address for alarms",
            "Mail address that gets alarms about TrainGuard itself. Empty: none.",
            name="OperationsEmail",
            pattern=settings.EMAIL,
        ),
        Parameter(
            "central_bus_arn",
            "Central event bus",
            "ARN of the EventBridge bus that findings are forwarded to. Empty: none.",
            pattern=settings.BUS_ARN,
        ),
    ),
    "Stops of training jobs": (
        Parameter(
            "stop_switch",
            "Stop switch",
            "Whether TrainGuard may stop training jobs that carry the tag trainguard:stop-on-fire.",
            allowed=settings.STOP_SWITCH_VALUES,
        ),
        Parameter(
            "max_stops_per_hour",
            "Stops an hour",
            "How many training jobs may be stopped within an hour. 0 stops none.",
            limits=settings.STOPS_PER_HOUR,
        ),
    ),
    "Parts and sizes": (
        Parameter(
            "canary", "Canary", "Whether a synthetic job a week proves that the deployment detects, alerts and reports."
        ),
        Parameter(
            "dashboard",
            "Dashboard",
            "Whether there is a CloudWatch dashboard. Beyond the free ones of an account it costs 3 USD a month.",
        ),
        Parameter(
            "log_retention_days",
            "Days to keep logs",
            "Age in days at which log events expire.",
            allowed=tuple(map(str, settings.LOG_RETENTION_DAYS)),
        ),
        Parameter(
            "evaluator_concurrency",
            "Evaluators at once",
            "Evaluators that the queue invokes at once. 5 in a new account, which may run ten functions at once.",
            limits=settings.EVALUATOR_CONCURRENCY,
        ),
        Parameter(
            "evaluator_memory_mb",
            "Memory of evaluators (MiB)",
            "Memory of evaluate_objects, in MiB. A new account allows 3,008.",
            limits=settings.MEMORY_MB,
        ),
        Parameter(
            "report_memory_mb",
            "Memory of reports (MiB)",
            "Memory of digest_profile and build_report, in MiB. A new account allows 3,008.",
            limits=settings.MEMORY_MB,
        ),
    ),
    "Keys, roles and network": (
        Parameter(
            "kms_key_arn",
            "Your own key",
            "ARN of the KMS key for the stack's bucket, tables, queues, topics and logs. Empty: keys of AWS.",
            pattern=settings.KEY_ARN,
        ),
        Parameter(
            "permissions_boundary",
            "Permissions boundary",
            "ARN of the policy that bounds every role. Empty: none.",
            pattern=settings.POLICY_ARN,
        ),
        Parameter(
            "subnet_ids",
            "Subnets",
            "Ids of the functions' subnets, separated by commas. Empty: the functions run outside any VPC.",
            is_list=True,
            pattern=settings.SUBNET_ID,
        ),
        Parameter(
            "security_group_ids",
            "Security groups",
            "Ids of the functions' security groups, separated by commas. They are needed with subnets.",
            is_list=True,
            pattern=settings.SECURITY_GROUP_ID,
        ),
    ),
}
"""Parameters by the headings of the console's form."""

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
        return replace(parameter, allowed=(settings.BY_EVENTS,))
    return parameter


def _default(parameter: Parameter, config: DeploymentConfig) -> str | None:
    if parameter.setting is None:
        return parameter.default
    value = getattr(config, parameter.setting)
    if value is None:
        return BY_BUCKET if BY_BUCKET in parameter.allowed else ""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def references() -> dict[str, dict[str, Any]]:
    """Return for each setting with a parameter the reference to its value: a list by its parts."""
    return {
        each.setting: {"Fn::Split": [",", {"Ref": each.name}]} if each.is_list else {"Ref": each.name}
        for each in PARAMETERS
        if each.setting
    }
