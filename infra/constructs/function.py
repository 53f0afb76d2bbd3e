"""Everything that all functions have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.bundling import PROJECT_ROOT
from infra.config import DeploymentConfig
from infra.constructs.encryption import own_key, use_keys
from infra.constructs.layer import architecture, runtime
from infra.constructs.network import Placement, manage_network_interfaces
from infra.constructs.policy import allow, send_traces
from infra.overlay import Overlay

_UNSTABLE_FILES = ["**/__pycache__", "**/*.pyc"]


@dataclass(frozen=True, slots=True)
class FunctionPlatform:
    """Common parts of every function of the stack."""

    config: DeploymentConfig
    overlay: Overlay
    layer: lambda_.ILayerVersion
    placement: Placement | None = None


def removal_policy(config: DeploymentConfig) -> RemovalPolicy:
    """Return what happens to data and logs when the stack is deleted: a first deployment that fails leaves none."""
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if config.retain_data else RemovalPolicy.DESTROY


def log_group(
    scope: Construct, construct_id: str, config: DeploymentConfig, *, name: str | None = None
) -> logs.LogGroup:
    """Return a log group with the deployment's retention; CloudFormation names it by default."""
    group = logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        removal_policy=removal_policy(config),
        encryption_key=own_key(scope, config),
    )
    # The L2 construct accepts no parameter of the template for a number.
    cast("logs.CfnLogGroup", group.node.default_child).retention_in_days = config.log_retention_days
    return group


def role_with(
    scope: Construct,
    construct_id: str,
    *,
    config: DeploymentConfig,
    principal: iam.ServicePrincipal,
    statements: Sequence[iam.PolicyStatement],
) -> iam.Role:
    """Return a role for ``principal`` with ``statements``, and their rights on keys, in an inline policy."""
    policy = iam.PolicyDocument(statements=[*statements, *use_keys(config, statements)])
    return iam.Role(scope, construct_id, assumed_by=principal, inline_policies={"Permissions": policy})


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """Properties of one function.

    Attributes
    ----------
    folder : str
        Its folder in `lambdas/`, which is also its name in logs and metrics.
    statements : sequence of aws_iam.PolicyStatement
        Without those for its log, and for its traces.
    dead_letters : aws_sqs.IQueue, optional
        Keeps an event whose every attempt failed, for functions that are invoked asynchronously.
    failures : aws_sqs.IQueue, optional
        In place of ``dead_letters``: keeps such an event together with why it failed.
    concurrency : int, optional
        Executions that are reserved for the function, and its highest number of them.
    scratch_mib : int, optional
        Its disk, by default Lambda's.
    """

    folder: str
    statements: Sequence[iam.PolicyStatement]
    environment: Mapping[str, str]
    timeout_s: int
    memory_mib: int
    dead_letters: sqs.IQueue | None = None
    failures: sqs.IQueue | None = None
    concurrency: int | None = None
    scratch_mib: int | None = None


class TrainGuardFunction(Construct):
    """A function of `lambdas/`, with its own role and its own log group.

    CDK adds nothing to the role. ``metrics_namespace`` is the stack's, so that several stacks do not mix.
    """

    def __init__(self, scope: Construct, construct_id: str, *, platform: FunctionPlatform, spec: FunctionSpec) -> None:
        super().__init__(scope, construct_id)
        self.service_name = spec.folder
        self.metrics_namespace = platform.config.stack_name
        self.memory_mib = spec.memory_mib
        self.log_group = log_group(self, "Logs", platform.config)
        self.log_group_name = self.log_group.log_group_name
        role = role_with(
            self,
            "Role",
            config=platform.config,
            principal=iam.ServicePrincipal("lambda.amazonaws.com"),
            statements=[*spec.statements, *self._common_statements(platform, spec)],
        )
        self.function = lambda_.Function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(PROJECT_ROOT / "lambdas" / spec.folder), exclude=_UNSTABLE_FILES),
            handler="handler.handler",
            runtime=runtime(platform.overlay),
            architecture=architecture(platform.overlay),
            layers=[platform.layer],
            role=role.without_policy_updates(),
            log_group=self.log_group,
            timeout=Duration.seconds(spec.timeout_s),
            memory_size=spec.memory_mib,
            ephemeral_storage_size=None if spec.scratch_mib is None else Size.mebibytes(spec.scratch_mib),
            tracing=lambda_.Tracing.ACTIVE if platform.config.traced else lambda_.Tracing.PASS_THROUGH,
            dead_letter_queue=spec.dead_letters,
            reserved_concurrent_executions=spec.concurrency,
            environment={
                "POWERTOOLS_SERVICE_NAME": spec.folder,
                "POWERTOOLS_METRICS_NAMESPACE": self.metrics_namespace,
                "POWERTOOLS_LOG_LEVEL": "INFO",
                **spec.environment,
            },
        )

        self._place(platform.placement)

    def _place(self, placement: Placement | None) -> None:
        if placement:
            resource = cast("lambda_.CfnFunction", self.function.node.default_child)
            resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(placement.subnet_ids), security_group_ids=list(placement.security_group_ids)
            )

    def _common_statements(self, platform: FunctionPlatform, spec: FunctionSpec) -> list[iam.PolicyStatement]:
        write_logs = ["logs:CreateLogStream", "logs:PutLogEvents"]
        statements = [allow("WriteLogs", write_logs, [self.log_group.log_group_arn])]
        if platform.config.traced:
            statements.append(send_traces())
        if kept := spec.dead_letters or spec.failures:
            statements.append(allow("KeepFailedEvents", ["sqs:SendMessage"], [kept.queue_arn]))
        if platform.placement:
            statements.append(manage_network_interfaces())
        return statements
