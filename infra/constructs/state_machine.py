"""Common parts of all state machines: Standard, logged, with a role of their own; traced where asked for."""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aws_cdk import ArnFormat, Aws, Fn, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction, log_group, role_with
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


def state_machine(  # noqa: PLR0913 - properties, by name
    scope: Construct,
    construct_id: str,
    *,
    platform: Platform,
    definition: State,
    functions: Sequence[TrainGuardFunction],
    statements: Sequence[iam.PolicyStatement],
    substitutions: Mapping[str, str] = MappingProxyType({}),
    map_label: str | None = None,
) -> sfn.CfnStateMachine:
    """Return a state machine with a role to call ``functions`` and for ``statements``, its log, and any traces.

    With a Distributed Map, ``map_label``, its role names the machine itself, whose executions the Map starts.
    """
    name = f"{platform.config.stack_name}-{construct_id}" if map_label else None
    # CloudWatch Logs lets services write to such a name without a line of its own in the account's policy, which takes
    # 5,120 characters in all. The end is the stack's own: a log that outlived its stack is in the way of no other.
    stack_uuid = Fn.select(2, Fn.split("/", Aws.STACK_ID))
    log_name = f"/aws/vendedlogs/states/{platform.config.stack_name}-{construct_id}-{stack_uuid}"
    executions_log = log_group(scope, "ExecutionsLog", platform.config, name=log_name)
    this_account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    principal = iam.ServicePrincipal("states.amazonaws.com", conditions=this_account)
    invoke = allow("InvokeFunctions", ["lambda:InvokeFunction"], [part.arn for part in functions])
    common = [
        *(_own_map(Stack.of(scope), name, map_label) if name and map_label else ()),
        allow("DeliverExecutionLogs", _LOG_DELIVERY_ACTIONS, ["*"]),
        *([allow("SendTraces", _TRACE_ACTIONS, ["*"])] if platform.config.traced else []),
    ]
    role = role_with(
        scope,
        f"{construct_id}Role",
        config=platform.config,
        principal=principal,
        statements=[invoke, *statements, *common],
    )
    arns = {f"{part.node.id}Arn": part.arn for part in functions}
    text, integrations = _with_whole_arns(json.dumps(definition, indent=1), Stack.of(scope).partition)
    return sfn.CfnStateMachine(
        scope,
        construct_id,
        state_machine_name=name,
        state_machine_type="STANDARD",
        role_arn=role.role_arn,
        definition_string=text,
        definition_substitutions={**integrations, **arns, **substitutions},
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


def _own_map(stack: Stack, name: str, label: str) -> list[iam.PolicyStatement]:
    def arn(resource: str, named: str) -> str:
        by_colon = ArnFormat.COLON_RESOURCE_NAME
        return stack.format_arn(service="states", resource=resource, resource_name=named, arn_format=by_colon)

    executions = [arn("execution", each) for each in (f"{name}:*", f"{name}/{label}:*")]
    return [
        allow("StartOwnMap", ["states:StartExecution"], [arn("stateMachine", name)]),
        allow("FollowOwnMap", ["states:DescribeExecution", "states:StopExecution"], executions),
    ]


def _with_whole_arns(definition: str, partition: str) -> tuple[str, dict[str, str]]:
    """Return a definition with a placeholder for each ARN, which cfn-lint accepts, and the ARNs by placeholder."""
    arns: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        name = "".join(word[0].upper() + word[1:] for word in re.findall(r"\w+", match[1]))
        arns[name] = f"arn:{partition}:{match[1]}"
        return f"${{{name}}}"

    return _INTEGRATION.sub(placeholder, definition), arns
