"""All that exists in the emulator's account, of every service that the stack uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.launch import Emulator
    from tests.localstack.stack import Stack

# What of each service is listed: its client, the call, and where the answer holds it.
#
# The emulator lists no saved queries, and no layers once all versions of one are gone: see `versions`.
LISTED: Mapping[str, tuple[str, str, str]] = {
    "alarms": ("cloudwatch", "describe_alarms", "MetricAlarms"),
    "buckets": ("s3", "list_buckets", "Buckets"),
    "dashboards": ("cloudwatch", "list_dashboards", "DashboardEntries"),
    "functions": ("lambda", "list_functions", "Functions"),
    "logs": ("logs", "describe_log_groups", "logGroups"),
    "machines": ("stepfunctions", "list_state_machines", "stateMachines"),
    "mappings": ("lambda", "list_event_source_mappings", "EventSourceMappings"),
    "parameters": ("ssm", "describe_parameters", "Parameters"),
    "queues": ("sqs", "list_queues", "QueueUrls"),
    "roles": ("iam", "list_roles", "Roles"),
    "rules": ("events", "list_rules", "Rules"),
    "subscriptions": ("sns", "list_subscriptions", "Subscriptions"),
    "tables": ("dynamodb", "list_tables", "TableNames"),
    "topics": ("sns", "list_topics", "Topics"),
}

# The emulator makes a log group beside a function's own; Lambda does not, and the function's role may not.
EMULATORS_LOGS = "/aws/lambda/"

_NAMES = (
    "AlarmName",
    "DashboardName",
    "FunctionName",
    "RoleName",
    "SubscriptionArn",
    "TopicArn",
    "UUID",
    "logGroupName",
    "Name",
    "name",
)


def existing(emulator: Emulator) -> set[tuple[str, str]]:
    """Return all that exists, by kind and name."""
    found = set()
    for kind, (service, call, held) in LISTED.items():
        for each in getattr(emulator.client(service), call)().get(held, []):
            found.add((kind, each if isinstance(each, str) else _name(each)))
    return {(kind, name) for kind, name in found if not name.startswith(EMULATORS_LOGS)}


def _name(described: Mapping[str, Any]) -> str:
    return str(next(described[name] for name in _NAMES if name in described))


def layers(stack: Stack) -> set[str]:
    """Return the ARNs of the layers that a stack's functions use."""
    functions = stack.emulator.client("lambda").list_functions()["Functions"]
    ours = [each for each in functions if each["FunctionName"].startswith(f"{stack.name}-")]
    return {layer["Arn"] for each in ours for layer in each["Layers"]}


def versions(emulator: Emulator, arns: set[str]) -> int:
    """Return how many versions of layers there are, by the ARNs of versions that there were."""
    client = emulator.client("lambda")
    names = {arn.rpartition(":")[0] for arn in arns}
    return sum(len(client.list_layer_versions(LayerName=name)["LayerVersions"]) for name in names)
