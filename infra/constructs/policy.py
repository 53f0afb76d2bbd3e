"""Statements of permissions: one a purpose, each with a name that a person finds again in the console."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Aspects, IAspect, Stack, Token
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct
from jsii import implements

from infra.config import DeploymentConfig
from trainguard.engine.settings.tag_names import EXEMPT_TAG, JOB_TAG, STOP_ALLOWED, STOP_TAG


def allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Mapping[str, str | list[str]]] | None = None,
) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)


@implements(IAspect)
class _RolePath:
    """Puts a path on every role."""

    def __init__(self, path: str) -> None:
        self._path = path

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, iam.CfnRole):
            node.path = self._path


def bound_roles(scope: Construct, config: DeploymentConfig) -> None:
    """Put the path and the boundary that ``config`` names, if any, on every role below ``scope``."""
    if config.role_path is not None:
        Aspects.of(scope).add(cast("IAspect", _RolePath(config.role_path)))
    if config.permissions_boundary is None:
        return
    if Token.is_unresolved(config.permissions_boundary) or config.permissions_boundary.startswith("arn:"):
        policy = iam.ManagedPolicy.from_managed_policy_arn(scope, "Boundary", config.permissions_boundary)
    else:
        policy = iam.ManagedPolicy.from_managed_policy_name(scope, "Boundary", config.permissions_boundary)
    iam.PermissionsBoundary.of(scope).apply(policy)


def training_jobs(scope: Construct) -> str:
    return Stack.of(scope).format_arn(service="sagemaker", resource="training-job", resource_name="*")


def describe_training_jobs(scope: Construct) -> iam.PolicyStatement:
    """Return the statement that lets a role read training jobs and their tags."""
    return allow(
        "DescribeTrainingJobs", ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags"], [training_jobs(scope)]
    )


def stop_opted_in_training_jobs(scope: Construct) -> iam.PolicyStatement:
    """Return the statement that lets a role stop training jobs which carry the opt-in tag, and no other."""
    return allow(
        "StopOptedInTrainingJobs",
        ["sagemaker:StopTrainingJob"],
        [training_jobs(scope)],
        {"StringEquals": {f"aws:ResourceTag/{STOP_TAG}": STOP_ALLOWED}},
    )


def look_at_resources(kinds: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return the statements that let a role describe what may be stopped: these actions know no resources."""
    looks = {"batch-job": ("BatchJobs", "batch:DescribeJobs"), "instance": ("Instances", "ec2:DescribeInstances")}
    return [allow(f"LookAt{name}", [action], ["*"]) for name, action in (looks[kind] for kind in kinds)]


def stop_opted_in_resources(scope: Construct, kinds: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return the statements that let a role stop what carries the opt-in tag and is not exempt, and nothing else."""
    conditions = {
        "StringEquals": {f"aws:ResourceTag/{STOP_TAG}": STOP_ALLOWED},
        "Null": {f"aws:ResourceTag/{EXEMPT_TAG}": "true", f"aws:ResourceTag/{JOB_TAG}": "false"},
    }
    stack = Stack.of(scope)
    statements = {
        "batch-job": ("StopOptedInBatchJobs", "batch:TerminateJob", ("batch", "job")),
        "instance": ("StopOptedInInstances", "ec2:StopInstances", ("ec2", "instance")),
    }
    return [
        allow(sid, [action], [stack.format_arn(service=service, resource=kind, resource_name="*")], conditions)
        for sid, action, (service, kind) in (statements[each] for each in kinds)
    ]
