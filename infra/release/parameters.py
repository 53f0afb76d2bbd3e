"""The parameters of a release's template, ``ProfileBucket`` for the setting ``profile_bucket`` of `infra.config`."""

import re
from dataclasses import dataclass, replace
from typing import Any

from infra import config as settings
from infra.config import DeploymentConfig, DeploymentConfigError

ASSET_BUCKET, ASSET_PREFIX = "AssetBucket", "AssetPrefix"
BY_BUCKET = "by-bucket"
"""Value of ``Evaluate`` in place of None, which no parameter has."""

_STRING, _NUMBER = "String", "Number"
_SWITCH = ("true", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of the template.

    Attributes
    ----------
    setting : str or None
        The field of `DeploymentConfig` that it gives; None for where the assets lie.
    group, label, says : str
        Heading and line of the console's form, and the description below it.
    kind : {"String", "Number"}
        CloudFormation's type.
    pattern : str or None
        Pattern of the whole text.
    is_list : bool
        Whether the text is one or more parts with commas between them, each of ``pattern``. CloudFormation's rules and
        conditions cannot say that a parameter of its type of lists is empty.
    allowed : tuple of str
        The only values; none allows all that ``pattern`` does.
    limits : tuple of int or None
        Least and greatest number.
    is_optional : bool
        Whether an empty text stands for none.
    default : str or None
        Of a parameter without a setting; None makes it required.
    """

    name: str
    group: str
    label: str
    says: str
    setting: str | None = None
    kind: str = _STRING
    pattern: str | None = None
    is_list: bool = False
    allowed: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None
    is_optional: bool = False
    default: str | None = None

    def accepts(self, value: str) -> bool:
        """Return whether CloudFormation takes a value, written as text."""
        if self.limits:
            return value.isdigit() and self.limits[0] <= int(value) <= self.limits[1]
        if self.allowed:
            return value in self.allowed
        return re.fullmatch(self._whole_pattern, value) is not None

    def declaration(self, default: str | None) -> dict[str, Any]:
        """Return the parameter as the template declares it."""
        declared: dict[str, Any] = {"Type": self.kind, "Description": self.says}
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
        return f"({pattern})?" if self.is_optional else pattern


_ASSETS, _PROFILES, _ALERTS = "Where you uploaded the assets", "Profiles", "Alerts"
_STOPS, _PARTS, _SECURITY = "Stops of training jobs", "Parts and sizes", "Keys, roles and network"

PARAMETERS = (
    Parameter(
        name=ASSET_BUCKET,
        group=_ASSETS,
        label="Bucket",
        says="Bucket, in the stack's Region, that holds the release's assets.",
        pattern=settings.BUCKET_NAME,
    ),
    Parameter(
        name=ASSET_PREFIX,
        group=_ASSETS,
        label="Prefix",
        says="Prefix of the assets in that bucket. It ends with a slash, or is empty.",
        pattern=r"([A-Za-z0-9!_.*'()-]+/)*",
        default="trainguard/",
    ),
    Parameter(
        name="ProfileBucket",
        setting="profile_bucket",
        group=_PROFILES,
        label="Existing bucket",
        says="Existing bucket of profiles, with notifications on. Empty: the stack makes one.",
        pattern=settings.BUCKET_NAME,
        is_optional=True,
    ),
    Parameter(
        name="ProfileKeyArn",
        setting="profile_key_arn",
        group=_PROFILES,
        label="Key of the existing bucket",
        says="ARN of the KMS key that encrypts the existing bucket. Empty: S3 or AWS manages that key.",
        pattern=settings.KEY_ARN,
        is_optional=True,
    ),
    Parameter(
        name="ProfileNotifications",
        setting="profile_notifications",
        group=_PROFILES,
        label="Notifications of the existing bucket",
        says="How the existing bucket announces objects: by events, or by S3 to the queue, for which S3 asks nothing.",
        allowed=settings.PROFILE_NOTIFICATIONS,
    ),
    Parameter(
        name="ProfileRetentionDays",
        setting="profile_retention_days",
        group=_PROFILES,
        label="Days to keep profiles",
        says="Age in days at which profiles and reports in the stack's own bucket expire.",
        kind=_NUMBER,
        limits=settings.PROFILE_RETENTION_DAYS,
    ),
    Parameter(
        name="Evaluate",
        setting="evaluate",
        group=_PROFILES,
        label="Jobs to evaluate",
        says="Jobs that are evaluated. by-bucket: all with the stack's own bucket, tagged ones with an existing one.",
        allowed=(BY_BUCKET, "all", "tagged", "off"),
    ),
    Parameter(
        name="AlertEmail",
        setting="alert_emails",
        group=_ALERTS,
        label="Address for alerts",
        says="Mail address that gets alerts about training jobs. Empty: none.",
        pattern=settings.EMAIL,
        is_optional=True,
    ),
    Parameter(
        name="OperationsEmail",
        setting="operations_emails",
        group=_ALERTS,
        label="Address for alarms",
        says="Mail address that gets alarms about TrainGuard itself. Empty: none.",
        pattern=settings.EMAIL,
        is_optional=True,
    ),
    Parameter(
        name="CentralBusArn",
        setting="central_bus_arn",
        group=_ALERTS,
        label="Central event bus",
        says="ARN of the EventBridge bus that findings are forwarded to. Empty: none.",
        pattern=settings.BUS_ARN,
        is_optional=True,
    ),
    Parameter(
        name="StopSwitch",
        setting="stop_switch",
        group=_STOPS,
        label="Stop switch",
        says="Whether TrainGuard may stop training jobs that carry the tag trainguard:stop-on-fire.",
        allowed=settings.STOP_SWITCH_VALUES,
    ),
    Parameter(
        name="MaxStopsPerHour",
        setting="max_stops_per_hour",
        group=_STOPS,
        label="Stops an hour",
        says="How many training jobs may be stopped within an hour. 0 stops none.",
        kind=_NUMBER,
        limits=settings.STOPS_PER_HOUR,
    ),
    Parameter(
        name="Canary",
        setting="canary",
        group=_PARTS,
        label="Canary",
        says="Whether a synthetic job a week proves that the deployment detects, alerts and reports.",
        allowed=_SWITCH,
    ),
    Parameter(
        name="Dashboard",
        setting="dashboard",
        group=_PARTS,
        label="Dashboard",
        says="Whether there is a CloudWatch dashboard. Beyond the free ones of an account it costs 3 USD a month.",
        allowed=_SWITCH,
    ),
    Parameter(
        name="LogRetentionDays",
        setting="log_retention_days",
        group=_PARTS,
        label="Days to keep logs",
        says="Age in days at which log events expire.",
        kind=_NUMBER,
        allowed=tuple(map(str, settings.LOG_RETENTION_DAYS)),
    ),
    Parameter(
        name="EvaluatorConcurrency",
        setting="evaluator_concurrency",
        group=_PARTS,
        label="Evaluators at once",
        says="Evaluators that the queue invokes at once. 5 in a new account, which may run ten functions at once.",
        kind=_NUMBER,
        limits=settings.EVALUATOR_CONCURRENCY,
    ),
    Parameter(
        name="EvaluatorMemoryMb",
        setting="evaluator_memory_mb",
        group=_PARTS,
        label="Memory of evaluators (MiB)",
        says="Memory of evaluate_objects, in MiB. A new account allows 3,008.",
        kind=_NUMBER,
        limits=settings.MEMORY_MB,
    ),
    Parameter(
        name="ReportMemoryMb",
        setting="report_memory_mb",
        group=_PARTS,
        label="Memory of reports (MiB)",
        says="Memory of digest_profile and build_report, in MiB. A new account allows 3,008.",
        kind=_NUMBER,
        limits=settings.MEMORY_MB,
    ),
    Parameter(
        name="KmsKeyArn",
        setting="kms_key_arn",
        group=_SECURITY,
        label="Your own key",
        says="ARN of the KMS key for the stack's bucket, tables, queues, topics and logs. Empty: keys of AWS.",
        pattern=settings.KEY_ARN,
        is_optional=True,
    ),
    Parameter(
        name="PermissionsBoundary",
        setting="permissions_boundary",
        group=_SECURITY,
        label="Permissions boundary",
        says="ARN of the policy that bounds every role. Empty: none.",
        pattern=settings.POLICY_ARN,
        is_optional=True,
    ),
    Parameter(
        name="SubnetIds",
        setting="subnet_ids",
        group=_SECURITY,
        label="Subnets",
        says="Ids of the functions' subnets, separated by commas. Empty: the functions run outside any VPC.",
        is_list=True,
        pattern=settings.SUBNET_ID,
        is_optional=True,
    ),
    Parameter(
        name="SecurityGroupIds",
        setting="security_group_ids",
        group=_SECURITY,
        label="Security groups",
        says="Ids of the functions' security groups, separated by commas. They are needed with subnets.",
        is_list=True,
        pattern=settings.SECURITY_GROUP_ID,
        is_optional=True,
    ),
)


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
    groups: dict[str, list[str]] = {}
    for each in PARAMETERS:
        groups.setdefault(each.group, []).append(each.name)
    listed = [{"Label": {"default": group}, "Parameters": names} for group, names in groups.items()]
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
