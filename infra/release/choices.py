"""What a parameter adds to the stack or leaves out of it, each with the condition by which the template decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from aws_cdk import Aws, Fn, Token

from infra.config import ALL_AT_ONCE, BY_EVENTS, BY_QUEUE, DeploymentConfig
from infra.release.merging import Template, merge
from infra.release.parameters import BY_BUCKET, BY_REGION, PARAMETERS, references

# Synthesises the stack of a configuration, and returns its template as `infra.release.merging.named` does.
Make: TypeAlias = Callable[[DeploymentConfig], Template]


def without(config: DeploymentConfig, *settings: str) -> DeploymentConfig:
    """Return the configuration in which nothing is chosen by some settings."""
    none: dict[str, Any] = {
        name: False if isinstance(value, bool) else getattr(DeploymentConfig(), name)
        for name in settings
        for value in [getattr(config, name)]
    }
    return replace(config, **none)


HAS_BUCKET_BY_REGION = "HasBucketByRegion"
OWN_BUCKET, OWN_KEY, PROFILE_KEY = "MakesBucket", "HasKey", "HasProfileKey"
TAKES_EVENTS = "TakesEvents"

# Conditions, and the settings that decide; none of them changes what another one adds.
CHOICES = {
    "HasAlertEmail": ("alert_emails",),
    "HasOperationsEmail": ("operations_emails",),
    "HasCanary": ("canary",),
    "HasCanaryJob": ("canary_image",),
    "HasDashboard": ("dashboard",),
    "IsGradual": ("rollout",),
    "IsTraced": ("tracing",),
    "HasWeeklyDigest": ("weekly_digest",),
    "HasOpsItems": ("ops_items",),
    "HasEventSchemas": ("event_schemas",),
    "StopsBatchJobs": ("stop_batch_jobs",),
    "StopsInstances": ("stop_instances",),
    "HasCentralBus": ("central_bus_arn",),
    "HasBoundary": ("permissions_boundary",),
    "HasRolePath": ("role_path",),
    "HasCodeSigning": ("code_signing_config_arn",),
    "HasStopLimit": ("stop_limit_function",),
    "HasOrganization": ("organization_id",),
    "IsInVpc": ("subnet_ids", "security_group_ids"),
}

_EVALUATES_BY_BUCKET = "EvaluatesByBucket"
_STOPPED = {
    "StopsBatchJobs": "batch-job",
    "StopsInstances": "instance",
    "StopsWorkloads": "workload",
    "ActsOnNodes": "node",
}
# Variables of functions whose text more than one parameter decides.
_VARIABLES = {
    "STOPPABLE_RESOURCES": {
        "Fn::Join": [
            ",",
            ["none", *({"Fn::If": [name, kind, {"Ref": "AWS::NoValue"}]} for name, kind in _STOPPED.items())],
        ]
    },
}


def conditions() -> dict[str, Any]:
    return {
        HAS_BUCKET_BY_REGION: _is(BY_REGION, "true"),
        OWN_BUCKET: _is("ProfileBucket", ""),
        OWN_KEY: _given("KmsKeyArn"),
        PROFILE_KEY: _given("ProfileKeyArn"),
        TAKES_EVENTS: {"Fn::Or": [_is("ProfileBucket", ""), _is("ProfileNotifications", BY_EVENTS)]},
        **{name: _chosen(settings[0]) for name, settings in CHOICES.items()},
        "IsGradual": {"Fn::Not": [_is("Rollout", ALL_AT_ONCE)]},
        "IsTraced": _is("Tracing", "active"),
        **{name: _is(name.replace("Stops", "Stop").replace("Acts", "Act"), "true") for name in _STOPPED},
        _EVALUATES_BY_BUCKET: _is("Evaluate", BY_BUCKET),
    }


def rules() -> dict[str, Any]:
    """Return the section ``Rules``: which parameters go together; CloudFormation refuses others before it begins."""
    subnets, groups = _given("SubnetIds"), _given("SecurityGroupIds")
    return {
        "ProfileKeyOfExistingBucket": _rule(
            _given("ProfileKeyArn"),
            _given("ProfileBucket"),
            "ProfileKeyArn needs ProfileBucket: KmsKeyArn is the key of a bucket of the stack's own.",
        ),
        "NotificationsOfExistingBucket": _rule(
            _is("ProfileNotifications", BY_QUEUE),
            _given("ProfileBucket"),
            "ProfileNotifications needs ProfileBucket: a bucket of the stack's own notifies the queue.",
        ),
        "OrganizationWithOwnBucket": _rule(
            _given("OrganizationId"),
            _is("ProfileBucket", ""),
            "OrganizationId needs a bucket of the stack's own: the policy of ProfileBucket is yours.",
        ),
        "SubnetsWithSecurityGroups": _rule(subnets, groups, "SubnetIds needs SecurityGroupIds."),
        "SecurityGroupsWithSubnets": _rule(groups, subnets, "SecurityGroupIds needs SubnetIds."),
    }


def template_with_choices(config: DeploymentConfig, make: Make) -> Template:
    """Return the template of ``config`` in which parameters stand for settings, and conditions for choices."""
    full = with_references(config)

    def made(chosen: DeploymentConfig) -> Template:
        return _with_variables(make(chosen))

    whole = made(full)
    merged = _with_bucket_and_keys(full, whole, made)
    for condition, settings in CHOICES.items():
        merged = merge(condition, merged, whole, made(without(full, *settings)))
    return merged


def with_references(config: DeploymentConfig) -> DeploymentConfig:
    """Return the configuration in which all is chosen that can be, by reference to the parameters; with own bucket."""
    chosen: dict[str, Any] = {
        name: _reference(getattr(config, name), reference) for name, reference in references().items()
    }
    by_bucket = Fn.condition_if(OWN_BUCKET, "all", "tagged")
    chosen["evaluate"] = Token.as_string(Fn.condition_if(_EVALUATES_BY_BUCKET, by_bucket, chosen["evaluate"]))
    for name in ("subnet_ids", "security_group_ids"):
        chosen[name] = tuple(Token.as_list(references()[name]))
    own = {"profile_bucket": None, "profile_key_arn": None, "profile_notifications": BY_EVENTS}
    added = {name: True for name in references() if isinstance(getattr(config, name), bool)}
    return replace(config, **{**chosen, **own, **added, "stack_name": Aws.STACK_NAME, "tracing": "active"})


def _with_bucket_and_keys(full: DeploymentConfig, whole: Template, make: Make) -> Template:
    """Return the template with its choices of bucket, notifications and keys, of which each changes what others add.

    The key of an existing bucket takes the place of the stack's own key in permissions on that bucket. So all
    combinations are made, and merged from the innermost to the outermost.
    """
    named = references()
    existing = replace(full, profile_bucket=Token.as_string(named["profile_bucket"]))
    with_key = replace(existing, profile_key_arn=Token.as_string(named["profile_key_arn"]))

    def chosen(own: Template, key: Template, none: Template) -> Template:
        return merge(OWN_BUCKET, own, own, merge(PROFILE_KEY, key, key, none))

    plain = make(existing)
    keyed = chosen(whole, make(with_key), plain)
    unkeyed = chosen(*(make(without(config, "kms_key_arn")) for config in (full, with_key, existing)))
    # Only an existing bucket shows what the notifications change: the stack's own has the rules in any case.
    notified = make(replace(existing, profile_notifications=BY_QUEUE))
    return merge(TAKES_EVENTS, merge(OWN_KEY, keyed, keyed, unkeyed), plain, notified)


def _with_variables(template: Template) -> Template:
    """Return a template in whose functions some variables have the texts that parameters decide."""
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            variables = resource["Properties"]["Environment"]["Variables"]
            variables |= {name: text for name, text in _VARIABLES.items() if name in variables}
    return template


def _reference(value: object, reference: Mapping[str, object]) -> object:
    """Return a reference in the type of the setting: a number, a list of one text, or a text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Token.as_number(reference)
    text = Token.as_string(reference)
    return (text,) if isinstance(value, tuple) else text


def _chosen(setting: str) -> dict[str, Sequence[object]]:
    """Return the condition that a setting is on, or has a value."""
    parameter = next(each.name for each in PARAMETERS if each.setting == setting)
    return _is(parameter, "true") if isinstance(getattr(DeploymentConfig(), setting), bool) else _given(parameter)


def _is(parameter: str, value: str) -> dict[str, Sequence[object]]:
    return {"Fn::Equals": [{"Ref": parameter}, value]}


def _given(parameter: str) -> dict[str, Sequence[object]]:
    return {"Fn::Not": [_is(parameter, "")]}


def _rule(when: object, wanted: object, message: str) -> dict[str, object]:
    return {"RuleCondition": when, "Assertions": [{"Assert": wanted, "AssertDescription": message}]}
