"""Judges calls as IAM would: by action, by what is asked for, and by what the conditions of a statement look at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.functional import deployment
from tests.functional.offline import RECONCILE_JOB
from tests.functional.tables import BOOKKEEPING, JOBS, NODE_STATE, RULE_STATE
from tests.infra.template import Statement
from trainguard.testing.memory import DEFAULT_SETTINGS

_HERE = "{AWS::Region}:{AWS::AccountId}"
_BUCKET = "arn:{AWS::Partition}:s3:::"
_PARAMETER = f"arn:{{AWS::Partition}}:ssm:{_HERE}:parameter"
_JOB = f"arn:{{AWS::Partition}}:sagemaker:{_HERE}:training-job/"

_BUCKETS = {deployment.BUCKET: "{StorageProfiles}"}
_TABLES = {name: f"{{Storage{name}.Arn}}" for name in (JOBS, NODE_STATE, RULE_STATE, BOOKKEEPING)}
_MACHINES = {"fire": "{ActionsFire.Arn}", "report": "{ReportsReport.Arn}", "kernels": "{CapturesKernels.Arn}"}
_TOPICS = {deployment.ALERT_TOPIC: "{ActionsAlerts}", deployment.CHAT_TOPIC: "{ActionsChat}"}
_BUS = f"arn:{{AWS::Partition}}:events:{_HERE}:event-bus/default"
_QUEUES = {"messages": "{IngestDoorbells.Arn}"}
_FUNCTIONS = {RECONCILE_JOB: "{EvaluationReconcileJobLive}"}
# What functions are given on moto, and what the template calls it.
_PARAMETERS = {DEFAULT_SETTINGS: "{SettingsStackDefault}", deployment.STOP_SWITCH: "{ActionsStopSwitch}"}


@dataclass(frozen=True, slots=True)
class Request:
    """What IAM is asked: an action on a resource, in the template's words, and values that conditions may look at."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


def requests(action: str, arguments: Mapping[str, Any]) -> Iterator[Request]:
    """Yield what IAM is asked for a call with ``arguments``; most calls ask once, a deletion once an object."""
    match action.partition(":")[0]:
        case "s3":
            yield from _of_bucket(action, arguments)
        case "dynamodb":
            index = f"/index/{arguments['IndexName']}" if "IndexName" in arguments else ""
            named = arguments.get("Key", arguments.get("Item", {}))
            key = named.get("TrainingJobName", named.get("Purpose", {})).get("S")
            context = (("dynamodb:LeadingKeys", key),) if key else ()
            yield Request(action, _TABLES[arguments["TableName"]] + index, context)
        case "sqs":
            yield Request(action, _QUEUES[arguments["QueueUrl"].rpartition("/")[2]])
        case "lambda":
            yield Request(action, _FUNCTIONS[arguments["FunctionName"]])
        case "states":
            yield Request(action, _MACHINES[arguments["stateMachineArn"].rpartition(":")[2]])
        case "ssm":
            yield Request(action, _PARAMETER + _PARAMETERS.get(arguments["Name"], arguments["Name"]))
        case "sagemaker":
            named = arguments.get("TrainingJobName") or arguments["ResourceArn"].rpartition("/")[2]
            tags = deployment.OPTED_IN.items() if action == "sagemaker:StopTrainingJob" else ()
            yield Request(action, _JOB + named, tuple((f"aws:ResourceTag/{name}", value) for name, value in tags))
        case "sns":
            yield Request(action, _TOPICS[arguments["TopicArn"]])
        case "events":
            sources = (("events:source", entry["Source"]) for entry in arguments["Entries"])
            yield Request(action, _BUS, tuple(sources))
        case service:
            raise AssertionError(f"nobody has said what IAM is asked for {service}")


def _of_bucket(action: str, arguments: Mapping[str, Any]) -> Iterator[Request]:
    bucket = _BUCKET + _BUCKETS[arguments["Bucket"]]
    if action == "s3:ListBucket":
        yield Request(action, bucket, (("s3:prefix", arguments["Prefix"]),))
        return
    deleted = arguments.get("Delete", {}).get("Objects", ())
    for key in [each["Key"] for each in deleted] or [arguments["Key"]]:
        yield Request(action, f"{bucket}/{key}")


def allows(statement: Statement, request: Request) -> bool:
    """Say whether a statement of a role allows what is asked."""
    return statement.effect == "Allow" and applies(statement, request)


def applies(statement: Statement, request: Request) -> bool:
    """Say whether a statement, of whatever effect, covers what is asked."""
    return (
        any(fnmatchcase(request.action, pattern) for pattern in statement.actions)
        and (not statement.resources or any(fnmatchcase(request.resource, pattern) for pattern in statement.resources))
        and not any(fnmatchcase(request.resource, pattern) for pattern in statement.not_resources)
        and all(_met(operator, tests, request) for operator, tests in statement.condition.items())
    )


def _met(operator: str, tests: Mapping[str, Any], request: Request) -> bool:
    """Say whether a condition holds; of a key that was not given only ``ForAllValues``, a ``Not`` and ``Null`` do."""
    quantifier, _, plain = operator.rpartition(":")
    assert quantifier in {"", "ForAllValues"}
    for key, wanted in tests.items():
        given = [value for name, value in request.context if name == key]
        if plain == "Null":
            if bool(given) != (wanted == "false"):
                return False
            continue
        if not given and not quantifier and plain != "StringNotEquals":
            return False
        allowed = [wanted] if isinstance(wanted, str) else list(wanted)
        if not all(any(_like(plain, value, each) for each in allowed) for value in given):
            return False
    return True


def _like(operator: str, value: str, wanted: str) -> bool:
    if operator in {"StringEquals", "Bool"}:
        return value == wanted
    if operator == "StringNotEquals":
        return value != wanted
    assert operator == "StringLike"
    return fnmatchcase(value, wanted)
