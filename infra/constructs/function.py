"""Everything that all functions have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.dead_letters import DeadLetters
from infra.constructs.encryption import own_key, use_keys
from infra.constructs.layer import architecture, runtime
from infra.constructs.network import manage_network_interfaces
from infra.constructs.policy import allow
from infra.overlay import Overlay
from infra.places import LAMBDAS

if TYPE_CHECKING:
    from infra.constructs.ingest import Ingest
    from infra.constructs.settings import Settings
    from infra.constructs.storage import JobStorage, Storage

_UNSTABLE_FILES = ["**/__pycache__", "**/*.pyc"]


@dataclass(frozen=True, slots=True)
class Ground:
    """What every function is made with, here and in the central account.

    ``undelivered`` is the queue of events and notices that did not reach their target, and of events whose function
    failed.
    """

    config: DeploymentConfig
    overlay: Overlay
    layer: lambda_.ILayerVersion
    placement: lambda_.CfnFunction.VpcConfigProperty | None
    undelivered: DeadLetters
    storage: "JobStorage"


@dataclass(frozen=True, slots=True)
class Platform(Ground):
    """What all parts of the stack are made with."""

    storage: "Storage"
    settings: "Settings"
    ingest: "Ingest"


def removal_policy(config: DeploymentConfig) -> RemovalPolicy:
    """Return what happens to data and logs when the stack is deleted: a first deployment that fails leaves none."""
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if config.retain_data else RemovalPolicy.DESTROY


# More than a year, and more than a deployment can choose for its other logs.
AUDIT_RETENTION_DAYS = 400


def log_group(
    scope: Construct, construct_id: str, config: DeploymentConfig, *, name: str | None = None, audited: bool = False
) -> logs.LogGroup:
    """Return a log group with the deployment's retention, or that of audits; CloudFormation names it by default."""
    group = logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        removal_policy=removal_policy(config),
        encryption_key=own_key(scope, config),
    )
    # The L2 construct accepts no parameter of the template for a number.
    cast("logs.CfnLogGroup", group.node.default_child).retention_in_days = (
        AUDIT_RETENTION_DAYS if audited else config.log_retention_days
    )
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


class TrainGuardFunction(Construct):
    """A function of `lambdas/`, with its own role and its own log group.

    ``folder`` is its name in logs and metrics. ``statements`` are without those for its log, and for its traces; CDK
    adds nothing to the role. An event of a rule is tried again ``retries`` times within ``most_age``, and then among
    what was not delivered; in its place ``failures`` has also why it failed. ``concurrency`` executions are reserved,
    and its highest number of them. ``metrics_namespace`` is the stack's, so that several stacks do not mix. The log of
    an ``audited`` one, which stops or brakes, is kept for over a year.
    """

    def __init__(  # noqa: PLR0913 - properties, by name
        self,
        scope: Construct,
        folder: str,
        *,
        platform: Ground,
        statements: Sequence[iam.PolicyStatement],
        timeout_s: int,
        memory_mib: int = 512,
        environment: Mapping[str, str] = MappingProxyType({}),
        most_age: Duration | None = None,
        retries: int = 2,
        failures: sqs.IQueue | None = None,
        concurrency: int | None = None,
        scratch_mib: int | None = None,
        audited: bool = False,
    ) -> None:
        super().__init__(scope, "".join(word.capitalize() for word in folder.split("_")))
        self._scope, self._undelivered, self._most_age = scope, platform.undelivered, most_age
        dead_letters = platform.undelivered if most_age else None
        self.service_name = folder
        self.metrics_namespace = platform.config.stack_name
        self.memory_mib = memory_mib
        self.log_group = log_group(self, "Logs", platform.config, audited=audited)
        write_logs = ["logs:CreateLogStream", "logs:PutLogEvents"]
        common = [allow("WriteLogs", write_logs, [self.log_group.log_group_arn])]
        if platform.config.traced:
            # X-Ray's write actions know no resources.
            common.append(allow("SendTraces", ["xray:PutTraceSegments", "xray:PutTelemetryRecords"], ["*"]))
        if kept := dead_letters or failures:
            common.append(allow("KeepFailedEvents", ["sqs:SendMessage"], [kept.queue_arn]))
        if platform.placement:
            common.append(manage_network_interfaces())
        role = role_with(
            self,
            "Role",
            config=platform.config,
            principal=iam.ServicePrincipal("lambda.amazonaws.com"),
            statements=[*statements, *common],
        )
        self.function = lambda_.Function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(LAMBDAS / folder), exclude=_UNSTABLE_FILES),
            handler="handler.handler",
            runtime=runtime(platform.overlay),
            architecture=architecture(platform.overlay),
            layers=[platform.layer],
            role=role.without_policy_updates(),
            log_group=self.log_group,
            timeout=Duration.seconds(timeout_s),
            memory_size=memory_mib,
            ephemeral_storage_size=None if scratch_mib is None else Size.mebibytes(scratch_mib),
            tracing=lambda_.Tracing.ACTIVE if platform.config.traced else lambda_.Tracing.PASS_THROUGH,
            dead_letter_queue=dead_letters,
            reserved_concurrent_executions=concurrency,
            environment={
                "POWERTOOLS_SERVICE_NAME": folder,
                "POWERTOOLS_METRICS_NAMESPACE": self.metrics_namespace,
                "POWERTOOLS_LOG_LEVEL": "INFO",
                **environment,
            },
        )
        self.arn = self.function.function_arn
        resource = cast("lambda_.CfnFunction", self.function.node.default_child)
        # The L2 construct would make a policy of references that a parameter of the template cannot be.
        resource.code_signing_config_arn = platform.config.code_signing_config_arn
        if platform.placement:
            resource.vpc_config = platform.placement
        if most_age:
            self.function.configure_async_invoke(max_event_age=most_age, retry_attempts=retries)

    def call_by_rule(
        self,
        construct_id: str,
        description: str,
        *,
        retries: int | None = None,
        schedule: events.Schedule | None = None,
        pattern: events.EventPattern | None = None,
        event: Mapping[str, str] | None = None,
        bus: events.IEventBus | None = None,
    ) -> None:
        """Have a rule beside the function call it; the stack's dead letters keep what could not be delivered.

        ``bus`` is the account's default bus unless given.
        """
        target = targets.LambdaFunction(
            self.function,
            event=None if event is None else events.RuleTargetInput.from_object(event),
            dead_letter_queue=self._undelivered.of_rules,
            max_event_age=self._most_age,
            retry_attempts=retries,
        )
        events.Rule(
            self._scope,
            construct_id,
            description=description,
            schedule=schedule,
            event_pattern=pattern,
            event_bus=bus,
            targets=[target],
        )
