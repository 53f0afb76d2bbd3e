"""Common parts of all state machines: Standard, logged, with a role of their own; traced where asked for."""

import json
import re
from collections.abc import Mapping, Sequence

from aws_cdk import Aws, Fn, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.function import FunctionPlatform, log_group, role_with
from infra.constructs.policy import allow
from infra.constructs.states import State

_INTEGRATION = re.compile(r"arn:\$\{Partition\}:(states:::[\w:-]+)")

_LOG_DELIVERY_ACTIONS = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
_TRACE_ACTIONS = (
    "xray:PutTraceSegments",
    "xray:PutTelemetryRecords",
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
)


def state_machine(
    scope: Construct,
    construct_id: str,
    *,
    platform: FunctionPlatform,
    definition: State,
    substitutions: Mapping[str, str],
    statements: Sequence[iam.PolicyStatement],
    name: str | None = None,
) -> sfn.CfnStateMachine:
    """Return a state machine with a role for ``statements``, its log, and any traces."""
    executions_log = log_group(scope, "ExecutionsLog", platform.config, name=_log_name(platform.config, construct_id))
    this_account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    principal = iam.ServicePrincipal("states.amazonaws.com", conditions=this_account)
    common = [
        allow("DeliverExecutionLogs", _LOG_DELIVERY_ACTIONS, ["*"]),
        *([allow("SendTraces", _TRACE_ACTIONS, ["*"])] if platform.config.traced else []),
    ]
    role = role_with(
        scope, f"{construct_id}Role", config=platform.config, principal=principal, statements=[*statements, *common]
    )
    text, integrations = _with_whole_arns(json.dumps(definition, indent=1), Stack.of(scope).partition)
    return sfn.CfnStateMachine(
        scope,
        construct_id,
        state_machine_name=name,
        state_machine_type="STANDARD",
        role_arn=role.role_arn,
        definition_string=text,
        definition_substitutions={**integrations, **substitutions},
        logging_configuration=sfn.CfnStateMachine.LoggingConfigurationProperty(
            level="ALL",
            include_execution_data=True,
            destinations=[
                sfn.CfnStateMachine.LogDestinationProperty(
                    cloud_watch_logs_log_group=sfn.CfnStateMachine.CloudWatchLogsLogGroupProperty(
                        log_group_arn=executions_log.log_group_arn
                    )
                )
            ],
        ),
        tracing_configuration=sfn.CfnStateMachine.TracingConfigurationProperty(enabled=platform.config.traced),
    )


def _with_whole_arns(definition: str, partition: str) -> tuple[str, dict[str, str]]:
    """Return a definition with a placeholder for each ARN, which cfn-lint accepts, and the ARNs by placeholder."""
    arns: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        name = "".join(word[0].upper() + word[1:] for word in re.findall(r"\w+", match[1]))
        arns[name] = f"arn:{partition}:{match[1]}"
        return f"${{{name}}}"

    return _INTEGRATION.sub(placeholder, definition), arns


def _log_name(config: DeploymentConfig, construct_id: str) -> str:
    """Return a name that CloudWatch Logs lets services write to without a line of its own in a policy.

    That policy is the account's, of 5,120 characters in all. The end is the stack's own, so that a log that outlived
    its stack is in the way of no other.
    """
    stack_uuid = Fn.select(2, Fn.split("/", Aws.STACK_ID))
    return f"/aws/vendedlogs/states/{config.stack_name}-{construct_id}-{stack_uuid}"
